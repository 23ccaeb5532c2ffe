import ByteStreams

/// The duration of a gateway's tenure without a heartbeat, and the times that follow from it. A gateway's entry has its
/// `lease`, so gateways with different settings may run side by side.
package struct TenureTimes: Hashable, Sendable {
  /// Other gateways acquire the sessions of a gateway whose entry has not changed for this time, or for their own
  /// `lease` if that is longer.
  package var lease: TimeSpan
  /// A gateway stops writing this long before its `lease` has passed. With a fifth of `lease`, each gateway's clock may
  /// run 11 % too fast or too slow (margin / (2 × lease − margin)).
  package var margin: TimeSpan
  /// The time between two heartbeats.
  package var interval: TimeSpan
  /// How many times this gateway reads the entries of all gateways before it acquires a session that Redis does not
  /// have, unless a client of this gateway has created the session. Redis may have lost such a session. Its holder
  /// notices the loss with its next heartbeat, and restores the session.
  package var readingsBeforeCreation: UInt64 = 3

  /// The longest `lease` that is accepted in another gateway's entry, so that a wrong entry does not block sessions for
  /// ever.
  package static let longestTenure = TimeSpan.seconds(600)

  /// - Parameter margin: nil for a fifth of `lease`, but at least a second, since the socket must be closed within the
  ///   margin.
  package init(
    lease: TimeSpan = .seconds(5), margin: TimeSpan? = nil, interval: TimeSpan = .milliseconds(250)
  ) {
    self.lease = lease
    self.margin = margin ?? max(lease / 5, .seconds(1))
    self.interval = interval
  }
}

/// The heartbeat of this gateway, and its deadline. Before the deadline, this gateway may write to upstreams, and no
/// other gateway acquires its sessions.
package struct Heartbeat: Sendable {
  package let times: TenureTimes
  /// The time until which this gateway may write.
  package private(set) var deadline = MonotonicTime.zero
  /// The number of deadlines that have passed. A session that was acquired before such a deadline must be acquired
  /// again.
  package private(set) var lapses: UInt64 = 0
  /// The number of the last heartbeat that was sent.
  package private(set) var beat: UInt64 = 0
  private var isLapsed = true
  private var next = MonotonicTime.zero
  /// When the pending heartbeat was sent; nil if none is pending.
  private var sent: MonotonicTime?

  package init(_ times: TenureTimes = TenureTimes()) { self.times = times }

  /// When to call `send`; nil while a heartbeat is pending.
  package var nextTime: MonotonicTime? { sent == nil ? next : nil }

  /// Called when a heartbeat is sent. Returns its number.
  package mutating func send(now: MonotonicTime) -> UInt64 {
    sent = now
    next = now + times.interval
    beat += 1
    return beat
  }

  /// Called when the entry has changed. Makes the next heartbeat due at once, or after the outcome of the pending
  /// heartbeat.
  package mutating func hasten() { next = .zero }

  /// Called with the outcome of the last heartbeat.
  ///
  /// - Parameter isConfirmed: whether the script and WAIT have succeeded. The new deadline counts from the time of
  ///   sending.
  package mutating func finished(isConfirmed: Bool, now: MonotonicTime) {
    // The deadline is checked first, since this process may have been stopped until its tenure expired.
    check(now: now)
    guard let sent else { return }
    self.sent = nil
    guard isConfirmed else { return }
    deadline = max(deadline, sent + times.lease - times.margin)
    isLapsed = now >= deadline
  }

  /// Called when the connection was lost. The outcome of the pending heartbeat stays unknown.
  package mutating func disconnected() { sent = nil }

  /// Must be called at `deadline`, and before each decision. Returns whether the deadline has passed since the last
  /// call. If it has, all upstream sockets must be closed at once.
  @discardableResult
  package mutating func check(now: MonotonicTime) -> Bool {
    guard !isLapsed, now >= deadline else { return false }
    isLapsed = true
    lapses += 1
    return true
  }

  /// Whether the deadline of this gateway has not passed.
  package func isValid(now: MonotonicTime) -> Bool { !isLapsed && now < deadline }
}
