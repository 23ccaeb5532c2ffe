import ByteStreams

/// Decides the next step after a failed attempt or a lost connection, by the *table of signals*: the rules that assign
/// the next step to each status code, error and close code.
///
/// The policy counts earlier failures, because most rules depend on these counts ('once', 'in a row', 'at most five
/// times'). A stable connection resets the counts.
package struct ReconnectPolicy: Sendable {
  /// Waits and limits of the table of signals. Each comment begins with the signals that the value concerns.
  enum Constants {
    /// 429 and 503: limits on the value of `Retry-After`, and the minimum wait without it.
    static let retryAfter: ClosedRange<TimeSpan> = .seconds(1) ... .hours(1)
    static let overloaded: TimeSpan = .seconds(5)
    /// 403, 404 and similar from every URL: how long the session is parked, doubled each time. The first period is
    /// short, since an upstream that is being deployed is soon available again. In other cases an operator must change
    /// something.
    static let refusedPark: TimeSpan = .seconds(5)
    static let refusedParkCap: TimeSpan = .minutes(5)
    /// A close code that the configuration maps to `park`, and 1002 and similar more than `protocolFailures` times: how
    /// long the session is parked.
    static let closedPark: TimeSpan = .minutes(5)
    /// 401 and 1008 with a fresh credential: how long the session is parked, doubled each time.
    static let deniedPark: TimeSpan = .seconds(60)
    static let deniedParkCap: TimeSpan = .minutes(10)
    /// 1001 and 1012: the session reconnects at a random moment within this time, so that an upstream's clients do not
    /// return together. An upstream that restarts may be available at once. If it is not, backoff follows.
    static let restart: TimeSpan = .seconds(1)
    /// 1013: the minimum wait before the next attempt.
    static let tryAgainLater: TimeSpan = .seconds(10)
    /// 1000 from the upstream on several short-lived connections in a row: the closure with this number, and each later
    /// closure, counts as a failure.
    static let shortClosures = 3
    /// 1002 and similar: how many such ends lead to another attempt before the session is parked.
    static let protocolFailures = 5
    /// Interval of attempts while there is no route, for kernels that do not report when a route returns. Without a
    /// route, an attempt sends no packet.
    static let offlineRetry: TimeSpan = .seconds(5)
  }

  enum Verdict: Equatable {
    case reconnect(after: TimeSpan)
    /// nil means until an operator opens the session.
    case park(TimeSpan?)
    case offline(retryAfter: TimeSpan)

    /// Time until the next attempt; nil if no attempt follows.
    var wait: TimeSpan? {
      switch self {
      case .reconnect(after: let wait), .offline(retryAfter: let wait): wait
      case .park(let wait): wait
      }
    }
  }

  struct Decision: Equatable {
    var verdict: Verdict
    /// How long no session may connect to this host.
    var hostPause: TimeSpan?
    /// How long this session does not use this URL. `otherURLDelay`: the wait before an attempt at another URL, if
    /// there is another URL.
    var urlPause: TimeSpan?
    var otherURLDelay = TimeSpan.zero
    var attemptsExhausted = false
  }

  private let settings: SessionSettings
  private(set) var backoff: Backoff
  private(set) var endpoints: Endpoints
  /// Whether the next attempt must read the credential again.
  private(set) var refreshesCredential = false
  private(set) var offersCompression = true
  private var denials = 0
  /// Number of consecutive rounds in which every URL refused.
  private var refusals = 0
  private var shortClosures = 0
  /// Whether a short-lived connection has ended with the reaction `reconnect` since the last stable connection.
  private var hasReconnected = false
  private var protocolFailures = 0

  init(_ settings: SessionSettings) {
    self.settings = settings
    backoff = Backoff(settings.backoff)
    endpoints = Endpoints(settings.endpoints)
  }

  /// Resets all counts. Called when an operator ended the wait, and after a stable connection.
  mutating func resetCounts() {
    backoff.reset()
    denials = 0
    refusals = 0
    shortClosures = 0
    hasReconnected = false
    protocolFailures = 0
  }

  /// The URL of an attempt that begins now.
  mutating func chooseEndpoint(now: MonotonicTime) -> Int { endpoints.choose(now: now) }

  /// Pauses a URL. Returns the wait until the next attempt.
  mutating func pause(
    _ endpoint: Int, for time: TimeSpan, otherURLDelay: TimeSpan, now: MonotonicTime
  ) -> TimeSpan {
    endpoints.pause(endpoint, until: now + time)
    let earliestAttempt = endpoints.earliestAttempt(now: now)
    return earliestAttempt > now ? earliestAttempt - now : otherURLDelay
  }

  /// Called when a connection was ready for `time`. If it was stable, resets the counts and returns true.
  @discardableResult
  mutating func recordConnection(readyFor time: TimeSpan) -> Bool {
    guard time > .zero, backoff.isStable(readyFor: time) else { return false }
    resetCounts()
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
      return statusReceived(status, retryAfter: retryAfter, using: &generator)
    case .proxyDenied:
      // A proxy that rejects the credentials is handled like a 401, since repeated attempts with a wrong password may
      // lock the account.
      return credentialsRejected(using: &generator)
    case .redirect, .wrongVersion:
      return urlRefused(using: &generator)
    case .denied:
      return credentialsRejected(using: &generator)
    case .timedOut, .attemptTimedOut, .nameNotResolved, .notAllowed, .network, .tls, .proxy, .handshake, .setupResponse,
      .preparation:
      endpoints.advance()
      return backOff(using: &generator)
    }
  }

  private mutating func statusReceived(
    _ status: Int, retryAfter: TimeSpan?, using generator: inout some RandomNumberGenerator
  ) -> Decision {
    switch status {
    case 401:
      return credentialsRejected(using: &generator)
    case 429, 503:
      var decision = backOff(using: &generator)
      guard case .reconnect(after: let delay) = decision.verdict else { return decision }
      decision.otherURLDelay = delay
      guard let requested = retryAfter else {
        decision.urlPause = max(spread(Constants.overloaded, using: &generator), delay)
        return decision
      }
      let pause = min(max(requested, Constants.retryAfter.lowerBound), Constants.retryAfter.upperBound)
      // Clients with the same Retry-After must not return together.
      let spread = Backoff.uniform(.zero, max(.seconds(1), pause / 10), using: &generator)
      decision.urlPause = pause + spread
      decision.hostPause = pause
      return decision
    case 408, 425:
      endpoints.advance()
      return backOff(using: &generator)
    case 300..<500:
      return urlRefused(using: &generator)
    default:
      endpoints.advance()
      return backOff(using: &generator)
    }
  }

  /// Decides the next step after the end of a connection that was ready for `readyFor`, which is zero if the connection
  /// never was ready.
  mutating func lost(
    _ loss: ConnectionLoss, readyFor: TimeSpan, using generator: inout some RandomNumberGenerator
  ) -> Decision {
    let stable = recordConnection(readyFor: readyFor)
    switch loss {
    case .noRoute, .addressGone:
      return Decision(verdict: .offline(retryAfter: stable ? .zero : Constants.offlineRetry))
    case .closed, .ended, .reset, .silence, .stalled, .heartbeat, .violation:
      break
    }
    let code = loss.code
    let reaction = settings.closing.reaction(to: loss)
    endpoints.connectionEnded(readyFor: readyFor, shouldAdvance: shouldAdvance(after: code, reaction, stable: stable))

    switch reaction {
    case .reconnect, .forget: return reconnectAtOnce(stable: stable, using: &generator)
    case .refreshCredential: return credentialsRejected(using: &generator)
    case .park: return Decision(verdict: .park(Constants.closedPark))
    case .stop: return Decision(verdict: .park(nil))
    case .backoff: return reconnectAfterLoss(stable: stable, using: &generator)
    case nil: break
    }
    switch code {
    case 1000:
      if stable { return quickReconnect(using: &generator) }
      shortClosures += 1
      return shortClosures < Constants.shortClosures ? quickReconnect(using: &generator) : backOff(using: &generator)
    case 1001:
      guard stable else { return backOff(using: &generator) }
      return Decision(verdict: .reconnect(after: Backoff.uniform(.zero, Constants.restart, using: &generator)))
    case 1008, 3000:
      return credentialsRejected(using: &generator)
    case 1002, 1003, 1007, 1010:
      return protocolFailed(using: &generator)
    case 1013:
      return backOff(atLeast: Constants.tryAgainLater, using: &generator)
    default:
      return reconnectAfterLoss(stable: stable, using: &generator)
    }
  }

  /// Whether this close code is a reason to use the next URL.
  private func shouldAdvance(after code: UInt16, _ reaction: CloseReaction?, stable: Bool) -> Bool {
    switch reaction {
    case .reconnect, .forget: return !stable && hasReconnected
    case .backoff: return !stable
    case .refreshCredential, .park, .stop: return false
    case nil: break
    }
    return switch code {
    case 1001, 1013: true
    case 1000, 1002, 1003, 1007, 1008, 1010, 3000: false
    default: !stable
    }
  }

  /// Connects within a second. After two short-lived connections in a row, backoff applies.
  private mutating func reconnectAtOnce(
    stable: Bool, using generator: inout some RandomNumberGenerator
  ) -> Decision {
    guard stable || !hasReconnected else { return backOff(using: &generator) }
    hasReconnected = !stable
    return Decision(verdict: .reconnect(after: Backoff.uniform(.zero, Constants.restart, using: &generator)))
  }

  private mutating func reconnectAfterLoss(
    stable: Bool, using generator: inout some RandomNumberGenerator
  ) -> Decision {
    stable ? quickReconnect(using: &generator) : backOff(using: &generator)
  }

  private func quickReconnect(using generator: inout some RandomNumberGenerator) -> Decision {
    Decision(verdict: .reconnect(after: Backoff.uniform(.zero, settings.backoff.quickReconnect, using: &generator)))
  }

  private mutating func backOff(
    atLeast least: TimeSpan = .zero, using generator: inout some RandomNumberGenerator
  ) -> Decision {
    guard let delay = backoff.nextDelay(using: &generator) else {
      return Decision(verdict: .park(nil), attemptsExhausted: true)
    }
    return Decision(verdict: .reconnect(after: max(spread(least, using: &generator), delay)))
  }

  /// Returns `least` plus up to a fifth of it, so that the affected clients do not return together.
  private func spread(_ least: TimeSpan, using generator: inout some RandomNumberGenerator) -> TimeSpan {
    Backoff.uniform(least, least + least / 5, using: &generator)
  }

  private mutating func credentialsRejected(using generator: inout some RandomNumberGenerator) -> Decision {
    defer { refreshesCredential = true }
    // The credential may have been rotated, so one more attempt is made. After a second rejection, the session is
    // parked.
    guard refreshesCredential else { return quickReconnect(using: &generator) }
    defer { denials += 1 }
    return Decision(verdict: .park(Self.doubled(Constants.deniedPark, denials, cap: Constants.deniedParkCap)))
  }

  private mutating func urlRefused(using generator: inout some RandomNumberGenerator) -> Decision {
    guard endpoints.recordRefusal() else { return quickReconnect(using: &generator) }
    defer { refusals += 1 }
    return Decision(verdict: .park(Self.doubled(Constants.refusedPark, refusals, cap: Constants.refusedParkCap)))
  }

  private static func doubled(_ first: TimeSpan, _ times: Int, cap: TimeSpan) -> TimeSpan {
    min(first * (1 << Int64(min(times, 8))), cap)
  }

  private mutating func protocolFailed(using generator: inout some RandomNumberGenerator) -> Decision {
    protocolFailures += 1
    // Implementations disagree most often about compression, so the attempt after the first failure does not offer it.
    // If that connection is stable, compression stays off.
    offersCompression = protocolFailures != 1
    guard protocolFailures <= Constants.protocolFailures else {
      protocolFailures = 0
      return Decision(verdict: .park(Constants.closedPark))
    }
    return backOff(using: &generator)
  }
}
