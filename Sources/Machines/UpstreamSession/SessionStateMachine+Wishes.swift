import ByteStreams

/// What an operator, the network and the clock say to a session.
extension SessionStateMachine {
  /// The session is wanted from now on. Ends every wait, also one that a host asked for: an operator who says 'up' means now.
  package mutating func open(
    now: MonotonicTime, using generator: inout some RandomNumberGenerator
  ) -> [SessionAction] {
    // The end is final once it has begun: a connection opened now could send nothing.
    guard !isShuttingDown || desired == .up else { return [] }
    desired = .up
    var actions: [SessionAction] = []
    switch state {
    case .stopped:
      if settings.onDemand {
        move(to: .idle, because: .operatorRequest, now: now, &actions)
      } else {
        dial(because: .operatorRequest, now: now, &actions)
      }
    case .offline, .backoff, .parked:
      policy.startAfresh()
      dial(because: .operatorRequest, now: now, &actions)
    case .closing(var closing):
      // The old socket finishes first; `desired` is what counts when it has.
      closing.becomesIdle = false
      state = .closing(closing)
    case .idle, .attempting, .ready, .replacing, .switching:
      break
    }
    return actions
  }

  /// The session is not wanted any more. `code` is told to the upstream: 1000, or 1001 when the process goes down.
  package mutating func close(code: UInt16 = 1000, now: MonotonicTime) -> [SessionAction] {
    desired = .down
    let cause: TransitionCause = code == 1001 ? .shutdown : .operatorRequest
    var actions: [SessionAction] = []
    switch state {
    case .stopped:
      break
    case .idle, .offline, .backoff, .parked:
      move(to: .stopped, because: cause, now: now, &actions)
    case .attempting(let attempt):
      abandon(attempt, code: code, because: cause, now: now, &actions)
    case .ready(let connection):
      startClosing(connection, code: code, because: cause, now: now, &actions)
    case .replacing(let connection, let successor):
      actions.append(.discard(successor.dial.generation))
      startClosing(connection, code: code, because: cause, now: now, &actions)
    case .switching(let connection, let successor, _):
      actions.append(.resumeSending(connection.generation))
      actions.append(.close(successor.generation, code: code))
      actions.append(.discard(successor.generation))
      startClosing(connection, code: code, because: cause, now: now, &actions)
    case .closing(var closing):
      closing.loss = nil
      state = .closing(closing)
    }
    return actions
  }

  /// The process ends: the session is closed when the outbox is empty (`flushed`), or at `deadline`.
  package mutating func shutDown(by deadline: MonotonicTime, now: MonotonicTime) -> [SessionAction] {
    flushDeadline = deadline
    var actions: [SessionAction] = []
    // The outbox is held during a cut, which may take longer than the flush.
    if case .switching(let old, let successor, _) = state {
      finishSwitch(from: old, to: successor, now: now, &actions)
    }
    return actions
  }

  /// Whether the process ends.
  package var isShuttingDown: Bool { flushDeadline != nil }

  /// Whether a shutdown still waits for the outbox to empty: not once an operator has closed the session, since nothing can leave it.
  package func awaitsFlush(now: MonotonicTime) -> Bool { desired == .up && now < flushDeadline ?? .zero }

  /// A shutdown has nothing more to wait for: the outbox is closed, and is empty or has had its time.
  package mutating func flushed(now: MonotonicTime) -> [SessionAction] {
    // A session that an operator has closed ends by itself.
    desired == .up ? close(code: 1001, now: now) : []
  }

  /// Something to send has come. Only an on-demand session that is idle takes it as a reason to dial.
  package mutating func demand(now: MonotonicTime) -> [SessionAction] {
    var actions: [SessionAction] = []
    lastUse = now
    switch state {
    case .idle: dial(because: .demand, now: now, &actions)
    case .closing(var closing):
      guard closing.becomesIdle else { break }
      closing.becomesIdle = false
      closing.reopening = .demand
      state = .closing(closing)
    case .stopped, .offline, .backoff, .parked, .attempting, .ready, .replacing, .switching: break
    }
    return actions
  }

  /// Links, addresses or routes of this machine have changed. A connection is probed, not closed: it may have noticed
  /// nothing. Waits end at once where something was gained; a network that only lost something leaves nothing to try.
  package mutating func networkChanged(
    hasGained: Bool, now: MonotonicTime, using generator: inout some RandomNumberGenerator
  ) -> [SessionAction] {
    var actions: [SessionAction] = []
    switch state {
    case .offline(let until):
      if endsWait(hasGained, now: now) {
        dial(because: .networkChanged, now: now, &actions)
      } else if hasGained {
        state = .offline(until: min(until, nextNetworkDial))
      }
    case .backoff(let until):
      if endsWait(hasGained, now: now) {
        dial(because: .networkChanged, now: now, &actions)
      } else if hasGained {
        state = .backoff(until: min(until, nextNetworkDial))
      }
    case .ready(let connection), .replacing(let connection, successor: _), .switching(let connection, successor: _, _):
      // An upstream that breaks on pings is left to what it sends by itself.
      guard settings.liveness.isEnabled else { break }
      if let counter = barrierPing(connection.generation, now: now, using: &generator) {
        actions.append(.ping(counter, connection.generation))
      }
    case .stopped, .idle, .parked, .attempting, .closing:
      break
    }
    return actions
  }

  /// On some hosts the network changes all the time, and a backoff that every change ended would be none.
  static var networkDialInterval: TimeSpan { .seconds(5) }

  private mutating func endsWait(_ hasGained: Bool, now: MonotonicTime) -> Bool {
    guard hasGained, now >= nextNetworkDial else { return false }
    nextNetworkDial = now + Self.networkDialInterval
    return true
  }

  /// Opens a successor beside the connection that is ready; the old one is closed once the new one is ready.
  /// While an earlier one is under way the wish is kept, the latest one, and followed when that is over.
  package mutating func replace(because reason: ReplacementReason, now: MonotonicTime) -> [SessionAction] {
    if postponeReplacement(because: reason, now: now) { return [] }
    guard case .ready(var connection) = state else { return [] }
    var actions: [SessionAction] = []
    connection.replacement = reason
    let successor = makeAttempt(now: now)
    move(
      to: .replacing(connection, successor: successor), because: .replacement(reason), successor.dial.generation,
      now: now,
      &actions)
    actions.append(.dial(successor.dial))
    return actions
  }

  /// The configuration has changed: the next dial, and all that follows, is as `settings` say. A connection that is ready is
  /// replaced by one that obeys them; a dial under way begins anew, and a wait ends.
  package mutating func reconfigure(
    _ settings: SessionSettings, because reason: ReplacementReason, now: MonotonicTime
  ) -> [SessionAction] {
    self.settings = settings
    policy = ReconnectPolicy(settings)
    var actions: [SessionAction] = []
    switch state {
    case .ready, .switching:
      actions += replace(because: reason, now: now)
    case .replacing(var connection, let successor):
      actions.append(.discard(successor.dial.generation))
      connection.replacement = reason
      let next = makeAttempt(now: now)
      state = .replacing(connection, successor: next)
      actions.append(.dial(next.dial))
    case .attempting(let attempt):
      actions.append(.discard(attempt.dial.generation))
      dial(because: .replacement(reason), now: now, &actions)
    case .offline, .backoff, .parked:
      dial(because: .replacement(reason), now: now, &actions)
    case .idle:
      if !settings.onDemand { dial(because: .replacement(reason), now: now, &actions) }
    case .stopped, .closing:
      break
    }
    return actions
  }

  /// `nextDeadline` has come. Harmless when called early: then nothing follows.
  package mutating func deadlineReached(
    now: MonotonicTime, using generator: inout some RandomNumberGenerator
  ) -> [SessionAction] {
    var actions: [SessionAction] = []
    if let old = retiring, now >= old.deadline { endRetiring(now: now, using: &generator, &actions) }
    switch state {
    case .stopped, .idle:
      break
    case .offline(let until), .backoff(let until):
      if now >= until { endWait(now: now, &actions) }
    case .parked(let until):
      if let until, now >= until { endWait(now: now, &actions) }
    case .attempting(let attempt):
      if now >= attempt.deadline { timeOut(attempt, now: now, using: &generator, &actions) }
    case .ready(let connection):
      checkLiveness(connection, now: now, using: &generator, &actions)
      guard case .ready(let connection) = state else { break }
      if retiring == nil, now >= connection.replaceAt {
        actions += replace(because: connection.replacement, now: now)
      } else if isUnused(now) {
        startClosing(connection, code: 1000, because: .unused, becomesIdle: true, now: now, &actions)
      }
    case .replacing(let connection, let successor):
      if now >= successor.deadline { timeOut(successor, now: now, using: &generator, &actions) }
      checkLiveness(connection, now: now, using: &generator, &actions)
    case .switching(let connection, let successor, let cut):
      if now >= cut.deadline {
        finishSwitch(from: connection, to: successor, now: now, &actions)
      } else {
        checkLiveness(connection, now: now, using: &generator, &actions)
      }
    case .closing(let closing):
      if now >= closing.deadline {
        actions.append(.discard(closing.generation))
        settle(closing, now: now, using: &generator, &actions)
      }
    }
    return actions
  }

  /// Whether an on-demand session has had nothing to send for its time limit.
  private func isUnused(_ now: MonotonicTime) -> Bool { settings.onDemand && now >= lastUse + settings.idleAfter }

  /// An on-demand session that has nothing to send does not go on dialling an upstream that is away.
  private mutating func endWait(now: MonotonicTime, _ actions: inout [SessionAction]) {
    if isUnused(now) {
      move(to: .idle, because: .unused, now: now, &actions)
    } else {
      dial(because: .waited, now: now, &actions)
    }
  }

  /// Starts a new dial from a state that has no socket.
  mutating func dial(because cause: TransitionCause, now: MonotonicTime, _ actions: inout [SessionAction]) {
    // The first dial of a session is nobody's wish against a hold: many sessions may start at once.
    let attempt = makeAttempt(overridesHold: cause == .operatorRequest && generation != .none, now: now)
    move(to: .attempting(attempt), because: cause, now: now, &actions)
    actions.append(.dial(attempt.dial))
  }

  mutating func makeAttempt(
    target: Dial.Target? = nil, redirections: Int = 0, overridesHold: Bool = false, now: MonotonicTime
  ) -> Attempt {
    generation = generation.next
    let dial = Dial(
      generation: generation, target: target ?? .endpoint(policy.chooseEndpoint(now: now)),
      refreshesCredential: policy.refreshesCredential, offersCompression: policy.offersCompression,
      overridesHold: overridesHold)
    return Attempt(
      dial: dial, phase: .resolving, phaseDeadline: now + settings.limits.preparing + settings.limits.resolving,
      wholeDeadline: now + settings.limits.preparing + settings.limits.wholeAttempt, redirections: redirections)
  }
}
