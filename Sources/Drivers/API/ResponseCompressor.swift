import ByteStreams
import Deflate
import HTTPCodec
import HTTPServer

/// Compresses the content of responses with gzip.
///
/// One per loop. Its memory, 268 KiB and a buffer, is allocated for the first response that is compressed.
struct ResponseCompressor: ~Copyable {
  /// Level 1, since it runs on the loop: a response of 1 MiB takes about as long as 100 polls without compression.
  private var deflater = Deflater(.gzip, windowBits: 15, level: 1, memoryLevel: 8)
  private var output = ByteQueue()

  /// Smaller content, in bytes, is not compressed: it fits into one packet anyway.
  static var minimumBytes: Int { 1_024 }
  /// Larger content, in bytes, is not compressed, since it would block the loop. A poll with the default `max_bytes` is below it.
  static var maximumBytes: Int { 2 << 20 }
  /// A larger buffer, in bytes, is released after use.
  private static var retainedBytes: Int { 256 << 10 }

  /// Compresses the content of `response` if the client accepts it and it has a suitable size.
  mutating func compress(_ response: inout Response, _ coding: HTTPAcceptedCodings) {
    guard coding == .gzip || coding == .gzipOnly else { return }
    let size = response.content.count
    guard size > 0, size >= Self.minimumBytes || coding == .gzipOnly, size <= Self.maximumBytes else { return }
    output.removeAll()
    response.content.forEachPiece { deflater.append($0, into: &output) }
    deflater.finish(into: &output)
    deflater.reset()
    if output.count < size || coding == .gzipOnly {
      response.content.removeAll()
      response.content.text.append(output.bytes)
      response.fields.append("Content-Encoding: gzip\r\n" as StaticString)
    }
    if output.allocatedBytes > Self.retainedBytes { output.releaseStorage() }
  }
}
