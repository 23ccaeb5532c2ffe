import ByteStreams

/// What a dial reports on its way to `ready`.
extension SessionStateMachine {
  /// RFC 9110 §15.4 leaves the number to the client; five is what the first browsers took, and more is a loop.
  package static var redirectionLimit: Int { 5 }

  /// All that the dial needs has been read, and it looks the name up.
  package mutating func prepared(_ reported: Generation, now: MonotonicTime) {
    guard var opening = opening(reported) else { return }
    precondition(opening.phase == .resolving, "prepared in \(opening.phase)")
    opening.phaseDeadline = now + settings.limits.resolving
    opening.wholeDeadline = now + settings.limits.wholeOpening
    setOpening(opening)
  }

  /// The dial has come to its next phase, up to `upgrading`.
  package mutating func advanced(
    to phase: OpeningPhase, _ reported: Generation, now: MonotonicTime
  ) -> [SessionAction] {
    guard var opening = opening(reported) else { return [] }
    precondition(phase > opening.phase && phase < .opening, "advanced to \(phase) from \(opening.phase)")
    opening.phase = phase
    opening.phaseDeadline = now + settings.limits.limit(of: phase)
    var actions: [SessionAction] = []
    if phase == .upgrading { discardPredecessor(&actions) }
    update(opening, because: .progress, now: now, &actions)
    return actions
  }

  /// The upgrade was answered, and rightly. Opening messages follow, if there are any.
  package mutating func upgraded(
    _ reported: Generation, now: MonotonicTime, using generator: inout some RandomNumberGenerator
  ) -> [SessionAction] {
    guard var opening = opening(reported) else { return [] }
    precondition(opening.phase < .opening, "upgraded twice, in \(opening.phase)")
    opening.phase = .opening
    opening.phaseDeadline = now + settings.limits.opening
    opening.wholeDeadline = .distantFuture
    var actions: [SessionAction] = []
    runSteps(&opening, now: now, using: &generator, &actions)
    return actions
  }

  /// The answer that the present opening message expects has come.
  package mutating func openingAnswered(
    _ reported: Generation, now: MonotonicTime, using generator: inout some RandomNumberGenerator
  ) -> [SessionAction] {
    guard var opening = opening(reported), opening.phase == .opening else { return [] }
    opening.step += 1
    var actions: [SessionAction] = []
    runSteps(&opening, now: now, using: &generator, &actions)
    return actions
  }

  /// The dial failed. Its socket is gone already.
  package mutating func openingFailed(
    _ failure: OpeningFailure, _ reported: Generation, now: MonotonicTime,
    using generator: inout some RandomNumberGenerator
  ) -> [SessionAction] {
    guard let opening = opening(reported) else { return [] }
    var actions: [SessionAction] = []
    fail(opening, failure, now: now, using: &generator, &actions)
    return actions
  }

  /// The upgrade was answered by a redirection that may be followed; the driver keeps where it points to.
  package mutating func redirected(
    _ reported: Generation, now: MonotonicTime, using generator: inout some RandomNumberGenerator
  ) -> [SessionAction] {
    guard let opening = opening(reported) else { return [] }
    var actions: [SessionAction] = []
    guard opening.redirections < Self.redirectionLimit else {
      let failure = OpeningFailure(phase: .upgrading, reason: .redirect)
      fail(opening, failure, now: now, using: &generator, &actions)
      return actions
    }
    let endpoint = opening.dial.target.endpoint
    let next = makeOpening(
      target: .redirection(from: endpoint), redirections: opening.redirections + 1, now: now)
    update(next, because: .progress, now: now, &actions)
    actions.append(.dial(next.dial))
    return actions
  }

  /// The process may not dial this host before `until`. Counts no attempt.
  package mutating func postponed(
    until: MonotonicTime, _ reported: Generation, now: MonotonicTime
  ) -> [SessionAction] {
    guard let opening = opening(reported) else { return [] }
    var actions: [SessionAction] = []
    switch state {
    case .replacing(let link, successor: _):
      goOn(with: link, replacingAt: until, because: .postponed, opening.dial.generation, now: now, &actions)
    case .opening:
      move(to: .backoff(until: until), because: .postponed, now: now, &actions)
    case .stopped, .idle, .offline, .backoff, .parked, .ready, .switching, .closing:
      preconditionFailure("an opening in \(observed)")
    }
    return actions
  }

  /// The opening of this generation, be it the session's own or a successor's.
  func opening(_ reported: Generation) -> Opening? {
    switch state {
    case .opening(let opening), .replacing(_, successor: let opening):
      opening.dial.generation == reported ? opening : nil
    case .stopped, .idle, .offline, .backoff, .parked, .ready, .switching, .closing:
      nil
    }
  }

  mutating func timeOut(
    _ opening: Opening, now: MonotonicTime, using generator: inout some RandomNumberGenerator,
    _ actions: inout [SessionAction]
  ) {
    actions.append(.discard(opening.dial.generation))
    let reason: OpeningFailure.Reason =
      if opening.phase == .opening {
        .openingAnswer
      } else {
        opening.wholeDeadline <= opening.phaseDeadline ? .openingTimedOut : .timedOut
      }
    fail(opening, OpeningFailure(phase: opening.phase, reason: reason), now: now, using: &generator, &actions)
  }

  private mutating func fail(
    _ opening: Opening, _ failure: OpeningFailure, now: MonotonicTime,
    using generator: inout some RandomNumberGenerator, _ actions: inout [SessionAction]
  ) {
    let decision = policy.openingFailed(failure, using: &generator)
    carryOut(decision, failed: opening.dial, because: .openingFailed(failure), now: now, using: &generator, &actions)
  }

  /// Puts what the policy decided into effect, after a dial or a connection has gone.
  mutating func carryOut(
    _ decision: ReconnectPolicy.Decision, failed dial: Dial?, because cause: TransitionCause, now: MonotonicTime,
    using generator: inout some RandomNumberGenerator, _ actions: inout [SessionAction]
  ) {
    if let hold = decision.hostHold, let dial {
      actions.append(.holdHost(endpoint: dial.target.endpoint, until: now + hold))
    }
    var verdict = decision.verdict
    if let hold = decision.urlHold, let dial {
      let wait = policy.hold(dial.target.endpoint, for: hold, elsewhereAfter: decision.elsewhere, now: now)
      verdict = .redial(after: wait)
    }
    if let link = predecessor {
      // The next try comes later than a redial would: nobody is without a connection meanwhile.
      let usual = Backoff.uniform(.seconds(30), .seconds(60), using: &generator)
      let wait = max(usual, verdict.wait ?? ReconnectPolicy.Constants.deniedParkCap)
      goOn(with: link, replacingAt: now + wait, because: cause, dial?.generation, now: now, &actions)
      return
    }
    let next: State =
      switch verdict {
      case .redial(let wait): .backoff(until: now + wait)
      case .park(let wait): .parked(until: wait.map { now + $0 })
      case .offline(let wait): .offline(until: now + wait)
      }
    let cause = decision.attemptsExhausted ? .attemptsExhausted : cause
    move(to: next, because: cause, dial?.generation, now: now, &actions)
  }

  /// A successor that is gone leaves the old connection alone.
  private mutating func goOn(
    with old: Link, replacingAt next: MonotonicTime, because cause: TransitionCause, _ successor: Generation?,
    now: MonotonicTime, _ actions: inout [SessionAction]
  ) {
    var link = old
    link.replaceAt = next
    // Whether it is quiet was nobody's question meanwhile; if it still is, the next check says so.
    _ = link.liveness.endQuiet()
    move(to: .ready(link), because: cause, successor, now: now, &actions)
  }

  /// An opening that is not wanted any more.
  mutating func abandon(
    _ opening: Opening, code: UInt16, because cause: TransitionCause, now: MonotonicTime,
    _ actions: inout [SessionAction]
  ) {
    let generation = opening.dial.generation
    if opening.phase == .opening {
      actions.append(.close(generation, code: code))
      let closing = Closing(
        generation: generation, deadline: now + settings.limits.closing, loss: nil, readyFor: .zero)
      move(to: .closing(closing), because: cause, now: now, &actions)
    } else {
      actions.append(.discard(generation))
      move(to: .stopped, because: cause, now: now, &actions)
    }
  }

  /// Sends opening messages up to the next that expects an answer; after the last, the session is ready.
  private mutating func runSteps(
    _ opening: inout Opening, now: MonotonicTime, using generator: inout some RandomNumberGenerator,
    _ actions: inout [SessionAction]
  ) {
    let generation = opening.dial.generation
    // The state is entered before anything is sent in it, so that a report never comes after its consequences.
    if opening.step < settings.opening.count { update(opening, because: .progress, now: now, &actions) }
    while opening.step < settings.opening.count {
      let step = settings.opening[opening.step]
      actions.append(.sendOpening(step: opening.step, generation))
      if step.expectsAnswer {
        opening.phaseDeadline = min(opening.phaseDeadline, now + step.timeLimit)
        update(opening, because: .progress, now: now, &actions)
        return
      }
      opening.step += 1
    }
    becomeReady(opening, now: now, using: &generator, &actions)
  }

  private mutating func setOpening(_ opening: Opening) {
    switch state {
    case .replacing(let link, successor: _): state = .replacing(link, successor: opening)
    case .opening: state = .opening(opening)
    case .stopped, .idle, .offline, .backoff, .parked, .ready, .switching, .closing:
      preconditionFailure("no opening in \(observed)")
    }
  }

  private mutating func update(
    _ opening: Opening, because cause: TransitionCause, now: MonotonicTime, _ actions: inout [SessionAction]
  ) {
    switch state {
    case .replacing(let link, successor: _): state = .replacing(link, successor: opening)
    case .opening: move(to: .opening(opening), because: cause, now: now, &actions)
    case .stopped, .idle, .offline, .backoff, .parked, .ready, .switching, .closing:
      preconditionFailure("an opening went on in \(observed)")
    }
  }
}
