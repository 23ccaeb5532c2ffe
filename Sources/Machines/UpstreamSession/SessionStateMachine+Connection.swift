import ByteStreams

/// Reports of an open connection.
extension SessionStateMachine {
  /// Called when bytes have arrived, on the path of every read. The call costs one write to memory, unless the
  /// connection was quiet.
  @inline(__always)
  package mutating func bytesReceived(_ reported: Generation, now: MonotonicTime) -> [SessionAction] {
    withLiveness(reported) { $0.bytesReceived(now: now) }
    guard observed == .suspect, connection?.generation == reported else { return [] }
    return endQuietPeriod(now: now)
  }

  /// Called while the gateway does not read from this connection, because it cannot take more data: before each
  /// `deadlineReached`, and when reading continues. During such a pause, silence says nothing about the upstream and
  /// must not end the connection.
  package mutating func readingIsPaused(_ reported: Generation, now: MonotonicTime) {
    withLiveness(reported) { $0.bytesReceived(now: now) }
    withHeartbeat(reported) { $0.readingIsPaused(now: now) }
  }

  /// Called when a pong with this counter has arrived. Returns false if no such ping was sent.
  package mutating func pongReceived(_ counter: UInt64, _ reported: Generation, now: MonotonicTime) -> Bool {
    var isOurs = false
    withLiveness(reported) { isOurs = $0.pongReceived(counter, now: now) }
    return isOurs
  }

  /// Returns a counter for a ping after messages. The pong to this ping confirms all these messages. Returns nil if the
  /// connection is gone or sends no pings.
  package mutating func barrierPing(
    _ reported: Generation, now: MonotonicTime, using generator: inout some RandomNumberGenerator
  ) -> UInt64? {
    var counter: UInt64?
    withLiveness(reported) { if $0.isEnabled { counter = $0.takePing(now: now, using: &generator) } }
    return counter
  }

  /// Called when the response to one of the gateway's heartbeats has arrived.
  package mutating func heartbeatResponseReceived(_ reported: Generation) {
    withHeartbeat(reported) { $0.responseReceived() }
  }

  /// Called when a heartbeat message of the upstream has arrived.
  package mutating func heartbeatReceived(_ reported: Generation, now: MonotonicTime) {
    withHeartbeat(reported) { $0.heartbeatReceived(now: now) }
  }

  /// Called when the upstream's close frame has arrived; `code` is 1005 if the frame had no code. The gateway responds,
  /// and waits for the end of the stream.
  ///
  /// - Parameter response: the code with which the gateway responds; nil means `code`.
  package mutating func closeReceived(
    code: UInt16, respondingWith response: UInt16? = nil, _ reported: Generation, now: MonotonicTime,
    using generator: inout some RandomNumberGenerator
  ) -> [SessionAction] {
    var actions: [SessionAction] = []
    let response = response ?? code
    let loss = ConnectionLoss.closed(code: code)
    // RFC 6455 §5.5.1: the response typically echoes the code. 1005 must not appear in a frame, so the driver then
    // sends no code.
    switch state {
    case .ready(let connection) where connection.generation == reported:
      actions.append(.stopSending(reported, closedAsTooBig: code == 1009))
      actions.append(.close(reported, code: response))
      releasePredecessor(now: now, &actions)
      move(to: .closing(closing(of: connection, loss, now: now)), because: .lost(loss), reported, now: now, &actions)
    case .replacing(let connection, let successor) where connection.generation == reported:
      actions.append(.stopSending(reported, closedAsTooBig: code == 1009))
      actions.append(.close(reported, code: response))
      retiring = Retiring(connection: connection, phase: .closing, response: closeDeadline(now: now))
      policy.recordConnection(readyFor: readyTime(of: connection, now: now))
      move(to: .attempting(successor), because: .lost(loss), reported, now: now, &actions)
    case .attempting(let attempt) where attempt.dial.generation == reported && attempt.phase == .settingUp:
      actions.append(.close(reported, code: response))
      let closing = Closing(
        generation: reported, response: closeDeadline(now: now), loss: loss, readyFor: .zero)
      move(to: .closing(closing), because: .lost(loss), reported, now: now, &actions)
    case .replacing(_, let successor) where successor.dial.generation == reported:
      actions.append(.close(reported, code: response))
      dropAttempt(successor.dial, loss, now: now, using: &generator, &actions)
    case .switching(let connection, let successor, _) where connection.generation == reported:
      actions.append(.stopSending(reported, closedAsTooBig: code == 1009))
      actions.append(.close(reported, code: response))
      retiring = Retiring(connection: connection, phase: .closing, response: closeDeadline(now: now))
      takeOver(successor, now: now, &actions)
    case .switching(_, let successor, _) where successor.generation == reported:
      actions.append(.close(reported, code: response))
      loseSuccessor(successor, loss, now: now, using: &generator, &actions)
    case .stopped, .idle, .offline, .backoff, .parked, .attempting, .ready, .replacing, .switching, .closing:
      if var old = retiring, old.generation == reported, old.phase == .listening {
        actions.append(.close(reported, code: response))
        old.phase = .closing
        old.response = closeDeadline(now: now)
        retiring = old
      }
    }
    return actions
  }

  /// Called when the socket is gone: end of stream, an error, or a protocol violation for which the gateway failed the
  /// connection.
  package mutating func connectionLost(
    _ loss: ConnectionLoss, _ reported: Generation, now: MonotonicTime,
    using generator: inout some RandomNumberGenerator
  ) -> [SessionAction] {
    var actions: [SessionAction] = []
    if retiring?.generation == reported {
      predecessorEnded(now: now, using: &generator, &actions)
      actions.append(.discard(reported))
      return actions
    }
    switch state {
    case .ready(let connection) where connection.generation == reported:
      dropReady(connection, loss, now: now, using: &generator, &actions)
    case .replacing(let connection, let successor) where connection.generation == reported:
      actions.append(.stopSending(reported, closedAsTooBig: false))
      if case .violation(let code) = loss { actions.append(.close(reported, code: code)) }
      actions.append(.discard(reported))
      policy.recordConnection(readyFor: readyTime(of: connection, now: now))
      move(to: .attempting(successor), because: .lost(loss), reported, now: now, &actions)
    case .replacing(_, let successor) where successor.dial.generation == reported:
      dropAttempt(successor.dial, loss, now: now, using: &generator, &actions)
    case .switching(let connection, let successor, _) where connection.generation == reported:
      actions.append(.stopSending(reported, closedAsTooBig: false))
      if case .violation(let code) = loss { actions.append(.close(reported, code: code)) }
      actions.append(.discard(reported))
      takeOver(successor, now: now, &actions)
    case .switching(_, let successor, _) where successor.generation == reported:
      loseSuccessor(successor, loss, now: now, using: &generator, &actions)
    case .attempting(let attempt) where attempt.dial.generation == reported:
      dropAttempt(attempt.dial, loss, now: now, using: &generator, &actions)
    case .closing(let closing) where closing.generation == reported:
      actions.append(.discard(reported))
      finishClosing(closing, now: now, using: &generator, &actions)
    case .stopped, .idle, .offline, .backoff, .parked, .attempting, .ready, .replacing, .switching, .closing:
      actions.append(.discard(reported))
    }
    return actions
  }

  // MARK: Output

  /// Called after a ping, heartbeat, setup message or close frame was queued behind the bytes before `position` of the
  /// connection's output.
  package mutating func outputQueued(_ sent: SentControl, at position: UInt64, _ reported: Generation) {
    switch sent {
    case .ping:
      withLiveness(reported) { $0.pingQueued(at: position) }
      if case .switching(let old, let successor, var cut) = state, cut.awaited == reported {
        cut.response.queued(through: position)
        state = .switching(old, successor: successor, cut)
      }
      if case .gone? = retiring?.phase, connection?.generation == reported {
        retiring?.response.queued(through: position)
      }
    case .heartbeat:
      withHeartbeat(reported) { $0.queued(at: position) }
    case .setup(let step):
      guard var attempt = attempt(reported), attempt.step == step else { return }
      attempt.response?.queued(through: position)
      setAttempt(attempt)
    case .close:
      if case .closing(var closing) = state, closing.generation == reported {
        closing.response.queued(through: position)
        state = .closing(closing)
      } else if retiring?.generation == reported, retiring?.phase == .closing {
        retiring?.response.queued(through: position)
      }
    }
  }

  /// Called before `deadlineReached`. The upstream, or a proxy in front of it, has acknowledged every byte of the
  /// connection's output before `position`, by `time` at the latest.
  package mutating func outputAcknowledged(
    through position: UInt64, at time: MonotonicTime, _ reported: Generation, now: MonotonicTime
  ) -> [SessionAction] {
    withLiveness(reported) { $0.outputAcknowledged(through: position, at: time) }
    withHeartbeat(reported) { $0.outputAcknowledged(through: position, at: time) }
    if var attempt = attempt(reported), attempt.response != nil {
      attempt.response?.acknowledged(through: position, at: time)
      setAttempt(attempt)
    }
    if case .closing(var closing) = state, closing.generation == reported {
      closing.response.acknowledged(through: position, at: time)
      state = .closing(closing)
    }
    if case .switching(let old, let successor, var cut) = state, cut.awaited == reported {
      cut.response.acknowledged(through: position, at: time)
      state = .switching(old, successor: successor, cut)
    }
    switch retiring?.phase {
    case .closing where retiring?.generation == reported, .gone where connection?.generation == reported:
      retiring?.response.acknowledged(through: position, at: time)
    default: break
    }
    guard observed == .suspect, let connection, connection.generation == reported,
      connection.liveness.isRenewed(now: now)
    else { return [] }
    return endQuietPeriod(now: now)
  }

  // MARK: Ready

  mutating func becomeReady(
    _ attempt: Attempt, now: MonotonicTime, using generator: inout some RandomNumberGenerator,
    _ actions: inout [SessionAction]
  ) {
    var replaceAt = MonotonicTime.distantFuture
    if let age = settings.maximumAge {
      let spread = age / 20
      replaceAt = now + Backoff.uniform(age - spread, age + spread, using: &generator)
    }
    var heartbeat = ApplicationHeartbeat(attempt.heartbeat ?? settings.heartbeat, now: now)
    // The upstream expects the announced heartbeats from its open packet on, so their schedule continues.
    if let beats = attempt.beats, beats.sends { heartbeat = beats }
    let connection = ReadyConnection(
      dial: attempt.dial, since: now, liveness: Liveness(settings.liveness, now: now, using: &generator),
      heartbeat: heartbeat, replaceAt: replaceAt)
    lastUse = now
    if case .replacing(let old, successor: _) = state {
      startSwitch(from: old, to: connection, now: now, using: &generator, &actions)
    } else {
      discardPredecessor(&actions)
      takeOver(connection, now: now, &actions)
    }
  }

  mutating func checkLiveness(
    _ connection: ReadyConnection, now: MonotonicTime, using generator: inout some RandomNumberGenerator,
    _ actions: inout [SessionAction]
  ) {
    let before = observed
    var verdict = Liveness.Verdict.alive
    withLiveness(connection.generation) { verdict = $0.check(now: now, using: &generator) }
    switch verdict {
    case .alive: break
    case .ping(let counter): actions.append(.ping(counter, connection.generation))
    case .quiet: report(from: before, because: .quiet, connection.generation, now: now, &actions)
    case .dead:
      let loss = connection.liveness.isBeingSent ? ConnectionLoss.stalled : .silence
      actions += connectionLost(loss, connection.generation, now: now, using: &generator)
      return
    }
    var beat = ApplicationHeartbeat.Verdict.alive
    withConnection(connection.generation) { beat = $0.heartbeat.check(now: now) }
    switch beat {
    case .alive: break
    case .beat(let counter): actions.append(.sendHeartbeat(counter, connection.generation))
    case .dead: actions += connectionLost(.heartbeat, connection.generation, now: now, using: &generator)
    }
  }

  private mutating func endQuietPeriod(now: MonotonicTime) -> [SessionAction] {
    let before = observed
    guard let generation = connection?.generation else { return [] }
    withLiveness(generation) { _ = $0.endQuiet() }
    var actions: [SessionAction] = []
    report(from: before, because: .bytesReceived, generation, now: now, &actions)
    return actions
  }

  // MARK: Ends

  mutating func startClosing(
    _ connection: ReadyConnection, code: UInt16, because cause: TransitionCause, becomesIdle: Bool = false,
    now: MonotonicTime,
    _ actions: inout [SessionAction]
  ) {
    var closing = closing(of: connection, nil, now: now)
    closing.becomesIdle = becomesIdle
    if case .replacement = cause { closing.reopening = cause }
    actions.append(.stopSending(connection.generation, closedAsTooBig: false))
    sendClose(connection, code: code, &actions)
    releasePredecessor(now: now, &actions)
    move(to: .closing(closing), because: cause, connection.generation, now: now, &actions)
  }

  private func sendClose(_ connection: ReadyConnection, code: UInt16, _ actions: inout [SessionAction]) {
    var liveness = connection.liveness
    if let counter = liveness.takeLastPing() { actions.append(.ping(counter, connection.generation)) }
    actions.append(.close(connection.generation, code: code))
  }

  /// Called after the closing handshake or its timeout. The next state depends on `desired` and on why the connection
  /// ended.
  mutating func finishClosing(
    _ closing: Closing, now: MonotonicTime, using generator: inout some RandomNumberGenerator,
    _ actions: inout [SessionAction]
  ) {
    switch desired {
    case .down:
      move(to: .stopped, because: .closed, closing.generation, now: now, &actions)
    case .up:
      if let loss = closing.loss {
        let decision = policy.lost(loss, readyFor: closing.readyFor, using: &generator)
        apply(decision, failed: nil, because: .lost(loss), now: now, using: &generator, &actions)
      } else if closing.becomesIdle {
        move(to: .idle, because: .closed, closing.generation, now: now, &actions)
      } else {
        dial(
          because: closing.reopening, overridesPause: closing.reopening == .operatorRequest, now: now, &actions)
      }
    }
  }

  private mutating func dropReady(
    _ connection: ReadyConnection, _ loss: ConnectionLoss, now: MonotonicTime,
    using generator: inout some RandomNumberGenerator,
    _ actions: inout [SessionAction]
  ) {
    actions.append(.stopSending(connection.generation, closedAsTooBig: false))
    if case .violation(let code) = loss { actions.append(.close(connection.generation, code: code)) }
    actions.append(.discard(connection.generation))
    releasePredecessor(now: now, &actions)
    let decision = policy.lost(loss, readyFor: readyTime(of: connection, now: now), using: &generator)
    apply(decision, failed: connection.dial, because: .lost(loss), now: now, using: &generator, &actions)
  }

  /// Called when a connection ended during its setup.
  mutating func dropAttempt(
    _ dial: Dial, _ loss: ConnectionLoss, now: MonotonicTime,
    using generator: inout some RandomNumberGenerator, _ actions: inout [SessionAction]
  ) {
    if case .violation(let code) = loss { actions.append(.close(dial.generation, code: code)) }
    actions.append(.discard(dial.generation))
    let decision = policy.lost(loss, readyFor: .zero, using: &generator)
    apply(decision, failed: dial, because: .lost(loss), now: now, using: &generator, &actions)
  }

  private func closing(of connection: ReadyConnection, _ loss: ConnectionLoss?, now: MonotonicTime) -> Closing {
    // An upstream that has sent its close frame need not read the rest of its input. So its acknowledgements do not
    // extend the deadline.
    let received = loss == nil ? connection.liveness.receivedOutput : nil
    return Closing(
      generation: connection.generation, response: closeDeadline(received: received, now: now), loss: loss,
      readyFor: readyTime(of: connection, now: now))
  }

  /// The deadline of a closing handshake.
  ///
  /// - Parameter received: see `ResponseDeadline`.
  func closeDeadline(received: UInt64? = nil, now: MonotonicTime) -> ResponseDeadline {
    ResponseDeadline(settings.limits.closing, from: now, received: received)
  }

  /// How long a connection has been ready. At least a nanosecond, since zero means 'never ready'.
  private func readyTime(of connection: ReadyConnection, now: MonotonicTime) -> TimeSpan {
    max(now - connection.since, .nanoseconds(1))
  }

  @inline(__always)
  private mutating func withLiveness(_ reported: Generation, _ body: (inout Liveness) -> Void) {
    withConnection(reported) { body(&$0.liveness) }
  }

  /// Calls `body` with the heartbeat of the connection, even during its setup.
  mutating func withHeartbeat(_ reported: Generation, _ body: (inout ApplicationHeartbeat) -> Void) {
    withConnection(reported) { body(&$0.heartbeat) }
    guard var attempt = attempt(reported), var beats = attempt.beats else { return }
    body(&beats)
    attempt.beats = beats
    setAttempt(attempt)
  }

  @inline(__always)
  private mutating func withConnection(_ reported: Generation, _ body: (inout ReadyConnection) -> Void) {
    if retiring?.generation == reported, retiring?.phase == .listening {
      if var old = retiring {
        body(&old.connection)
        retiring = old
      }
      return
    }
    switch state {
    case .ready(var connection):
      guard connection.generation == reported else { return }
      body(&connection)
      state = .ready(connection)
    case .replacing(var connection, let successor):
      guard connection.generation == reported else { return }
      body(&connection)
      state = .replacing(connection, successor: successor)
    case .switching(var connection, var successor, let cut):
      if connection.generation == reported {
        body(&connection)
      } else if successor.generation == reported {
        body(&successor)
      }
      state = .switching(connection, successor: successor, cut)
    case .stopped, .idle, .offline, .backoff, .parked, .attempting, .closing:
      break
    }
  }
}
