import ByteStreams

/// What a connection attempt reports on its way to `ready`.
extension SessionStateMachine {
  /// RFC 9110 §15.4 leaves the number to the client; five is what the first browsers took, and more is a loop.
  package static var redirectionLimit: Int { 5 }

  /// All that the dial needs has been read, and it looks the name up.
  package mutating func prepared(_ reported: Generation, now: MonotonicTime) {
    guard var attempt = attempt(reported) else { return }
    precondition(attempt.phase == .resolving, "prepared in \(attempt.phase)")
    attempt.phaseDeadline = now + settings.limits.resolving
    attempt.wholeDeadline = now + settings.limits.wholeAttempt
    setAttempt(attempt)
  }

  /// The dial has come to its next phase, up to `upgrading`.
  package mutating func advanced(
    to phase: AttemptPhase, _ reported: Generation, now: MonotonicTime
  ) -> [SessionAction] {
    guard var attempt = attempt(reported) else { return [] }
    precondition(phase > attempt.phase && phase < .settingUp, "advanced to \(phase) from \(attempt.phase)")
    attempt.phase = phase
    attempt.phaseDeadline = now + settings.limits.limit(of: phase)
    var actions: [SessionAction] = []
    if phase == .upgrading { discardPredecessor(&actions) }
    update(attempt, because: .progress, now: now, &actions)
    // From the response on it may bring what its predecessor brings.
    if phase == .upgrading, case .replacing(let connection, successor: _) = state {
      actions.append(.beginOverlap(older: connection.generation, newer: reported))
    }
    return actions
  }

  /// The connection is upgraded. Setup messages follow, if there are any.
  package mutating func upgraded(
    _ reported: Generation, now: MonotonicTime, using generator: inout some RandomNumberGenerator
  ) -> [SessionAction] {
    guard var attempt = attempt(reported) else { return [] }
    precondition(attempt.phase < .settingUp, "upgraded twice, in \(attempt.phase)")
    attempt.phase = .settingUp
    attempt.phaseDeadline = now + settings.limits.setup
    attempt.wholeDeadline = .distantFuture
    var actions: [SessionAction] = []
    runSteps(&attempt, now: now, using: &generator, &actions)
    return actions
  }

  /// The response that the present setup step expects has come.
  package mutating func setupAnswered(
    _ reported: Generation, now: MonotonicTime, using generator: inout some RandomNumberGenerator
  ) -> [SessionAction] {
    guard var attempt = attempt(reported), attempt.phase == .settingUp else { return [] }
    attempt.step += 1
    var actions: [SessionAction] = []
    runSteps(&attempt, now: now, using: &generator, &actions)
    return actions
  }

  /// The attempt failed. Before the upgrade its socket is already gone; a setup that failed leaves one to close.
  package mutating func attemptFailed(
    _ failure: AttemptFailure, _ reported: Generation, now: MonotonicTime,
    using generator: inout some RandomNumberGenerator
  ) -> [SessionAction] {
    guard let attempt = attempt(reported) else { return [] }
    var actions: [SessionAction] = []
    if failure.phase == .settingUp {
      actions.append(.close(reported, code: 1000))
      actions.append(.discard(reported))
    }
    fail(attempt, failure, now: now, using: &generator, &actions)
    return actions
  }

  /// The upgrade was answered by a redirection that may be followed; the driver keeps where it points to.
  package mutating func redirected(
    _ reported: Generation, now: MonotonicTime, using generator: inout some RandomNumberGenerator
  ) -> [SessionAction] {
    guard let attempt = attempt(reported) else { return [] }
    var actions: [SessionAction] = []
    guard attempt.redirections < Self.redirectionLimit else {
      let failure = AttemptFailure(phase: .upgrading, reason: .redirect)
      fail(attempt, failure, now: now, using: &generator, &actions)
      return actions
    }
    let endpoint = attempt.dial.target.endpoint
    let next = makeAttempt(
      target: .redirection(from: endpoint), redirections: attempt.redirections + 1, now: now)
    update(next, because: .progress, now: now, &actions)
    actions.append(.dial(next.dial))
    return actions
  }

  /// The process may not dial this host before `until`. Counts no attempt.
  package mutating func postponed(
    until: MonotonicTime, _ reported: Generation, now: MonotonicTime
  ) -> [SessionAction] {
    guard let attempt = attempt(reported) else { return [] }
    var actions: [SessionAction] = []
    switch state {
    case .replacing(let connection, successor: _):
      goOn(with: connection, replacingAt: until, because: .postponed, attempt.dial.generation, now: now, &actions)
    case .attempting:
      move(to: .backoff(until: until), because: .postponed, now: now, &actions)
    case .stopped, .idle, .offline, .backoff, .parked, .ready, .switching, .closing:
      preconditionFailure("an attempt in \(observed)")
    }
    return actions
  }

  /// The attempt of this generation, be it the session's own or a successor's.
  func attempt(_ reported: Generation) -> Attempt? {
    switch state {
    case .attempting(let attempt), .replacing(_, successor: let attempt):
      attempt.dial.generation == reported ? attempt : nil
    case .stopped, .idle, .offline, .backoff, .parked, .ready, .switching, .closing:
      nil
    }
  }

  mutating func timeOut(
    _ attempt: Attempt, now: MonotonicTime, using generator: inout some RandomNumberGenerator,
    _ actions: inout [SessionAction]
  ) {
    actions.append(.discard(attempt.dial.generation))
    let reason: AttemptFailure.Reason =
      if attempt.phase == .settingUp {
        .setupAnswer
      } else {
        attempt.wholeDeadline <= attempt.phaseDeadline ? .attemptTimedOut : .timedOut
      }
    fail(attempt, AttemptFailure(phase: attempt.phase, reason: reason), now: now, using: &generator, &actions)
  }

  private mutating func fail(
    _ attempt: Attempt, _ failure: AttemptFailure, now: MonotonicTime,
    using generator: inout some RandomNumberGenerator, _ actions: inout [SessionAction]
  ) {
    let decision = policy.attemptFailed(failure, using: &generator)
    carryOut(decision, failed: attempt.dial, because: .attemptFailed(failure), now: now, using: &generator, &actions)
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
    if let connection = predecessor {
      // The next try comes later than a redial would: nobody is without a connection meanwhile.
      let usual = Backoff.uniform(.seconds(30), .seconds(60), using: &generator)
      let wait = max(usual, verdict.wait ?? ReconnectPolicy.Constants.deniedParkCap)
      goOn(with: connection, replacingAt: now + wait, because: cause, dial?.generation, now: now, &actions)
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
    with old: ReadyConnection, replacingAt next: MonotonicTime, because cause: TransitionCause,
    _ successor: Generation?,
    now: MonotonicTime, _ actions: inout [SessionAction]
  ) {
    var connection = old
    connection.replaceAt = next
    // Whether it is quiet was nobody's question meanwhile; if it still is, the next check says so.
    _ = connection.liveness.endQuiet()
    move(to: .ready(connection), because: cause, successor, now: now, &actions)
  }

  /// An attempt that is not wanted any more.
  mutating func abandon(
    _ attempt: Attempt, code: UInt16, because cause: TransitionCause, now: MonotonicTime,
    _ actions: inout [SessionAction]
  ) {
    let generation = attempt.dial.generation
    if attempt.phase == .settingUp {
      actions.append(.close(generation, code: code))
      let closing = Closing(
        generation: generation, deadline: now + settings.limits.closing, loss: nil, readyFor: .zero)
      move(to: .closing(closing), because: cause, now: now, &actions)
    } else {
      actions.append(.discard(generation))
      move(to: .stopped, because: cause, now: now, &actions)
    }
  }

  /// Sends setup messages up to the next that expects a response; after the last, the session is ready.
  private mutating func runSteps(
    _ attempt: inout Attempt, now: MonotonicTime, using generator: inout some RandomNumberGenerator,
    _ actions: inout [SessionAction]
  ) {
    let generation = attempt.dial.generation
    // The state is entered before anything is sent in it, so that a report never comes after its consequences.
    if attempt.step < settings.setup.count { update(attempt, because: .progress, now: now, &actions) }
    while attempt.step < settings.setup.count {
      let step = settings.setup[attempt.step]
      actions.append(.sendSetup(step: attempt.step, generation))
      if step.expectsAnswer {
        attempt.phaseDeadline = min(attempt.phaseDeadline, now + step.timeLimit)
        update(attempt, because: .progress, now: now, &actions)
        return
      }
      attempt.step += 1
    }
    becomeReady(attempt, now: now, using: &generator, &actions)
  }

  private mutating func setAttempt(_ attempt: Attempt) {
    switch state {
    case .replacing(let connection, successor: _): state = .replacing(connection, successor: attempt)
    case .attempting: state = .attempting(attempt)
    case .stopped, .idle, .offline, .backoff, .parked, .ready, .switching, .closing:
      preconditionFailure("no attempt in \(observed)")
    }
  }

  private mutating func update(
    _ attempt: Attempt, because cause: TransitionCause, now: MonotonicTime, _ actions: inout [SessionAction]
  ) {
    switch state {
    case .replacing(let connection, successor: _): state = .replacing(connection, successor: attempt)
    case .attempting: move(to: .attempting(attempt), because: cause, now: now, &actions)
    case .stopped, .idle, .offline, .backoff, .parked, .ready, .switching, .closing:
      preconditionFailure("an attempt went on in \(observed)")
    }
  }
}
