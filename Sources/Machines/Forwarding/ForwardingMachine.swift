import ByteStreams

/// The effect of executing a forwarded request twice.
package enum ForwardingRepetition: Sendable {
  /// Two executions have the same effect as one: GET, PUT, DELETE, PATCH of a state.
  case harmless
  /// Like `harmless`, and this gateway can respond without the holder: the request does not wait for a holder, and is
  /// sent to each holder only once.
  case optional
  /// Holders execute it once, because they remember its id.
  case recognised
  /// The effect would occur twice: a call, a receive.
  case harmful

  package var isHarmless: Bool { self == .harmless || self == .optional }
}

/// Decides the next step for one request that another gateway must serve: send it to the holder of its session, wait
/// for the next holder, pass the response on, or give up.
///
///     switch machine.next(holder: …, now: …) {
///     case .send(let peer): … if machine.begin(…) … then machine.ended(…)
///     case .wait(let end): … until there is another holder, or `end`
///     case .end(let failure): …
///     }
package struct ForwardingMachine<Peer: Equatable & Sendable>: Sendable {
  package struct Limits: Sendable {
    /// How long a request waits in total for a holder that serves it, and for a connection to a holder. The time during
    /// which a holder has the request does not count.
    package var patience: TimeSpan
    /// The pause before a holder that did not serve the request is tried again, as long as it is still the holder.
    package var pause = TimeSpan.milliseconds(100)
    /// How long a `recognised` request is sent again, from the first attempt that a holder may have received. It is
    /// shorter than the time for which holders remember the request's id.
    package var recognition: TimeSpan

    package init(patience: TimeSpan, recognition: TimeSpan) {
      self.patience = patience
      self.recognition = recognition
    }
  }

  package enum Step: Equatable, Sendable {
    case send(Peer)
    /// Wait until the session has another holder, at most until this time.
    case wait(until: MonotonicTime)
    case end(Failure)
  }

  package enum Failure: Equatable, Sendable {
    /// Nothing was done, or repeating the request is harmless.
    case unavailable
    /// The request may have been executed, with an unknown outcome.
    case unknown
  }

  /// How sending the request to a peer ended.
  package enum Attempt: Equatable, Sendable {
    case response(status: Int)
    /// The peer has not received the whole request.
    case unreached
    /// The peer may have received the whole request, and there is no complete response.
    case lost
    /// Like `lost`, because the peer has not responded in time. That time counts as a wait: the peer may hang, and the
    /// next attempt may hang, too.
    case expired
  }

  /// The status of a gateway that is not the holder. No other response has it.
  package static var misdirected: Int { 421 }
  /// The status of a repetition while the holder still executes an earlier attempt.
  private static var inProgress: Int { 409 }

  package let repetition: ForwardingRepetition
  private let limits: Limits
  /// The last peer. It is not tried again before `resume`, unless another gateway has been the holder since the
  /// attempt.
  private var avoided: Peer?
  private var resume = MonotonicTime.zero
  private var current: Peer?
  /// When the wait for a holder ends; nil if the request has not waited yet.
  private var patienceEnd: MonotonicTime?
  /// When the last attempt began.
  private var begun = MonotonicTime.zero
  /// The start of the first attempt that a holder may have executed.
  private var firstLost: MonotonicTime?

  package init(_ repetition: ForwardingRepetition, _ limits: Limits) {
    self.repetition = repetition
    self.limits = limits
  }

  /// Whether an attempt that has ended without a response may have been executed.
  package var mayHaveBeenExecuted: Bool { firstLost != nil }

  /// Whether sending the request again could execute it twice.
  private func mustNotBeSent(at now: MonotonicTime) -> Bool {
    guard let firstLost else { return false }
    return switch repetition {
    case .harmless, .optional: false
    case .recognised: now >= firstLost + limits.recognition
    case .harmful: true
    }
  }

  /// The failure to report when giving up.
  package var failure: Failure { mayHaveBeenExecuted && !repetition.isHarmless ? .unknown : .unavailable }

  /// - Parameter holder: nil if the session has no holder at present.
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

  /// Begins an attempt, on a connection to the peer of `.send`. Returns false if the request must no longer be sent. In
  /// this case the caller calls `next`.
  package mutating func begin(at now: MonotonicTime) -> Bool {
    begun = now
    return !mustNotBeSent(at: now)
  }

  /// Ends the attempt. Returns whether to pass its response on to the client. If not, the caller calls `next`.
  package mutating func ended(_ attempt: Attempt, now: MonotonicTime) -> Bool {
    switch attempt {
    case .response(Self.misdirected): resumeWaiting(at: now)
    // The client has sent the request only once, so this response to a repetition is not for the client.
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

  /// Returns the failure to report when the time for the request is over.
  ///
  /// - Parameter isSent: whether the peer may have received an attempt that is in progress.
  package func expired(isSent: Bool) -> Failure {
    isSent && !repetition.isHarmless ? .unknown : failure
  }

  /// Extends the wait by the time since the attempt began, during which a holder had the request.
  private mutating func resumeWaiting(at now: MonotonicTime) {
    if let end = patienceEnd { patienceEnd = end + (now - begun) }
  }

  /// Begins or continues a wait for a holder, or for a connection to the holder. Returns the time at which the wait
  /// ends.
  package mutating func beginWaiting(at now: MonotonicTime) -> MonotonicTime {
    let end = patienceEnd ?? now + limits.patience
    patienceEnd = end
    return end
  }
}
