import ByteStreams
import HTTPCodec

/// The Retry-After field: seconds, or a date (RFC 9110 §10.2.3).
package enum RetryAfter {
  /// How long to wait; zero for a date in the past, and nil if `value` is neither seconds nor a date.
  ///
  /// - Parameter date: the Date field of the response. The wait is computed from this date, so that the clocks of the
  ///   gateway and of the server need not agree.
  /// - Parameter now: seconds since 1970, for a response without Date.
  package static func parse(_ value: String, date: String? = nil, now: Int64) -> TimeSpan? {
    let text = Array(value.utf8)
    if let seconds = text.span.deltaSeconds() { return .seconds(Int64(seconds)) }
    guard let moment = HTTPDate.parse(text.span, now: now) else { return nil }
    let sent = date.flatMap { HTTPDate.parse(Array($0.utf8).span, now: now) } ?? now
    return .seconds(min(max(0, moment - sent), maximumSeconds))
  }

  /// The maximum of `delta-seconds` (RFC 9111 §1.2.2). It is also applied to dates, since a date may be thousands of
  /// years in the future.
  private static let maximumSeconds: Int64 = 1 << 31
}
