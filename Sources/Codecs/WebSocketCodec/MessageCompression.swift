import ByteStreams
import Deflate

/// The state of permessage-deflate on one connection (RFC 7692 §7). Unless both sides have agreed on it, no message is
/// compressed.
///
/// A direction needs no memory before its first compressed message. After that, it needs the memory that `Deflater` or
/// `Inflater` documents.
package struct MessageCompression: ~Copyable {
  /// The agreed parameters, and the effort of the compressor.
  package struct Settings: Hashable, Sendable {
    /// Window bits for sending, 8...15. zlib cannot compress with 8, so with 8 all messages are sent uncompressed.
    package var outboundWindowBits = 12
    /// Whether each sent message starts with an empty compression history.
    package var outboundResets = false
    package var inboundWindowBits = 15
    package var inboundResets = false
    /// zlib's compression level, 1...9.
    package var level = 6
    /// zlib's memory level, 1...9. See `Deflater` for its cost.
    package var memoryLevel = 5
    /// Messages of fewer bytes are sent uncompressed, since compression would save only a few bytes.
    package var threshold = 128
    /// A larger message is sent uncompressed, unless it was compressed ahead in parts (`compressAhead`).
    package var largestAtOnce = Int.max
    /// After at least this many decompressed bytes, `WebSocketConnection` pauses.
    package var inflatedAtOnce = Int.max

    package init() {}
  }

  /// The end of every compressed message, which is not sent (§7.2.1).
  static let tail: [UInt8] = [0x00, 0x00, 0xFF, 0xFF]
  /// The scratch buffer is freed after a message if it has more than this many bytes.
  private static var scratchKept: Int { 64 * 1024 }

  private let settings: Settings
  private var deflater: Deflater
  private var inflater: Inflater
  private var scratch = ByteQueue()
  /// The message that is being compressed ahead. It is a separate object, so that the many connections without such a
  /// message stay small.
  private var ahead: MessageAhead?

  /// Whether permessage-deflate was agreed on. If so, RSV1 may be set.
  let isAgreed: Bool

  init(_ agreed: Settings?) {
    settings = agreed ?? Settings()
    isAgreed = agreed != nil
    deflater = Deflater(
      windowBits: max(9, settings.outboundWindowBits), level: settings.level, memoryLevel: settings.memoryLevel)
    // A sender that uses zlib, and has agreed on a window of 8 bits, compresses with 9 bits. A window of 9 bits
    // decompresses messages of both sizes.
    inflater = Inflater(.raw(windowBits: max(9, settings.inboundWindowBits)))
  }

  /// Allocated memory in bytes.
  var allocatedBytes: Int {
    deflater.allocatedBytes + inflater.allocatedBytes + scratch.allocatedBytes + (ahead?.output.allocatedBytes ?? 0)
  }

  // MARK: Sending

  private var compresses: Bool { isAgreed && settings.outboundWindowBits > 8 }

  /// Whether a message of `count` bytes is to be compressed.
  ///
  /// - Parameter number: the message's number if it may have been compressed ahead, otherwise nil.
  func isWorthwhile(_ count: Int, _ number: UInt64?) -> Bool {
    guard compresses, count >= settings.threshold else { return false }
    // While a message is compressed in parts, no other message may change the compression history.
    if let ahead { return ahead.isComplete && ahead.number == number && ahead.count == count }
    return count <= settings.largestAtOnce
  }

  /// The size of the largest message that need not be compressed ahead.
  var largestAtOnce: Int { compresses ? settings.largestAtOnce : .max }

  var inflatedAtOnce: Int { settings.inflatedAtOnce }

  /// The number of the message that is compressed ahead, and whether all of it has been compressed.
  var messageAhead: (number: UInt64, isComplete: Bool)? { ahead.map { ($0.number, $0.isComplete) } }

  /// Compresses the next part of a message that will be sent later. All earlier messages must have been sent. Messages
  /// that are sent before this message is complete are not compressed.
  mutating func compressAhead(_ payload: Span<UInt8>, _ number: UInt64, atMost size: Int) {
    if let ahead, ahead.number != number { resetHistory() }
    let message = ahead ?? MessageAhead(number)
    ahead = message
    let end = min(message.count + size, payload.count)
    guard message.count < end else { return }
    let part = payload.extracting(message.count..<end)
    if end < payload.count {
      deflater.append(part, into: &message.output)
    } else {
      deflater.compress(part, into: &message.output)
      message.isComplete = true
    }
    message.count = end
  }

  /// Compresses a message into `compressed`. Returns false if the message should be sent uncompressed.
  mutating func compress(_ payload: Span<UInt8>) -> Bool {
    scratch.removeAll()
    if payload.isEmpty {
      // §7.2.3.6: an empty message is one empty block. It is written here, since zlib writes no bytes for empty input
      // after a flush.
      scratch.append(0x00)
      return true
    }
    if let ahead {
      // `isWorthwhile` has verified that `ahead` is this message.
      swap(&scratch, &ahead.output)
      self.ahead = nil
    } else {
      deflater.compress(payload, into: &scratch)
    }
    scratch.removeLast(Self.tail.count)
    guard settings.outboundResets else { return true }
    deflater.reset()
    // A message that did not become smaller is sent uncompressed. This is possible because the compression history is
    // reset anyway, so the receiver misses nothing.
    return scratch.count < payload.count
  }

  /// The output of `compress`, valid until `endOutboundMessage()`.
  var compressed: Span<UInt8> {
    @_lifetime(borrow self)
    get { scratch.bytes }
  }

  /// Removes and returns the output of `compress`.
  mutating func takeCompressed() -> ByteQueue {
    var taken = ByteQueue()
    swap(&taken, &scratch)
    return taken
  }

  mutating func endOutboundMessage() {
    if scratch.allocatedBytes > Self.scratchKept { scratch.releaseStorage() }
  }

  /// Resets the compression history. A sender may do so before any message, because the receiver needs only the history
  /// to which a message refers.
  mutating func resetHistory() {
    deflater.reset()
    ahead = nil
  }

  mutating func releaseScratch() { scratch.releaseStorage() }

  // MARK: Receiving

  /// Decompresses the first `count` bytes of `source` and appends the result. Throws if `output` would have more than
  /// `limit` bytes.
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

  /// Ends a message: decompresses the tail that was not sent (§7.2.2).
  mutating func endInboundMessage(into output: inout ByteQueue, limit: Int) throws(InflateError) {
    // A sender must add a zero byte after a final block (§7.2.3.4). Some senders do not, for example if they use
    // Node's `deflateRawSync`. Without that byte, the message is complete, and the tail would be read as the beginning
    // of a block.
    if !inflater.isAfterFinalBlock {
      let tail = Self.tail
      try inflater.inflate(tail.span, into: &output, limit: limit)
    }
    if settings.inboundResets { inflater.reset() }
  }
}

/// A message that is compressed ahead, in parts, and the result so far.
private final class MessageAhead {
  let number: UInt64
  /// Bytes of the message that have been compressed.
  var count = 0
  var isComplete = false
  var output = ByteQueue()

  init(_ number: UInt64) { self.number = number }
}
