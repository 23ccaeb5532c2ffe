import ByteStreams

package struct LivenessSettings: Sendable, Equatable {
  /// Time between two pings, ± `jitter`. Below the idle limits of the proxies people have (30 to 60 s).
  package var interval: TimeSpan = .seconds(20)
  /// Share of the interval by which it varies, so that sessions do not ping in step.
  package var jitter = 0.1
  /// How long the upstream may stay silent once a ping is out.
  package var timeout: TimeSpan = .seconds(10)
  /// Off only for an upstream that breaks on pings.
  package var isEnabled = true

  package init() {}
}

/// Whether the peer of one connection is still there: pings, their deadline, the round trip.
///
/// Any inbound byte renews the deadline: a peer that is busy sending is alive although its pong is late.
/// Hearing a byte costs one store; nothing is rescheduled. The deadline is computed when it is asked for.
package struct Liveness: Sendable {
  private let settings: LivenessSettings
  private var nextPing: MonotonicTime
  private var lastHeard: MonotonicTime
  /// When the oldest ping that has no answer went out.
  private var unansweredSince: MonotonicTime?
  /// The last counter that was given out; counters begin at 1.
  private var counter: UInt64 = 0
  /// The ping whose round trip is being measured.
  private var probe: (counter: UInt64, sent: MonotonicTime)?
  package private(set) var roundTrip: TimeSpan?

  package init(
    _ settings: LivenessSettings, now: MonotonicTime, using generator: inout some RandomNumberGenerator
  ) {
    self.settings = settings
    lastHeard = now
    nextPing = .distantFuture
    planPing(after: now, using: &generator)
  }

  /// Whether pings may be sent.
  var isEnabled: Bool { settings.isEnabled }

  /// A byte has come from the peer.
  @inline(__always)
  package mutating func heard(now: MonotonicTime) { lastHeard = now }

  /// The moment at which `check` is to be asked next.
  package var nextDeadline: MonotonicTime {
    guard let dead = deadline else { return nextPing }
    let half = dead - settings.timeout / 2
    // Past the half there is only the end, or a byte, to wait for; `check` is what tells the two apart.
    return min(nextPing, isQuiet ? dead : half)
  }

  /// Whether `check` has said `quiet` and no byte has come since.
  package private(set) var isQuiet = false

  package enum Verdict: Equatable, Sendable {
    case alive
    /// Send a ping with this counter.
    case ping(UInt64)
    /// Half of the deadline has passed.
    case quiet
    case dead
  }

  package mutating func check(now: MonotonicTime, using generator: inout some RandomNumberGenerator) -> Verdict {
    if let dead = deadline {
      if now >= dead { return .dead }
      if now >= dead - settings.timeout / 2 {
        if !isQuiet {
          isQuiet = true
          return .quiet
        }
      }
    }
    guard now >= nextPing else { return .alive }
    return .ping(takePing(now: now, using: &generator))
  }

  /// A counter for a ping that goes out now, be it for liveness or as a barrier behind messages.
  package mutating func takePing(now: MonotonicTime, using generator: inout some RandomNumberGenerator) -> UInt64 {
    counter += 1
    if unansweredSince == nil { unansweredSince = now }
    if probe == nil { probe = (counter, now) }
    planPing(after: now, using: &generator)
    return counter
  }

  /// A counter for the ping right before our close frame: its pong tells which messages arrived, which no answer to the
  /// close frame does, since the peer's own may have crossed ours. nil where pings are off.
  mutating func takeLastPing() -> UInt64? {
    guard settings.isEnabled else { return nil }
    counter += 1
    return counter
  }

  /// A pong came. It answers its ping and every one before it (RFC 6455 §5.5.3). False for one that nobody asked for.
  package mutating func ponged(_ answered: UInt64, now: MonotonicTime) -> Bool {
    guard answered > 0, answered <= counter else { return false }
    if let probe, answered >= probe.counter {
      // A later pong than the probe's own would overstate the round trip, and is left out.
      if answered == probe.counter { roundTrip = now - probe.sent }
      self.probe = nil
    }
    // Where newer pings are open, the byte that brought this pong has renewed their deadline too.
    unansweredSince = answered == counter ? nil : now
    return true
  }

  /// Notes that a byte ended a quiet time; true when there was one.
  package mutating func endQuiet() -> Bool {
    defer { isQuiet = false }
    return isQuiet
  }

  private var deadline: MonotonicTime? {
    guard settings.isEnabled, let since = unansweredSince else { return nil }
    return max(since, lastHeard) + settings.timeout
  }

  private mutating func planPing(after now: MonotonicTime, using generator: inout some RandomNumberGenerator) {
    guard settings.isEnabled else { return }
    let spread = TimeSpan(nanoseconds: Int64(Double(settings.interval.nanoseconds) * settings.jitter))
    nextPing = now + Backoff.uniform(settings.interval - spread, settings.interval + spread, using: &generator)
  }
}
