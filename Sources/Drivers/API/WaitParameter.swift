import ByteStreams
import HTTPCodec

/// How long a request may be held: one rule for all that can wait.
enum WaitParameter {
  /// Subtracted from what a proxy grants, for the way back.
  private static let proxyMargin = TimeSpan.milliseconds(500)

  /// The wait of a request whose only query parameter is `wait`: from there, from `Prefer: wait=n`, or else `standard`.
  static func read(
    _ request: borrowing HTTPRequestHead, default standard: TimeSpan, maximum: TimeSpan
  ) throws(ProblemError) -> TimeSpan {
    var query = HTTPQueryReader(request.query)
    var wait: TimeSpan?
    while true {
      do throws(HTTPQueryError) {
        guard try query.next() else { break }
      } catch {
        throw ProblemError(.invalidParameter, error.description)
      }
      guard query.name.equals("wait") else {
        throw ProblemError(.invalidParameter, "'\(query.name.excerpt())' is no parameter of this path; there is wait")
      }
      guard wait == nil else { throw ProblemError(.invalidParameter, "'wait' is in the query twice; give it once") }
      wait = try read(query.value)
    }
    return granted(wait ?? preference(of: request) ?? standard, for: request, maximum: maximum)
  }

  /// The value of the query parameter.
  static func read(_ value: Span<UInt8>) throws(ProblemError) -> TimeSpan {
    guard let wait = TimeSpan(value) else {
      throw ProblemError(
        .invalidParameter, "'wait' takes a duration such as 25s, 500ms, 1m30s or whole seconds; 0 answers now")
    }
    return wait
  }

  /// What `Prefer: wait=n` asks for (RFC 7240 §4.3).
  static func preference(of request: borrowing HTTPRequestHead) -> TimeSpan? {
    HTTPPreferences(request.fields).wait.map { .seconds(Int64($0)) }
  }

  /// The part of `wait` that the configuration and a proxy on the way allow.
  static func granted(_ wait: TimeSpan, for request: borrowing HTTPRequestHead, maximum: TimeSpan) -> TimeSpan {
    let wait = min(wait, maximum)
    // A mesh's sidecar says how long it will wait for us: a response after that is lost on the way.
    guard let expected = request.fields.first(.xEnvoyExpectedTimeout)?.decimalValue(), expected > 0 else { return wait }
    let granted = TimeSpan.milliseconds(Int64(clamping: min(expected, 1 << 40))) - proxyMargin
    return min(wait, max(granted, .zero))
  }
}
