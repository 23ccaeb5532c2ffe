import ByteStreams

/// How long a gateway that is not heard of keeps its sessions. Its entry has `lease`, so gateways with different times may run side by side.
package struct LeaseTimes: Hashable, Sendable {
  /// Others take the sessions of a gateway whose entry has not changed for so long, or for as long as their own lease if that is longer.
  package var lease: TimeSpan
  /// A gateway stops so much earlier. With a fifth of the lease, each clock may run 11 % too fast or too slow (margin / (2 × lease − margin)).
  package var margin: TimeSpan
  /// Between two heartbeats.
  package var interval: TimeSpan
  /// How often the entries of gateways are read before a session is created that nobody was to create first. Redis may have lost one whose holder
  /// has not noticed it, and does with its next heartbeat.
  package var readingsBeforeCreation: UInt64 = 3

  /// The longest lease of another gateway that counts, so that a wrong entry does not keep sessions for ever.
  package static let maximumLease = TimeSpan.seconds(600)

  /// - Parameter margin: nil: a fifth of the lease, and at least a second, since the socket must be closed within it too.
  package init(
    lease: TimeSpan = .seconds(5), margin: TimeSpan? = nil, interval: TimeSpan = .milliseconds(250)
  ) {
    self.lease = lease
    self.margin = margin ?? max(lease / 5, .seconds(1))
    self.interval = interval
  }
}

/// The heartbeat of this gateway, and its deadline: until then no other gateway acquires a session that it holds, and it may write to upstreams.
package struct Heartbeat: Sendable {
  package let times: LeaseTimes
  /// Until when this gateway may write.
  package private(set) var deadline = MonotonicTime.zero
  /// How often a deadline has passed. What was held before it has to be acquired again.
  package private(set) var lapses: UInt64 = 0
  /// The number of the last heartbeat that was sent.
  package private(set) var beat: UInt64 = 0
  private var isLapsed = true
  private var next = MonotonicTime.zero
  /// When the heartbeat was sent whose outcome is not known.
  private var sent: MonotonicTime?

  package init(_ times: LeaseTimes = LeaseTimes()) { self.times = times }

  /// When to call `send`; nil: after the outcome of the last one.
  package var nextTime: MonotonicTime? { sent == nil ? next : nil }

  /// The next heartbeat is sent now. Returns its number.
  package mutating func send(now: MonotonicTime) -> UInt64 {
    sent = now
    next = now + times.interval
    beat += 1
    return beat
  }

  /// The entry has changed: the next heartbeat is due at once, or after the outcome of the last one.
  package mutating func hasten() { next = .zero }

  /// The reply to the last heartbeat.
  ///
  /// - Parameter isConfirmed: whether the script and WAIT have succeeded. The time counts from when it was sent.
  package mutating func finished(isConfirmed: Bool, now: MonotonicTime) {
    // First, since this process may have been stopped for longer than its lease.
    check(now: now)
    guard let sent else { return }
    self.sent = nil
    guard isConfirmed else { return }
    deadline = max(deadline, sent + times.lease - times.margin)
    isLapsed = now >= deadline
  }

  /// The connection was lost: the outcome of the last heartbeat is never known.
  package mutating func disconnected() { sent = nil }

  /// To be called at `deadline`, and before anything is decided. Returns whether the deadline has passed since the last call: every upstream
  /// socket is closed at once.
  @discardableResult
  package mutating func check(now: MonotonicTime) -> Bool {
    guard !isLapsed, now >= deadline else { return false }
    isLapsed = true
    lapses += 1
    return true
  }

  /// Whether this gateway is before its deadline.
  package func isValid(now: MonotonicTime) -> Bool { !isLapsed && now < deadline }
}
