import ByteStreams

/// Requests of operators, network changes and deadlines.
extension SessionStateMachine {
  /// Called when the gateway starts the session. An on-demand session waits until it is needed.
  package mutating func start(
    now: MonotonicTime, using generator: inout some RandomNumberGenerator
  ) -> [SessionAction] {
    guard case .stopped = state, settings.onDemand, !isShuttingDown else {
      // Many sessions may start at once, so their first attempts do not override a pause that a host requested
      // (`Retry-After`).
      return open(overridesPause: false, now: now)
    }
    desired = .up
    var actions: [SessionAction] = []
    move(to: .idle, because: .operatorRequest, now: now, &actions)
    return actions
  }

  /// Connects the session, also an idle on-demand session. Ends every wait, even a pause that a host requested: an
  /// operator's request takes precedence.
  package mutating func open(
    now: MonotonicTime, using generator: inout some RandomNumberGenerator
  ) -> [SessionAction] {
    open(overridesPause: true, now: now)
  }

  private mutating func open(overridesPause: Bool, now: MonotonicTime) -> [SessionAction] {
    // A shutdown is final: a connection opened now could send nothing.
    guard !isShuttingDown || desired == .up else { return [] }
    desired = .up
    lastUse = now
    var actions: [SessionAction] = []
    switch state {
    case .stopped, .idle:
      dial(because: .operatorRequest, overridesPause: overridesPause, now: now, &actions)
    case .offline, .backoff, .parked:
      policy.resetCounts()
      dial(because: .operatorRequest, overridesPause: overridesPause, now: now, &actions)
    case .closing(var closing):
      // The closing handshake of the old connection is completed first. The next state then depends on `desired`.
      closing.becomesIdle = false
      state = .closing(closing)
    case .attempting, .ready, .replacing, .switching:
      break
    }
    return actions
  }

  /// Closes the session. `code` is sent to the upstream.
  package mutating func close(code: UInt16 = 1000, now: MonotonicTime) -> [SessionAction] {
    close(code: code, because: code == 1001 ? .shutdown : .operatorRequest, now: now)
  }

  private mutating func close(code: UInt16, because cause: TransitionCause, now: MonotonicTime) -> [SessionAction] {
    desired = .down
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

  /// Begins the shutdown: the session is closed when the outbox is empty (`flushed`), or at `deadline`.
  ///
  /// - Parameter code: sent to the upstream; nil when the process shuts down, after which another process may continue
  ///   the session.
  package mutating func shutDown(
    by deadline: MonotonicTime, code: UInt16? = nil, now: MonotonicTime
  ) -> [SessionAction] {
    flushDeadline = deadline
    shutdownCode = code
    var actions: [SessionAction] = []
    // The outbox sends nothing during the cut of a hand-over (`Cut`), which may take longer than the flush.
    if case .switching(let old, let successor, _) = state {
      finishSwitch(from: old, to: successor, now: now, &actions)
    }
    return actions
  }

  /// Whether the session ends for good: the process shuts down, or a client has closed the session.
  package var isShuttingDown: Bool { flushDeadline != nil }

  /// Whether a shutdown still waits for the outbox to empty. False once an operator has closed the session, since
  /// nothing can be sent.
  package func isAwaitingFlush(now: MonotonicTime) -> Bool { desired == .up && now < flushDeadline ?? .zero }

  /// Called when the shutdown's flush is over: the outbox is closed, and it is empty or the deadline of the flush has
  /// passed.
  package mutating func flushed(now: MonotonicTime) -> [SessionAction] {
    // A session that an operator has closed is closing already.
    guard desired == .up else { return [] }
    if let shutdownCode { return close(code: shutdownCode, now: now) }
    return close(code: settings.closeCode == 1000 ? 1001 : settings.closeCode, because: .shutdown, now: now)
  }

  /// Called when there is something to send. Only an on-demand session connects in this case, if it is idle or is
  /// closing to become idle.
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

  /// Called when links, addresses or routes of this machine have changed. A connection is probed, not closed, since the
  /// change may not affect it. If a link, address or route was added, a wait ends, at most once per
  /// `networkAttemptInterval`. If links, addresses or routes were only removed, there is nothing new to try.
  package mutating func networkChanged(
    hasGained: Bool, now: MonotonicTime, using generator: inout some RandomNumberGenerator
  ) -> [SessionAction] {
    var actions: [SessionAction] = []
    switch state {
    case .offline(let until):
      if reserveNetworkAttempt(hasGained, now: now) {
        dial(because: .networkChanged, now: now, &actions)
      } else if hasGained {
        state = .offline(until: min(until, nextNetworkAttempt))
      }
    case .backoff(let until):
      if reserveNetworkAttempt(hasGained, now: now) {
        dial(because: .networkChanged, now: now, &actions)
      } else if hasGained {
        state = .backoff(until: min(until, nextNetworkAttempt))
      }
    case .ready(let connection), .replacing(let connection, successor: _), .switching(let connection, successor: _, _):
      if let counter = barrierPing(connection.generation, now: now, using: &generator) {
        actions.append(.ping(counter, connection.generation))
      }
    case .stopped, .idle, .parked, .attempting, .closing:
      break
    }
    return actions
  }

  /// Minimum time between two attempts caused by network changes. On some hosts the network changes constantly. These
  /// changes must not defeat the backoff.
  static var networkAttemptInterval: TimeSpan { .seconds(5) }

  private mutating func reserveNetworkAttempt(_ hasGained: Bool, now: MonotonicTime) -> Bool {
    guard hasGained, now >= nextNetworkAttempt else { return false }
    nextNetworkAttempt = now + Self.networkAttemptInterval
    return true
  }

  /// Opens a successor beside the ready connection. The old connection is closed once the successor is ready, or before
  /// the successor is opened if the upstream accepts only one connection. While an earlier replacement is in progress,
  /// only the latest request is kept. It is carried out when the earlier replacement is over.
  package mutating func replace(because reason: ReplacementReason, now: MonotonicTime) -> [SessionAction] {
    if postponeReplacement(because: reason, now: now) { return [] }
    guard case .ready(var connection) = state else { return [] }
    var actions: [SessionAction] = []
    guard !settings.isExclusive else {
      startClosing(connection, code: settings.closeCode, because: .replacement(reason), now: now, &actions)
      return actions
    }
    connection.replacement = reason
    let successor = makeAttempt(now: now)
    move(
      to: .replacing(connection, successor: successor), because: .replacement(reason), successor.dial.generation,
      now: now,
      &actions)
    actions.append(.dial(successor.dial))
    return actions
  }

  /// Applies new settings, from the next attempt on. A ready connection is replaced, an attempt in progress starts
  /// again, and a wait ends.
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
      guard !settings.isExclusive else {
        startClosing(connection, code: settings.closeCode, because: .replacement(reason), now: now, &actions)
        break
      }
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

  /// Called when `nextDeadline` has been reached. An early call does nothing.
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
        startClosing(
          connection, code: settings.closeCode, because: .unused, becomesIdle: true, now: now, &actions)
      }
    case .replacing(let connection, let successor):
      if now >= successor.deadline { timeOut(successor, now: now, using: &generator, &actions) }
      checkLiveness(connection, now: now, using: &generator, &actions)
    case .switching(let connection, let successor, let cut):
      if now >= cut.response.deadline {
        finishSwitch(from: connection, to: successor, now: now, &actions)
      } else {
        checkLiveness(connection, now: now, using: &generator, &actions)
      }
    case .closing(let closing):
      if now >= closing.response.deadline {
        actions.append(.discard(closing.generation))
        finishClosing(closing, now: now, using: &generator, &actions)
      }
    }
    return actions
  }

  /// Whether an on-demand session has had nothing to send for `idleAfter`.
  private func isUnused(_ now: MonotonicTime) -> Bool { settings.onDemand && now >= lastUse + settings.idleAfter }

  /// Called when a wait is over. An on-demand session that is unused becomes idle, so that it does not keep connecting
  /// to an unreachable upstream.
  private mutating func endWait(now: MonotonicTime, _ actions: inout [SessionAction]) {
    if isUnused(now) {
      move(to: .idle, because: .unused, now: now, &actions)
    } else {
      dial(because: .waited, now: now, &actions)
    }
  }

  /// Starts an attempt from a state without a socket.
  mutating func dial(
    because cause: TransitionCause, overridesPause: Bool = false, now: MonotonicTime, _ actions: inout [SessionAction]
  ) {
    let attempt = makeAttempt(overridesPause: overridesPause, now: now)
    move(to: .attempting(attempt), because: cause, now: now, &actions)
    actions.append(.dial(attempt.dial))
  }

  mutating func makeAttempt(
    target: Dial.Target? = nil, redirections: Int = 0, overridesPause: Bool = false, now: MonotonicTime
  ) -> Attempt {
    generation = generation.next
    let dial = Dial(
      generation: generation, target: target ?? .endpoint(policy.chooseEndpoint(now: now)),
      refreshesCredential: policy.refreshesCredential, offersCompression: policy.offersCompression,
      overridesPause: overridesPause)
    return Attempt(
      dial: dial, phase: .resolving, phaseDeadline: now + settings.limits.preparing + settings.limits.resolving,
      wholeDeadline: now + settings.limits.preparing + settings.limits.wholeAttempt, redirections: redirections)
  }
}
