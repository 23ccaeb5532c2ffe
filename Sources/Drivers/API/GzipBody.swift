import ByteStreams
import Deflate
import HTTPServer

/// The content of a gzip body, decompressed in slices when it has arrived.
///
/// A few KiB can decompress to a thousand times as much, so the work of a turn is limited by what comes out as well as by what goes in: other requests are
/// served between two slices.
final class GzipBody: BodyPreparation {
  /// Input of a slice. It limits the work for members without content.
  private static var sliceInput: Int { 64 << 10 }
  /// A slice ends when it has so much output. About a millisecond.
  private static var sliceOutput: Int { 512 << 10 }
  /// Input that is decompressed at once: at most 256 KiB of output, since DEFLATE cannot exceed a ratio of 1,032.
  private static var step: Int { 256 }
  /// Up to this size, no ratio is too high.
  private static var freeBytes: Int { 1 << 20 }

  private var inflater = Inflater(.gzipOrZlib)
  private var output = ByteQueue()
  private var offset = 0
  private var error: InflateError?
  /// `http.body_bytes` and `http.inflation_ratio`.
  private let limit: Int
  private let ratio: Int

  init(limit: Int, ratio: Int) {
    self.limit = limit
    self.ratio = ratio
  }

  /// Bytes of content so far.
  var count: Int { output.count }

  var heldBytes: Int { output.allocatedBytes + inflater.allocatedBytes }

  /// The content of a body may have so many bytes.
  private func allowed(_ compressed: Int) -> Int {
    let (byRatio, overflows) = compressed.multipliedReportingOverflow(by: ratio)
    return overflows ? limit : min(limit, max(byRatio, Self.freeBytes))
  }

  func advance(_ bytes: Span<UInt8>) -> Bool {
    let allowed = allowed(bytes.count)
    let (firstInput, firstOutput) = (offset, output.count)
    while error == nil, offset < bytes.count, offset - firstInput < Self.sliceInput,
      output.count - firstOutput < Self.sliceOutput
    {
      let end = min(bytes.count, offset + Self.step)
      do throws(InflateError) {
        try inflater.inflate(bytes.extracting(offset..<end), into: &output, limit: allowed)
      } catch {
        self.error = error
        output.releaseStorage()
      }
      offset = end
    }
    return error == nil && offset < bytes.count
  }

  /// The content. Finishes what is left.
  func content(of bytes: [UInt8]) throws(ProblemError) -> [UInt8] {
    while advance(bytes.span) {}
    switch error {
    case nil: break
    case .malformed:
      throw ProblemError(
        .unsupportedEncoding, "the body is not gzip data: send it as Content-Encoding says, or without that field")
    case .tooLarge where allowed(bytes.count) < limit:
      throw ProblemError(
        .contentTooLarge,
        "the body of \(bytes.count) bytes decompresses to more than \(ratio) times as much (the setting http.inflation_ratio): send it without compression"
      )
    case .tooLarge:
      throw ProblemError(
        .contentTooLarge, "the body decompresses to more than \(limit) bytes (the setting http.body_bytes): send less")
    }
    guard inflater.hasEnded else { throw ProblemError(.unsupportedEncoding, "the gzip data in the body is incomplete") }
    defer { output.releaseStorage() }
    return output.copyBytes()
  }
}
