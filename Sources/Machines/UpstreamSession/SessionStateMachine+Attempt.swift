import ByteStreams

/// Reports of a connection attempt, up to `ready`.
extension SessionStateMachine {
  /// RFC 9110 §15.4 leaves the limit to the client. Five is the limit of RFC 2068. More redirections are probably a
  /// cycle.
  package static var redirectionLimit: Int { 5 }

  /// Called when everything that the attempt needs has been read. The name is resolved next.
  package mutating func prepared(_ reported: Generation, now: MonotonicTime) {
    guard var attempt = attempt(reported) else { return }
    precondition(attempt.phase == .resolving, "prepared in \(attempt.phase)")
    attempt.phaseDeadline = now + settings.limits.resolving
    attempt.wholeDeadline = now + settings.limits.wholeAttempt
    setAttempt(attempt)
  }

  /// Called when the attempt has entered this phase, up to `upgrading`.
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
    // From the response to the opening handshake on, the new connection may deliver the same pushes as its predecessor.
    if phase == .upgrading, case .replacing(let connection, successor: _) = state {
      actions.append(.beginOverlap(older: connection.generation, newer: reported))
    }
    return actions
  }

  /// Called when the connection is upgraded. Setup messages follow, if there are any.
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

  /// Called when the upstream has announced the heartbeats of this connection. They begin at once. Each announced value
  /// overrides the configured value.
  package mutating func heartbeatAnnounced(
    _ announced: HeartbeatSettings, _ reported: Generation, now: MonotonicTime
  ) {
    guard var attempt = attempt(reported) else { return }
    var heartbeat = settings.heartbeat
    if let interval = announced.interval { (heartbeat.interval, heartbeat.timeout) = (interval, announced.timeout) }
    if let within = announced.within { heartbeat.within = within }
    attempt.heartbeat = heartbeat
    attempt.beats = ApplicationHeartbeat(announced, now: now)
    setAttempt(attempt)
  }

  /// Called when the upstream has announced the time between two heartbeats of the gateway. They begin at once.
  package mutating func heartbeatIntervalAnnounced(
    _ interval: TimeSpan, _ reported: Generation, now: MonotonicTime
  ) {
    if let attempt = attempt(reported), attempt.beats == nil {
      var heartbeat = settings.heartbeat
      heartbeat.interval = interval
      heartbeatAnnounced(heartbeat, reported, now: now)
    } else {
      withHeartbeat(reported) { $0.change(interval: interval, now: now) }
    }
  }

  /// Called when the response to the pending setup step has arrived.
  package mutating func setupResponseReceived(
    _ reported: Generation, now: MonotonicTime, using generator: inout some RandomNumberGenerator
  ) -> [SessionAction] {
    guard var attempt = attempt(reported), attempt.phase == .settingUp else { return [] }
    attempt.step += 1
    attempt.stepDeadline = .distantFuture
    var actions: [SessionAction] = []
    runSteps(&attempt, now: now, using: &generator, &actions)
    return actions
  }

  /// Called when the attempt failed. If it failed before the upgrade, its socket is already closed. If it failed during
  /// the setup, its socket must still be closed.
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

  /// Called when the response is a redirection that may be followed. The driver stores its target.
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

  /// Called when the process may not connect to this host before `until`. This does not count as an attempt.
  package mutating func postponed(
    until: MonotonicTime, _ reported: Generation, now: MonotonicTime
  ) -> [SessionAction] {
    guard let attempt = attempt(reported) else { return [] }
    var actions: [SessionAction] = []
    switch state {
    case .replacing(let connection, successor: _):
      fallBack(to: connection, replacingAt: until, because: .postponed, attempt.dial.generation, now: now, &actions)
    case .attempting:
      move(to: .backoff(until: until), because: .postponed, now: now, &actions)
    case .stopped, .idle, .offline, .backoff, .parked, .ready, .switching, .closing:
      preconditionFailure("an attempt in \(observed)")
    }
    return actions
  }

  /// The attempt of this generation, either to connect the session or to open a successor.
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
    guard now >= min(attempt.phaseEnd, attempt.wholeDeadline, attempt.stepEnd) else {
      return checkHeartbeat(of: attempt, now: now, using: &generator, &actions)
    }
    if now < min(attempt.phaseEnd, attempt.wholeDeadline), settings.setup[attempt.step].isOptional {
      var attempt = attempt
      attempt.stepDeadline = .distantFuture
      setAttempt(attempt)
      return actions.append(.skipSetup(step: attempt.step, attempt.dial.generation))
    }
    actions.append(.discard(attempt.dial.generation))
    let reason: AttemptFailure.Reason =
      if attempt.phase == .settingUp {
        .setupResponse
      } else {
        attempt.wholeDeadline <= attempt.phaseDeadline ? .attemptTimedOut : .timedOut
      }
    fail(attempt, AttemptFailure(phase: attempt.phase, reason: reason), now: now, using: &generator, &actions)
  }

  private mutating func checkHeartbeat(
    of attempt: Attempt, now: MonotonicTime, using generator: inout some RandomNumberGenerator,
    _ actions: inout [SessionAction]
  ) {
    var verdict = ApplicationHeartbeat.Verdict.alive
    withHeartbeat(attempt.dial.generation) { verdict = $0.check(now: now) }
    switch verdict {
    case .alive: break
    case .beat(let counter): actions.append(.sendHeartbeat(counter, attempt.dial.generation))
    case .dead: actions += connectionLost(.heartbeat, attempt.dial.generation, now: now, using: &generator)
    }
  }

  private mutating func fail(
    _ attempt: Attempt, _ failure: AttemptFailure, now: MonotonicTime,
    using generator: inout some RandomNumberGenerator, _ actions: inout [SessionAction]
  ) {
    let decision = policy.attemptFailed(failure, using: &generator)
    apply(decision, failed: attempt.dial, because: .attemptFailed(failure), now: now, using: &generator, &actions)
  }

  /// Carries out the policy's decision after an attempt or a connection has ended.
  mutating func apply(
    _ decision: ReconnectPolicy.Decision, failed dial: Dial?, because cause: TransitionCause, now: MonotonicTime,
    using generator: inout some RandomNumberGenerator, _ actions: inout [SessionAction]
  ) {
    if let pause = decision.hostPause, let dial {
      actions.append(.pauseHost(endpoint: dial.target.endpoint, until: now + pause))
    }
    var verdict = decision.verdict
    if let pause = decision.urlPause, let dial {
      let wait = policy.pause(dial.target.endpoint, for: pause, otherURLDelay: decision.otherURLDelay, now: now)
      verdict = .reconnect(after: wait)
    }
    if let connection = predecessor {
      // The wait is longer than after other failures, since the old connection still works.
      let usual = Backoff.uniform(.seconds(30), .seconds(60), using: &generator)
      let wait = max(usual, verdict.wait ?? ReconnectPolicy.Constants.deniedParkCap)
      fallBack(to: connection, replacingAt: now + wait, because: cause, dial?.generation, now: now, &actions)
      return
    }
    let next: State =
      switch verdict {
      case .reconnect(let wait): .backoff(until: now + wait)
      case .park(let wait): .parked(until: wait.map { now + $0 })
      case .offline(let wait): .offline(until: now + wait)
      }
    let cause = decision.attemptsExhausted ? .attemptsExhausted : cause
    move(to: next, because: cause, dial?.generation, now: now, &actions)
  }

  /// Called when the successor is gone. The old connection continues.
  private mutating func fallBack(
    to old: ReadyConnection, replacingAt next: MonotonicTime, because cause: TransitionCause,
    _ successor: Generation?,
    now: MonotonicTime, _ actions: inout [SessionAction]
  ) {
    var connection = old
    connection.replaceAt = next
    // A quiet period may have begun before the replacement. During the replacement, arriving bytes do not end it, so it
    // is ended here. If the connection is still quiet, the next check reports that.
    _ = connection.liveness.endQuiet()
    move(to: .ready(connection), because: cause, successor, now: now, &actions)
  }

  /// Ends an attempt that is no longer wanted.
  mutating func abandon(
    _ attempt: Attempt, code: UInt16, because cause: TransitionCause, now: MonotonicTime,
    _ actions: inout [SessionAction]
  ) {
    let generation = attempt.dial.generation
    if attempt.phase == .settingUp {
      actions.append(.close(generation, code: code))
      let closing = Closing(
        generation: generation, response: closeDeadline(now: now), loss: nil, readyFor: .zero)
      move(to: .closing(closing), because: cause, now: now, &actions)
    } else {
      actions.append(.discard(generation))
      move(to: .stopped, because: cause, now: now, &actions)
    }
  }

  /// Sends setup messages, up to and including the next message that expects a response. After the last message, the
  /// session is ready.
  private mutating func runSteps(
    _ attempt: inout Attempt, now: MonotonicTime, using generator: inout some RandomNumberGenerator,
    _ actions: inout [SessionAction]
  ) {
    let generation = attempt.dial.generation
    // The state is entered before the first message is sent, so that the transition is reported before its
    // consequences.
    if attempt.step < settings.setup.count { update(attempt, because: .progress, now: now, &actions) }
    while attempt.step < settings.setup.count {
      let step = settings.setup[attempt.step]
      actions.append(.sendSetup(step: attempt.step, generation))
      if step.expectsResponse {
        if step.isOptional {
          let optional = settings.setup.count { $0.isOptional }
          attempt.stepDeadline = now + settings.limits.setup / Int64(2 * optional)
        } else {
          attempt.stepDeadline = now + step.timeLimit
        }
        let received = attempt.response?.position ?? 0
        attempt.phaseDeadline = attempt.phaseEnd
        attempt.response = ResponseDeadline(step.timeLimit, from: now, received: received)
        attempt.awaitedSince = now
        update(attempt, because: .progress, now: now, &actions)
        return
      }
      attempt.step += 1
    }
    becomeReady(attempt, now: now, using: &generator, &actions)
  }

  mutating func setAttempt(_ attempt: Attempt) {
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
      preconditionFailure("an attempt advanced in \(observed)")
    }
  }
}
