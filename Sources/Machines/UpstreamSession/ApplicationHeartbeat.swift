import ByteStreams

/// Heartbeats sent as messages, for upstreams that require them. All are off by default.
package struct HeartbeatSettings: Sendable, Equatable {
  /// Time between two heartbeats that the gateway sends; nil to send none.
  package var interval: TimeSpan?
  /// How long the upstream may take to respond to each heartbeat; nil if no response is expected.
  package var timeout: TimeSpan?
  /// Maximum time between two heartbeats of the upstream; nil for no limit.
  package var within: TimeSpan?

  package init() {}
}

/// The heartbeats of one connection: when to send the next heartbeat, and whether a response or a heartbeat of the
/// upstream is overdue.
///
/// The value is part of the connection's state, so no heartbeat outlives its socket.
struct ApplicationHeartbeat: Sendable {
  private var settings: HeartbeatSettings
  private var nextBeat: MonotonicTime
  /// The deadline of the response to the oldest heartbeat of the gateway that has no response.
  private var awaited: ResponseDeadline?
  /// The output position of the newest heartbeat whose response has certainly arrived.
  private var answered: UInt64 = 0
  /// When the upstream's last heartbeat arrived, or the connection became ready.
  private var lastReceived: MonotonicTime
  /// Number of heartbeats that the gateway sent.
  private var counter: UInt64 = 0

  init(_ settings: HeartbeatSettings, now: MonotonicTime) {
    self.settings = settings
    lastReceived = now
    nextBeat = settings.interval.map { now + $0 } ?? .distantFuture
  }

  /// Changes the time between two heartbeats. The next heartbeat follows the last by this time.
  mutating func change(interval: TimeSpan, now: MonotonicTime) {
    guard let old = settings.interval else { return }
    settings.interval = interval
    nextBeat = max(now, nextBeat + interval - old)
  }

  /// Whether heartbeats are sent.
  var sends: Bool { settings.interval != nil }

  /// When `check` must be called next.
  var nextDeadline: MonotonicTime { min(nextBeat, deadline) }

  private var deadline: MonotonicTime {
    var deadline = MonotonicTime.distantFuture
    if let within = settings.within { deadline = lastReceived + within }
    if let awaited { deadline = min(deadline, awaited.deadline) }
    return deadline
  }

  enum Verdict: Equatable {
    case alive
    /// Send the heartbeat with this counter.
    case beat(UInt64)
    case dead
  }

  mutating func check(now: MonotonicTime) -> Verdict {
    if now >= deadline { return .dead }
    guard let interval = settings.interval, now >= nextBeat else { return .alive }
    nextBeat = now + interval
    counter += 1
    if awaited == nil, let timeout = settings.timeout {
      awaited = ResponseDeadline(timeout, from: now, received: answered, isLimited: false)
    }
    return .beat(counter)
  }

  /// Called when a response to one of the gateway's heartbeats has arrived. One response counts for all heartbeats that
  /// were sent before it arrived.
  mutating func responseReceived() {
    answered = awaited?.position ?? answered
    awaited = nil
  }

  /// Records that the gateway's last heartbeat was queued behind the bytes before `position`.
  mutating func queued(at position: UInt64) { awaited?.queued(through: position) }

  /// Records that output was acknowledged. The upstream cannot respond before it has received everything that was sent
  /// before the heartbeat.
  mutating func outputAcknowledged(through position: UInt64, at time: MonotonicTime) {
    awaited?.acknowledged(through: position, at: time)
  }

  /// Called while the gateway does not read from the connection. There may be unread heartbeats of the upstream, so the
  /// deadlines start again.
  mutating func readingIsPaused(now: MonotonicTime) {
    lastReceived = now
    awaited?.renew(at: now)
  }

  /// Called when a heartbeat of the upstream arrived.
  mutating func heartbeatReceived(now: MonotonicTime) { lastReceived = now }
}
