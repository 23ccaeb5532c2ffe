import ByteStreams

/// Heartbeats that are messages, for upstreams that ask for them; nothing of it is on by default.
package struct HeartbeatSettings: Sendable, Equatable {
  /// Time between two heartbeats of ours; nil: none is sent.
  package var interval: TimeSpan?
  /// Time within which each must be answered; nil: no answer is expected.
  package var timeout: TimeSpan?
  /// How often the upstream's own must come at least; nil: they are not watched.
  package var within: TimeSpan?

  package init() {}
}

/// The heartbeats of one connection: when ours are due, and whether the upstream's answers, or its own, stay away.
///
/// It is part of the connection's state, so that none outlives its socket.
struct ApplicationHeartbeat: Sendable {
  private let settings: HeartbeatSettings
  private var nextBeat: MonotonicTime
  /// When the oldest of ours that has no answer went out.
  private var unansweredSince: MonotonicTime?
  /// When the upstream's last one came, or the connection became ready.
  private var lastTheirs: MonotonicTime
  /// How many of ours went out.
  private var counter: UInt64 = 0

  init(_ settings: HeartbeatSettings, now: MonotonicTime) {
    self.settings = settings
    lastTheirs = now
    nextBeat = settings.interval.map { now + $0 } ?? .distantFuture
  }

  /// The moment at which `check` is to be asked next.
  var nextDeadline: MonotonicTime { min(nextBeat, deadline) }

  private var deadline: MonotonicTime {
    var deadline = MonotonicTime.distantFuture
    if let within = settings.within { deadline = lastTheirs + within }
    if let timeout = settings.timeout, let since = unansweredSince { deadline = min(deadline, since + timeout) }
    return deadline
  }

  enum Verdict: Equatable {
    case alive
    /// Send one; it is the counter's.
    case beat(UInt64)
    case dead
  }

  mutating func check(now: MonotonicTime) -> Verdict {
    if now >= deadline { return .dead }
    guard let interval = settings.interval, now >= nextBeat else { return .alive }
    nextBeat = now + interval
    counter += 1
    if unansweredSince == nil { unansweredSince = now }
    return .beat(counter)
  }

  /// One of ours was answered, and with it all before it.
  mutating func answered() { unansweredSince = nil }

  /// One of the upstream's has come.
  mutating func heard(now: MonotonicTime) { lastTheirs = now }
}
