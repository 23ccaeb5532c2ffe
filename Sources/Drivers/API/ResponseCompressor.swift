import ByteStreams
import Deflate
import HTTPCodec
import HTTPServer

/// Compresses the content of responses with gzip.
///
/// Each loop has its own compressor. The memory of a compressor, 268 KiB and a buffer, is allocated for the first
/// response that is compressed.
struct ResponseCompressor: ~Copyable {
  /// Uses the fastest level, 1, since it runs on the loop.
  private var deflater = Deflater(.gzip, windowBits: 15, level: 1, memoryLevel: 8)
  private var output = ByteQueue()
  /// The time until which the content that was compressed so far has used up the loop's time for compression. Each byte
  /// uses up `timePerByte`.
  private var paidUntil = MonotonicTime.zero

  /// Content below this size, in bytes, is not compressed, since it fits into one packet anyway.
  static var minimumBytes: Int { 1_024 }
  /// Content above this size, in bytes, is not compressed, since its compression would block the loop. The response to
  /// a poll with the default `max_bytes`, 1 MiB, is smaller.
  static var maximumBytes: Int { 1_088 << 10 }
  /// A buffer above this size, in bytes, is released after use.
  private static var retainedBytes: Int { 256 << 10 }
  /// The time that each compressed byte uses up. So a loop compresses at most 1 MiB in 32 ms, on average. zlib needs 4
  /// to 10 ms for 1 MiB, so most of the loop's time is left for other requests.
  private static var timePerByte: TimeSpan { .nanoseconds(32) }
  /// The content, in bytes, that a loop may compress in advance of this average. Its compression takes 1 to 3 ms.
  static var burstBytes: Int { 256 << 10 }

  /// Whether there is time to compress a response. If not, responses are sent uncompressed, even to clients that accept
  /// only gzip.
  func hasTime(at now: MonotonicTime) -> Bool {
    paidUntil < now + Self.timePerByte * Int64(Self.burstBytes)
  }

  /// Compresses the content of `response` if the client accepts gzip, the content has a suitable size, and there is
  /// time. Returns whether the content is compressed now.
  @discardableResult
  mutating func compress(
    _ response: inout Response, _ coding: HTTPAcceptedCodings, at now: MonotonicTime
  ) -> Bool {
    guard coding == .gzip || coding == .gzipOnly, hasTime(at: now) else { return false }
    let size = response.content.count
    guard size > 0, size >= Self.minimumBytes || coding == .gzipOnly, size <= Self.maximumBytes else { return false }
    paidUntil = max(paidUntil, now) + Self.timePerByte * Int64(size)
    output.removeAll()
    response.content.forEachPiece { deflater.append($0, into: &output) }
    deflater.finish(into: &output)
    deflater.reset()
    let isSmaller = output.count < size || coding == .gzipOnly
    if isSmaller {
      response.content.removeAll()
      response.content.text.append(output.bytes)
      response.fields.append("Content-Encoding: gzip\r\n" as StaticString)
    }
    if output.allocatedBytes > Self.retainedBytes { output.releaseStorage() }
    return isSmaller
  }
}
