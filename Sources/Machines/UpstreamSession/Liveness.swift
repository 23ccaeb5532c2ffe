import ByteStreams

package struct LivenessSettings: Sendable, Equatable {
  /// Time between two pings, ± `jitter`. The default is below the usual idle timeouts of proxies (30 to 60 s).
  package var interval: TimeSpan = .seconds(20)
  /// Fraction by which the interval varies, so that sessions do not ping in step.
  package var jitter = 0.1
  /// How long the upstream may stay silent after a ping. The timeout starts again whenever the upstream acknowledges
  /// output that was sent before the ping.
  package var timeout: TimeSpan = .seconds(10)
  /// False only for an upstream that fails on pings.
  package var isEnabled = true
  /// Whether a connection without pongs is dead. False if the protocol has heartbeats of its own, since some servers of
  /// such a protocol do not respond to pings.
  package var endsConnection = true

  package init() {}
}

/// Checks that the peer of one connection is alive. It schedules the pings, keeps the deadline of their pongs, and
/// measures the round trip.
///
/// Any inbound byte renews the deadline: a peer that is busy sending is alive even if its pong is late. An
/// acknowledgement of output that was sent before the ping also renews the deadline (`ResponseDeadline`). Recording a
/// byte costs one write to memory and reschedules no timer, since the deadline is computed on demand.
package struct Liveness: Sendable {
  private let settings: LivenessSettings
  private var nextPing: MonotonicTime
  private var lastReceived: MonotonicTime
  /// The awaited pong. It is the pong to the oldest unanswered ping. When that pong arrives while newer pings are
  /// unanswered, the pong to the newest of them is awaited next.
  private var awaited: (counter: UInt64, response: ResponseDeadline)?
  /// Output positions: `newest` of the newest ping, and `answered` of the newest ping whose pong has certainly arrived.
  private var newest: UInt64 = 0
  private var answered: UInt64 = 0
  /// The last counter assigned; counters begin at 1.
  private var counter: UInt64 = 0
  /// The ping whose round trip is being measured.
  private var probe: (counter: UInt64, sent: MonotonicTime)?
  package private(set) var roundTrip: TimeSpan?

  package init(
    _ settings: LivenessSettings, now: MonotonicTime, using generator: inout some RandomNumberGenerator
  ) {
    self.settings = settings
    lastReceived = now
    nextPing = .distantFuture
    planPing(after: now, using: &generator)
  }

  /// Whether pings may be sent.
  var isEnabled: Bool { settings.isEnabled }

  /// Called when bytes arrive from the peer.
  @inline(__always)
  package mutating func bytesReceived(now: MonotonicTime) { lastReceived = now }

  /// When `check` must be called next.
  package var nextDeadline: MonotonicTime {
    guard let dead = deadline else { return nextPing }
    let half = dead - settings.timeout / 2
    // Once `check` has returned `quiet`, it need not be called again before the deadline.
    return min(nextPing, isQuiet ? dead : half)
  }

  /// Whether `check` has returned `quiet` and no byte has arrived since.
  package private(set) var isQuiet = false

  package enum Verdict: Equatable, Sendable {
    case alive
    /// Send a ping with this counter.
    case ping(UInt64)
    /// Half of the timeout has passed without a byte.
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

  /// Returns a counter for a ping that is sent now, either for liveness or as a barrier after messages.
  package mutating func takePing(now: MonotonicTime, using generator: inout some RandomNumberGenerator) -> UInt64 {
    counter += 1
    if awaited == nil { awaitPong(now: now) }
    if probe == nil { probe = (counter, now) }
    planPing(after: now, using: &generator)
    return counter
  }

  /// Returns a counter for the ping right before the gateway's close frame; nil if pings are off. The pong to this ping
  /// shows that all earlier messages have arrived. The upstream's close frame does not show this, since the two close
  /// frames may have crossed.
  mutating func takeLastPing() -> UInt64? {
    guard settings.isEnabled else { return nil }
    counter += 1
    return counter
  }

  /// Called when a pong arrived. A pong responds to its ping and to every earlier ping (RFC 6455 §5.5.3). Returns false
  /// for an unsolicited pong.
  package mutating func pongReceived(_ acknowledged: UInt64, now: MonotonicTime) -> Bool {
    guard acknowledged > 0, acknowledged <= counter else { return false }
    if let probe, acknowledged >= probe.counter {
      // The pong to a ping after the probe would overstate the round trip, so no round trip is measured.
      if acknowledged == probe.counter { roundTrip = now - probe.sent }
      self.probe = nil
    }
    // Any inbound byte renews the deadline. So this pong also renews the deadline of a newer unanswered ping.
    awaited?.response.renew(at: now)
    if let awaited, acknowledged >= awaited.counter {
      answered = awaited.response.position ?? answered
      self.awaited = nil
      if acknowledged < counter { awaitPong(position: newest, now: now) }
    }
    return true
  }

  private mutating func awaitPong(position: UInt64? = nil, now: MonotonicTime) {
    let response = ResponseDeadline(
      settings.timeout, from: now, received: answered, position: position, isLimited: false)
    awaited = (counter, response)
  }

  // MARK: The output

  /// Records that the last ping was queued behind the bytes before `position`.
  mutating func pingQueued(at position: UInt64) {
    newest = position
    awaited?.response.queued(through: position)
  }

  mutating func outputAcknowledged(through position: UInt64, at time: MonotonicTime) {
    awaited?.response.acknowledged(through: position, at: time)
  }

  /// The upstream has received every byte before this position; nil if no pings are sent, since only a pong shows that.
  var receivedOutput: UInt64? { settings.isEnabled ? answered : nil }

  /// Whether the upstream has yet to acknowledge output from before the ping.
  var isBeingSent: Bool { awaited?.response.isBeingSent ?? false }

  /// Whether the upstream has shown a sign of life since `check` returned `quiet`.
  func isRenewed(now: MonotonicTime) -> Bool {
    isQuiet && deadline.map { now < $0 - settings.timeout / 2 } ?? true
  }

  /// Called when a byte arrived. Returns whether it ended a quiet period.
  package mutating func endQuiet() -> Bool {
    defer { isQuiet = false }
    return isQuiet
  }

  private var deadline: MonotonicTime? {
    guard settings.isEnabled, settings.endsConnection, let awaited else { return nil }
    return awaited.response.deadline(renewedAt: lastReceived)
  }

  private mutating func planPing(after now: MonotonicTime, using generator: inout some RandomNumberGenerator) {
    guard settings.isEnabled else { return }
    let spread = TimeSpan(nanoseconds: Int64(Double(settings.interval.nanoseconds) * settings.jitter))
    nextPing = now + Backoff.uniform(settings.interval - spread, settings.interval + spread, using: &generator)
  }
}
