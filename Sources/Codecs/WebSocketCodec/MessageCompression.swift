import ByteStreams
import Deflate

/// permessage-deflate as agreed on for one connection (RFC 7692 §7); or nothing, where nothing was agreed on.
///
/// Memory: none before the first compressed message of a direction; then what `Deflater` and `Inflater` say.
package struct MessageCompression: ~Copyable {
  /// What was agreed, and how hard to try.
  package struct Settings: Hashable, Sendable {
    /// For what we send: window 9...15, or 8, which zlib cannot produce, so that everything goes uncompressed.
    package var outboundWindowBits = 12
    /// Whether each message we send starts with an empty history.
    package var outboundResets = false
    package var inboundWindowBits = 15
    package var inboundResets = false
    /// zlib's effort, 1...9.
    package var level = 6
    /// zlib's memory, 1...9; see `Deflater` for what it costs.
    package var memoryLevel = 5
    /// Messages smaller than this many bytes go uncompressed: a header saved is not worth the work.
    package var threshold = 128

    package init() {}
  }

  /// Every message's compressed form ends with these bytes, which are not sent (§7.2.1).
  static let tail: [UInt8] = [0x00, 0x00, 0xFF, 0xFF]
  /// More scratch memory than this is not kept from message to message.
  private static var scratchKept: Int { 64 * 1024 }

  private let settings: Settings
  private var deflater: Deflater
  private var inflater: Inflater
  private var scratch = ByteQueue()

  /// Whether a message may have RSV1 set.
  let isAgreed: Bool

  init(_ agreed: Settings?) {
    settings = agreed ?? Settings()
    isAgreed = agreed != nil
    deflater = Deflater(
      windowBits: max(9, settings.outboundWindowBits), level: settings.level, memoryLevel: settings.memoryLevel)
    // A sender that was asked for window 8 and uses zlib uses 9 in truth; a larger window reads both.
    inflater = Inflater(.raw(windowBits: max(9, settings.inboundWindowBits)))
  }

  /// Bytes of memory held.
  var allocatedBytes: Int { deflater.allocatedBytes + inflater.allocatedBytes + scratch.allocatedBytes }

  // MARK: Sending

  func isWorthwhile(_ count: Int) -> Bool {
    isAgreed && count >= settings.threshold && settings.outboundWindowBits > 8
  }

  /// Compresses a message; false where it should go uncompressed after all. The result stands in `compressed`.
  mutating func compress(_ payload: Span<UInt8>) -> Bool {
    scratch.removeAll()
    if payload.isEmpty {
      // §7.2.3.6: one empty block. zlib writes nothing for nothing, from the second time on.
      scratch.append(0x00)
      return true
    }
    deflater.compress(payload, into: &scratch)
    scratch.removeLast(Self.tail.count)
    guard settings.outboundResets else { return true }
    deflater.reset()
    // Without a history to keep in step, what did not become smaller goes as it is.
    return scratch.count < payload.count
  }

  /// What `compress` made, until `endOutboundMessage()`.
  var compressed: Span<UInt8> {
    @_lifetime(borrow self)
    get { scratch.bytes }
  }

  mutating func endOutboundMessage() {
    if scratch.allocatedBytes > Self.scratchKept { scratch.releaseStorage() }
  }

  /// Begins an empty history. A sender may at any message: the receiver only needs what is referred to.
  mutating func forgetSentMessages() { deflater.reset() }

  mutating func releaseScratch() { scratch.releaseStorage() }

  // MARK: Receiving

  /// Appends what the first `count` bytes of `source` inflate to; `output` may hold at most `limit` bytes afterwards.
  mutating func inflate(
    _ count: Int, of source: borrowing ByteQueue, unmaskedBy key: MaskingKey?, into output: inout ByteQueue, limit: Int
  ) throws(InflateError) {
    let bytes = source.bytes.extracting(first: count)
    guard let key else { return try inflater.inflate(bytes, into: &output, limit: limit) }
    scratch.removeAll()
    key.append(bytes, to: &scratch)
    try Self.inflate(scratch, by: &inflater, into: &output, limit: limit)
  }

  private static func inflate(
    _ bytes: borrowing ByteQueue, by inflater: inout Inflater, into output: inout ByteQueue, limit: Int
  ) throws(InflateError) {
    try inflater.inflate(bytes.bytes, into: &output, limit: limit)
  }

  /// Ends a message: puts the tail back that was not sent (§7.2.2).
  mutating func endInboundMessage(into output: inout ByteQueue, limit: Int) throws(InflateError) {
    let tail = Self.tail
    try inflater.inflate(tail.span, into: &output, limit: limit)
    if settings.inboundResets { inflater.reset() }
  }
}
