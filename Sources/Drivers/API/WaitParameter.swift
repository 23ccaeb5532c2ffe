import ByteStreams
import HTTPCodec

/// How long a request may be held. The same rule applies to all requests that can wait.
enum WaitParameter {
  /// The time that is subtracted from the timeout of a proxy, so that the response arrives before the timeout. If the
  /// timeout is shorter than a second, half of it is subtracted.
  private static let proxyMargin = TimeSpan.milliseconds(500)

  /// The shortest time for which a request waits for the store, which usually takes milliseconds. It is needed because
  /// a request may already have waited for a take-over, which with the longest lease takes longer than `API.storeWait`.
  private static let leastStoreWait = TimeSpan.seconds(5)

  /// Returns the wait of a request whose only query parameter is `wait`: from the query, else from `Prefer: wait=n`,
  /// else `standard`.
  static func read(
    _ request: borrowing HTTPRequestHead, default standard: TimeSpan, maximum: TimeSpan
  ) throws(Problem) -> TimeSpan {
    var wait: TimeSpan?
    try QueryParameter.forEach(of: request, accepting: [.wait]) { _, value throws(Problem) in
      wait = try read(value)
    }
    let granted = granted(wait ?? preference(of: request) ?? standard, for: request, maximum: maximum)
    return left(of: granted, for: request)
  }

  /// Parses the value of the query parameter.
  static func read(_ value: Span<UInt8>) throws(Problem) -> TimeSpan {
    guard let wait = TimeSpan(value) else {
      throw Problem(
        .invalidParameter,
        "wait '\(value.excerpt())' is not valid: use a duration such as 25s, 500ms, 1m30s or whole seconds, of at most 2147483648 s, or 0 for a response at once"
      )
    }
    return wait
  }

  /// Returns the wait in `Prefer: wait=n` (RFC 7240 §4.3), or nil.
  static func preference(of request: borrowing HTTPRequestHead) -> TimeSpan? {
    HTTPPreferences(request.fields).wait.map { .seconds(Int64($0)) }
  }

  /// Limits `wait` to `maximum`, unless `maximum` is nil, and to the timeout of a proxy on the path.
  static func granted(
    _ wait: TimeSpan, for request: borrowing HTTPRequestHead, maximum: TimeSpan? = nil
  ) -> TimeSpan {
    let wait = min(wait, maximum ?? wait)
    // A sidecar proxy states its timeout in this field. A response that is sent after the timeout would be lost.
    guard let timeout = milliseconds(.xEnvoyExpectedTimeout, of: request), timeout > .zero else { return wait }
    return min(wait, timeout - min(proxyMargin, timeout / 2))
  }

  /// The remaining part of the `wait` that a client has requested, after the time that it has already waited at, or
  /// for, a gateway.
  static func left(of wait: TimeSpan, for request: borrowing HTTPRequestHead) -> TimeSpan {
    guard let waited = milliseconds(.drawbridgeWaited, of: request) else { return wait }
    return max(.zero, wait - waited)
  }

  /// The longest possible wait of a request that another gateway validates.
  static func longest(
    _ request: borrowing HTTPRequestHead, default standard: TimeSpan, _ settings: APISettings.Delivery
  ) -> TimeSpan {
    var wait: TimeSpan?
    QueryParameter.forEachUnvalidated(of: request) { parameter, value in
      guard parameter == .wait else { return }
      // A value that cannot be parsed here is taken as the longest wait.
      wait = max(wait ?? .zero, TimeSpan(value) ?? settings.maximumWait)
    }
    return granted(wait ?? preference(of: request) ?? standard, for: request, maximum: settings.maximumWait)
  }

  /// How long a request may wait until its changes are stored. A request that has waited long for a holder still gets
  /// `leastStoreWait`, unless a proxy on the path does not allow that.
  static func storeWait(for request: borrowing HTTPRequestHead) -> TimeSpan {
    let own = max(leastStoreWait, left(of: API.storeWait, for: request))
    return min(own, left(of: granted(TimeSpan(nanoseconds: .max), for: request), for: request))
  }

  /// How long the client has already waited at, or for, another gateway. Zero if this gateway got the request from a
  /// client directly.
  static func waited(_ request: borrowing HTTPRequestHead) -> TimeSpan {
    milliseconds(.drawbridgeWaited, of: request) ?? .zero
  }

  private static func milliseconds(_ field: HTTPFieldName, of request: borrowing HTTPRequestHead) -> TimeSpan? {
    request.fields.first(field)?.decimalValue().map { .milliseconds(Int64(clamping: min($0, 1 << 40))) }
  }
}
