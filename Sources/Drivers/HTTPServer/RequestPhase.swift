import ByteStreams

/// The part of a request that a connection expects next from its client. This determines the deadline.
enum RequestPhase {
  /// The connection has been waiting for the next request since this time.
  case idle(MonotonicTime)
  /// The head of a request is incomplete. The value is the time of its first byte, or the time of accept().
  case head(MonotonicTime)
  case body(TransferPace)

  func deadline(_ timeouts: ConnectionTimeouts) -> MonotonicTime {
    switch self {
    case .idle(let since): since + timeouts.idle
    case .head(let since): since + timeouts.head
    case .body(let pace): pace.deadline(pause: timeouts.body, minimumRate: timeouts.bodyMinimumRate)
    }
  }

  /// The time since which the client has been silent, if no byte of the next request has arrived. nil while a body
  /// arrives.
  var idleStart: MonotonicTime? {
    switch self {
    case .idle(let since), .head(let since): since
    case .body: nil
    }
  }

  /// Records that bytes have arrived. If the connection was idle, they are the beginning of a head.
  mutating func beginHead(at now: MonotonicTime) { if case .idle = self { self = .head(now) } }

  /// Called when the last response has been written. Restarts the timeout, even if a part of the next head has already
  /// arrived.
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
