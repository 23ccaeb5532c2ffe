import ByteStreams
import Deflate

/// permessage-deflate as agreed on for one connection (RFC 7692 §7).
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

  private let settings: Settings
  private var deflater: Deflater
  private var inflater: Inflater

  init(_ settings: Settings) {
    self.settings = settings
    deflater = Deflater(
      windowBits: max(9, settings.outboundWindowBits), level: settings.level, memoryLevel: settings.memoryLevel)
    inflater = Inflater(.raw(windowBits: settings.inboundWindowBits))
  }

  func isWorthwhile(_ count: Int) -> Bool { count >= settings.threshold && settings.outboundWindowBits > 8 }

  mutating func compress(_ payload: Span<UInt8>, into output: inout ByteQueue) {
    var scratch = ByteQueue()
    deflater.compress(payload, into: &scratch)
    let end = scratch.count - Self.tail.count
    precondition(end >= 0, "a sync flush ends with four known bytes")
    output.append(scratch.bytes.extracting(first: end))
    // §7.2.3.6: an empty message is one empty block.
    if end == 0 { output.append(0x00) }
    if settings.outboundResets { deflater.reset() }
  }

  mutating func inflate(_ bytes: Span<UInt8>, into output: inout ByteQueue, limit: Int) throws(InflateError) {
    try inflater.inflate(bytes, into: &output, limit: limit)
  }

  mutating func endInboundMessage() {
    if settings.inboundResets { inflater.reset() }
  }
}
