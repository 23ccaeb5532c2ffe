import ByteStreams

/// The table of signals: what follows when an attempt failed or a connection was lost.
///
/// It remembers what came before, because most rows say 'once', 'in a row' or 'at most five times'; a stable connection
/// makes it forget.
package struct ReconnectPolicy: Sendable {
  /// Waits and counts of the table, each with its row.
  enum Constants {
    /// 429 and 503: bounds on what `Retry-After` may ask, and the least wait without it.
    static let retryAfter: ClosedRange<TimeSpan> = .seconds(1) ... .hours(1)
    static let overloaded: TimeSpan = .seconds(5)
    /// 403, 404 and their like from every URL, doubling: an upstream that is being deployed is back soon; otherwise a person has
    /// to change something.
    static let refusedPark: TimeSpan = .seconds(5)
    static let refusedParkCap: TimeSpan = .minutes(5)
    /// A close code that the configuration gives this meaning, and 1002 and its like too often.
    static let closedPark: TimeSpan = .minutes(5)
    /// 401 and 1008 with a fresh credential, doubling.
    static let deniedPark: TimeSpan = .seconds(60)
    static let deniedParkCap: TimeSpan = .minutes(10)
    /// 1001: the upstream's clients come back spread over this.
    static let goingAway: TimeSpan = .seconds(1)
    /// 1012: a restart takes a while, and everyone comes back.
    static let restart: ClosedRange<TimeSpan> = .seconds(5) ... .seconds(30)
    /// 1013.
    static let tryAgainLater: TimeSpan = .seconds(10)
    /// 1000 by the upstream, short-lived, in a row: from this one on it is a failure.
    static let shortClosures = 3
    /// 1002 and its like.
    static let protocolFailures = 5
    /// Where the kernel does not tell of a route's return, it is tried this often; no packet leaves the machine.
    static let offlineRetry: TimeSpan = .seconds(5)
  }

  enum Verdict: Equatable {
    case redial(after: TimeSpan)
    /// nil: until an operator says otherwise.
    case park(TimeSpan?)
    case offline(retryAfter: TimeSpan)

    /// Time to the next dial; nil where there is none.
    var wait: TimeSpan? {
      switch self {
      case .redial(after: let wait), .offline(retryAfter: let wait): wait
      case .park(let wait): wait
      }
    }
  }

  struct Decision: Equatable {
    var verdict: Verdict
    /// How long nobody may dial this host.
    var hostHold: TimeSpan?
    /// How long the session itself leaves this URL alone, where it has others, and when it dials one of those.
    var urlHold: TimeSpan?
    var elsewhere = TimeSpan.zero
    var attemptsExhausted = false
  }

  private let settings: SessionSettings
  private(set) var backoff: Backoff
  private(set) var endpoints: Endpoints
  /// Whether the next dial must read the credential anew.
  private(set) var refreshesCredential = false
  private(set) var offersCompression = true
  private var denials = 0
  /// Times in a row that every URL refused.
  private var refusals = 0
  private var shortClosures = 0
  private var protocolFailures = 0

  init(_ settings: SessionSettings) {
    self.settings = settings
    backoff = Backoff(settings.backoff)
    endpoints = Endpoints(settings.endpoints)
  }

  /// An operator or the network ended the wait: what was counted no longer holds.
  mutating func startAfresh() {
    backoff.reset()
    denials = 0
    refusals = 0
    shortClosures = 0
    protocolFailures = 0
  }

  /// The URL of a dial that begins now.
  mutating func chooseEndpoint(now: MonotonicTime) -> Int { endpoints.choose(now: now) }

  /// Leaves a URL alone for a time; answers when to dial the next.
  mutating func hold(
    _ endpoint: Int, for time: TimeSpan, elsewhereAfter delay: TimeSpan, now: MonotonicTime
  ) -> TimeSpan {
    endpoints.hold(endpoint, until: now + time)
    let soonest = endpoints.soonest(now: now)
    return soonest > now ? soonest - now : delay
  }

  /// A connection was ready for `time`. If it was stable, what was counted before it no longer holds.
  @discardableResult
  mutating func credit(readyFor time: TimeSpan) -> Bool {
    guard time > .zero, backoff.isStable(readyFor: time) else { return false }
    startAfresh()
    refreshesCredential = false
    return true
  }

  mutating func attemptFailed(
    _ failure: AttemptFailure, using generator: inout some RandomNumberGenerator
  ) -> Decision {
    switch failure.reason {
    case .noRoute:
      return Decision(verdict: .offline(retryAfter: Constants.offlineRetry))
    case .status(let status, let retryAfter):
      return answered(status, retryAfter: retryAfter, using: &generator)
    case .proxyDenied:
      // As 401: who asks again and again with the wrong password gets its account locked.
      return denied(using: &generator)
    case .redirect:
      return refused(using: &generator)
    case .denied:
      return denied(using: &generator)
    case .timedOut, .attemptTimedOut, .nameNotResolved, .network, .tls, .proxy, .handshake, .setupAnswer,
      .preparation:
      endpoints.advance()
      return backOff(using: &generator)
    }
  }

  private mutating func answered(
    _ status: Int, retryAfter: TimeSpan?, using generator: inout some RandomNumberGenerator
  ) -> Decision {
    switch status {
    case 401:
      return denied(using: &generator)
    case 429, 503:
      var decision = backOff(using: &generator)
      guard case .redial(after: let delay) = decision.verdict else { return decision }
      decision.elsewhere = delay
      guard let asked = retryAfter else {
        decision.urlHold = max(spread(Constants.overloaded, using: &generator), delay)
        return decision
      }
      let hold = min(max(asked, Constants.retryAfter.lowerBound), Constants.retryAfter.upperBound)
      // All who were told the same moment should not come at it together.
      let spread = Backoff.uniform(.zero, max(.seconds(1), hold / 10), using: &generator)
      decision.urlHold = hold + spread
      decision.hostHold = hold
      return decision
    case 408, 425:
      endpoints.advance()
      return backOff(using: &generator)
    case 300..<500:
      return refused(using: &generator)
    default:
      endpoints.advance()
      return backOff(using: &generator)
    }
  }

  /// A connection came to its end after it was ready for `readyFor`; zero if it never was.
  mutating func lost(
    _ loss: ConnectionLoss, readyFor: TimeSpan, using generator: inout some RandomNumberGenerator
  ) -> Decision {
    let stable = credit(readyFor: readyFor)
    switch loss {
    case .noRoute, .addressGone:
      return Decision(verdict: .offline(retryAfter: stable ? .zero : Constants.offlineRetry))
    case .closed, .ended, .reset, .silence, .heartbeat, .violation:
      break
    }
    let code = loss.code
    let rule = settings.closing.reaction(to: code)
    endpoints.connectionEnded(readyFor: readyFor, wantsNext: Self.wantsNext(after: code, rule, stable: stable))

    switch rule {
    case .refreshCredential: return denied(using: &generator)
    case .park: return Decision(verdict: .park(Constants.closedPark))
    case .stop: return Decision(verdict: .park(nil))
    case .backoff: return ordinary(stable: stable, using: &generator)
    case nil: break
    }
    switch code {
    case 1000:
      if stable { return quick(using: &generator) }
      shortClosures += 1
      return shortClosures < Constants.shortClosures ? quick(using: &generator) : backOff(using: &generator)
    case 1001:
      guard stable else { return backOff(using: &generator) }
      return Decision(verdict: .redial(after: Backoff.uniform(.zero, Constants.goingAway, using: &generator)))
    case 1008, 3000:
      return denied(using: &generator)
    case 1002, 1003, 1007, 1010:
      return protocolFailed(using: &generator)
    case 1012:
      let wait = Backoff.uniform(
        Constants.restart.lowerBound, Constants.restart.upperBound, using: &generator)
      return Decision(verdict: .redial(after: wait))
    case 1013:
      return backOff(atLeast: Constants.tryAgainLater, using: &generator)
    default:
      return ordinary(stable: stable, using: &generator)
    }
  }

  /// Whether an end with this code speaks against the URL it came from.
  private static func wantsNext(after code: UInt16, _ rule: CloseReaction?, stable: Bool) -> Bool {
    if let rule { return rule == .backoff && !stable }
    return switch code {
    case 1001, 1013: true
    case 1000, 1002, 1003, 1007, 1008, 1010, 1012, 3000: false
    default: !stable
    }
  }

  private mutating func ordinary(
    stable: Bool, using generator: inout some RandomNumberGenerator
  ) -> Decision {
    stable ? quick(using: &generator) : backOff(using: &generator)
  }

  private func quick(using generator: inout some RandomNumberGenerator) -> Decision {
    Decision(verdict: .redial(after: Backoff.uniform(.zero, settings.backoff.quickRedial, using: &generator)))
  }

  private mutating func backOff(
    atLeast least: TimeSpan = .zero, using generator: inout some RandomNumberGenerator
  ) -> Decision {
    guard let delay = backoff.nextDelay(using: &generator) else {
      return Decision(verdict: .park(nil), attemptsExhausted: true)
    }
    return Decision(verdict: .redial(after: max(spread(least, using: &generator), delay)))
  }

  /// A least wait, and up to a fifth more: else all to whom it applies would come back at one moment.
  private func spread(_ least: TimeSpan, using generator: inout some RandomNumberGenerator) -> TimeSpan {
    Backoff.uniform(least, least + least / 5, using: &generator)
  }

  private mutating func denied(using generator: inout some RandomNumberGenerator) -> Decision {
    defer { refreshesCredential = true }
    // The credential may have been rotated under us: that is worth one dial. A second refusal is an answer.
    guard refreshesCredential else { return quick(using: &generator) }
    defer { denials += 1 }
    return Decision(verdict: .park(Self.doubled(Constants.deniedPark, denials, cap: Constants.deniedParkCap)))
  }

  private mutating func refused(using generator: inout some RandomNumberGenerator) -> Decision {
    guard endpoints.refuseCurrent() else { return quick(using: &generator) }
    defer { refusals += 1 }
    return Decision(verdict: .park(Self.doubled(Constants.refusedPark, refusals, cap: Constants.refusedParkCap)))
  }

  private static func doubled(_ first: TimeSpan, _ times: Int, cap: TimeSpan) -> TimeSpan {
    min(first * (1 << Int64(min(times, 8))), cap)
  }

  private mutating func protocolFailed(using generator: inout some RandomNumberGenerator) -> Decision {
    protocolFailures += 1
    // Compression is what two implementations disagree about most. If it stays stable without, it stays without.
    offersCompression = protocolFailures != 1
    guard protocolFailures <= Constants.protocolFailures else {
      protocolFailures = 0
      return Decision(verdict: .park(Constants.closedPark))
    }
    return backOff(using: &generator)
  }
}
