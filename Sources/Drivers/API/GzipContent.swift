import ByteStreams
import Deflate

/// The content of a gzip body.
enum GzipContent {
  /// The maximum ratio of sizes that DEFLATE can achieve.
  static var maximumRatio: Int { 1_032 }
  /// Up to this size of the content, in bytes, the ratio is not limited.
  private static var freeBytes: Int { 1 << 20 }

  /// - Parameters:
  ///   - limit: the setting `http.body_bytes`.
  ///   - ratio: the setting `http.inflation_ratio`.
  static func decode(_ bytes: Span<UInt8>, limit: Int, ratio: Int) throws(Problem) -> [UInt8] {
    let allowed = allowed(bytes.count, limit: limit, ratio: ratio)
    var inflater = Inflater(.gzipOrZlib)
    var output = ByteQueue()
    do throws(InflateError) {
      try inflater.inflate(bytes, into: &output, limit: allowed)
    } catch {
      switch error {
      case .malformed:
        throw Problem(
          .unsupportedEncoding, "the body is not gzip data: send it as Content-Encoding says, or without that field")
      case .tooLarge where allowed < limit:
        throw Problem(
          .contentTooLarge,
          "the body of \(bytes.count) bytes decompresses to more than \(ratio) times as much (the setting http.inflation_ratio): send it without compression"
        )
      case .tooLarge:
        throw Problem(
          .contentTooLarge, "the body decompresses to more than \(limit) bytes (the setting http.body_bytes): send less"
        )
      }
    }
    guard inflater.hasEnded else { throw Problem(.unsupportedEncoding, "the gzip data in the body is incomplete") }
    return output.copyBytes()
  }

  /// The maximum size, in bytes, of the content of a body.
  private static func allowed(_ compressed: Int, limit: Int, ratio: Int) -> Int {
    let (byRatio, overflows) = compressed.multipliedReportingOverflow(by: ratio)
    return overflows ? limit : min(limit, max(byRatio, freeBytes))
  }
}
