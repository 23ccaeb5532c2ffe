import ByteStreams

/// What it means to execute a forwarded request twice.
package enum ForwardingRepetition: Sendable {
  /// The same as once: GET, PUT, DELETE, PATCH of a state.
  case harmless
  /// As `harmless`, and this gateway responds alone if no holder does: the request does not wait for one, and each is asked once.
  case optional
  /// Holders execute it once, because they remember its id.
  case recognised
  /// It would be done twice: a call, a receive.
  case harmful

  package var isHarmless: Bool { self == .harmless || self == .optional }
}

/// Decides what is done next with one request that another gateway must serve: send it to the holder of its session, wait for the next one,
/// pass the response on, or give up.
///
///     switch machine.next(holder: …, now: …) {
///     case .send(let peer): … if machine.begin(…) … then machine.ended(…)
///     case .wait(let end): … until there is another holder, or `end`
///     case .end(let failure): …
///     }
package struct ForwardingMachine<Peer: Equatable & Sendable>: Sendable {
  package struct Limits: Sendable {
    /// How long a request waits for a holder that serves it, and for a connection with one, in all. The time for which a holder has the request
    /// does not count.
    package var patience: TimeSpan
    /// How long until a holder that did not serve the request is asked again, as long as there is no other one.
    package var pause = TimeSpan.milliseconds(100)
    /// For how long after a holder may have got it a `recognised` request is sent again. Shorter than holders remember its id.
    package var recognition: TimeSpan

    package init(patience: TimeSpan, recognition: TimeSpan) {
      self.patience = patience
      self.recognition = recognition
    }
  }

  package enum Step: Equatable, Sendable {
    case send(Peer)
    /// Until the session has another holder, at most until this time.
    case wait(until: MonotonicTime)
    case end(Failure)
  }

  package enum Failure: Equatable, Sendable {
    /// Nothing was done, or doing it again is harmless.
    case unavailable
    /// It may have been done, and what came of it is not known.
    case unknown
  }

  /// How sending the request to a peer ended.
  package enum Attempt: Equatable, Sendable {
    case response(status: Int)
    /// The peer has not received all of it.
    case unreached
    /// The peer may have received all of it, and there is no complete response.
    case lost
    /// As `lost`, because the peer has not responded in time. That time counts as a wait: the peer may hang, and the next attempt too.
    case expired
  }

  /// The status with which a gateway says that it is not the holder. No other response has it.
  package static var misdirected: Int { 421 }
  /// The status of a repetition while the holder still works on an earlier one.
  private static var inProgress: Int { 409 }

  package let repetition: ForwardingRepetition
  private let limits: Limits
  /// The last peer, which is not to be asked again before `resume` unless there was another one in between.
  private var avoided: Peer?
  private var resume = MonotonicTime.zero
  private var current: Peer?
  /// When the wait for a holder ends. nil: there was no reason to wait yet.
  private var patienceEnd: MonotonicTime?
  /// When the last attempt was begun.
  private var begun = MonotonicTime.zero
  /// When the first attempt was begun that a holder may have executed.
  private var firstLost: MonotonicTime?

  package init(_ repetition: ForwardingRepetition, _ limits: Limits) {
    self.repetition = repetition
    self.limits = limits
  }

  /// Whether an attempt that has ended without a response may have been executed.
  package var mayHaveBeenExecuted: Bool { firstLost != nil }

  /// Whether it would be done twice if it was sent again.
  private func mustNotBeSent(at now: MonotonicTime) -> Bool {
    guard let firstLost else { return false }
    return switch repetition {
    case .harmless, .optional: false
    case .recognised: now >= firstLost + limits.recognition
    case .harmful: true
    }
  }

  /// What to give up with.
  package var failure: Failure { mayHaveBeenExecuted && !repetition.isHarmless ? .unknown : .unavailable }

  /// - Parameter holder: nil if the session has none at present.
  package mutating func next(holder: Peer?, now: MonotonicTime) -> Step {
    if mustNotBeSent(at: now) { return .end(.unknown) }
    if let patienceEnd, now >= patienceEnd { return .end(failure) }
    if repetition == .optional, holder == nil || holder == avoided { return .end(.unavailable) }
    if holder != avoided { avoided = nil }
    if let holder, avoided == nil || now >= resume {
      current = holder
      return .send(holder)
    }
    let end = beginWaiting(at: now)
    return .wait(until: holder == nil ? end : min(end, resume))
  }

  /// There is a connection with the peer of `.send`. Returns false if the request must not be sent any more; then `next` follows.
  package mutating func begin(at now: MonotonicTime) -> Bool {
    begun = now
    return !mustNotBeSent(at: now)
  }

  /// The attempt has ended. Returns whether its response is that to the client; otherwise `next` follows.
  package mutating func ended(_ attempt: Attempt, now: MonotonicTime) -> Bool {
    switch attempt {
    case .response(Self.misdirected): resumeWaiting(at: now)
    // The client has sent it once.
    case .response(Self.inProgress) where repetition == .recognised && mayHaveBeenExecuted: break
    case .response: return true
    case .unreached: break
    case .lost:
      firstLost = firstLost ?? begun
      resumeWaiting(at: now)
    case .expired: firstLost = firstLost ?? begun
    }
    (avoided, resume) = (current, now + limits.pause)
    _ = beginWaiting(at: now)
    return false
  }

  /// The time for the request is over. What to give up with.
  ///
  /// - Parameter isSent: whether an attempt is in progress that the peer may have received.
  package func expired(isSent: Bool) -> Failure {
    isSent && !repetition.isHarmless ? .unknown : failure
  }

  /// A holder has had the request since the attempt was begun.
  private mutating func resumeWaiting(at now: MonotonicTime) {
    if let end = patienceEnd { patienceEnd = end + (now - begun) }
  }

  /// The request waits for a holder, or for a connection with one. Returns when that wait ends.
  package mutating func beginWaiting(at now: MonotonicTime) -> MonotonicTime {
    let end = patienceEnd ?? now + limits.patience
    patienceEnd = end
    return end
  }
}
