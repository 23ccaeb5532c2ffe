import ByteStreams

/// What a connection expects from its client. It determines the deadline.
enum RequestPhase {
  /// The next request, since this time.
  case idle(MonotonicTime)
  /// The rest of a head, since its first byte or since accept.
  case head(MonotonicTime)
  case body(TransferPace)

  func deadline(_ timeouts: ConnectionTimeouts) -> MonotonicTime {
    switch self {
    case .idle(let since): since + timeouts.idle
    case .head(let since): since + timeouts.head
    case .body(let pace): pace.deadline(pause: timeouts.body, minimumRate: timeouts.bodyMinimumRate)
    }
  }

  /// The time since which the client has sent nothing. Valid only if no byte of a request has arrived; nil while a body
  /// arrives.
  var idleStart: MonotonicTime? {
    switch self {
    case .idle(let since), .head(let since): since
    case .body: nil
    }
  }

  /// Records that bytes have arrived. Between two requests they begin a head.
  mutating func beginHead(at now: MonotonicTime) { if case .idle = self { self = .head(now) } }

  /// Restarts the timeout when the last response has been written, also if the head of the next request has begun to
  /// arrive.
  mutating func restart(at now: MonotonicTime, isReceiving: Bool) {
    if case .idle = self { self = isReceiving ? .head(now) : .idle(now) }
  }

  /// Records that `count` bytes of content have arrived.
  mutating func advance(by count: Int, at now: MonotonicTime) {
    guard case .body(var pace) = self else { return }
    pace.advance(by: count, at: now)
    self = .body(pace)
  }
}
