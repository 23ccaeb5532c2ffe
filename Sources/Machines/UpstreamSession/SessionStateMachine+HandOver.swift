import ByteStreams

/// Replaces a ready connection without a break: a successor takes over first, and the old connection is closed
/// afterwards.
///
/// The first part of a hand-over is the *cut*: the queue is paused, and a ping is sent on the old connection. The pong
/// confirms the messages that this connection carried. If the upstream responds in order, the pong arrives after all
/// responses to these messages. Next a ping is sent on the successor. The second pong arrives after everything that the
/// upstream sent earlier on either connection. It ends the cut, and the successor begins to send. So `OverlapFilter`
/// can distinguish the responses on the two connections.
///
/// Only one hand-over is in progress at a time: the next hand-over begins when the old connection can deliver nothing
/// more.
extension SessionStateMachine {
  /// The timeout of each of the two pongs of a cut, and of the last pong after the predecessor is gone. It starts again
  /// each time that the upstream acknowledges output that was sent before the ping. After the timeout, the hand-over
  /// continues without the pong. In that case, an upstream that has stalled may process the messages of the two
  /// connections in another order, and a push may be passed on twice. The timeout is longer than two round trips by
  /// satellite.
  static var cutLimit: TimeSpan { .seconds(2) }

  /// The part of a hand-over in which both connections are ready and the queue is paused.
  struct Cut: Sendable {
    /// The connection whose pong is pending, and the counter of its ping.
    var awaited: Generation
    var counter: UInt64
    var response: ResponseDeadline
  }

  /// The connection that continues if a successor fails.
  var predecessor: ReadyConnection? {
    switch state {
    case .replacing(let connection, successor: _), .switching(let connection, successor: _, _): connection
    case .stopped, .idle, .offline, .backoff, .parked, .attempting, .ready, .closing: nil
    }
  }

  // MARK: Requests

  /// Whether a replacement is due but waits for the end of another replacement.
  package func isReplacementPostponed(now: MonotonicTime) -> Bool {
    switch state {
    case .ready(let connection): retiring != nil && connection.replaceAt <= now
    case .switching(_, let successor, _): successor.replaceAt <= now
    case .stopped, .idle, .offline, .backoff, .parked, .attempting, .replacing, .closing: false
    }
  }

  /// Postpones a replacement if another replacement is in progress. Returns false if the replacement can begin.
  mutating func postponeReplacement(because reason: ReplacementReason, now: MonotonicTime) -> Bool {
    switch state {
    case .ready(var connection) where retiring != nil:
      connection.replaceAt = now
      connection.replacement = reason
      state = .ready(connection)
    case .switching(let connection, var successor, let cut):
      successor.replaceAt = now
      successor.replacement = reason
      state = .switching(connection, successor: successor, cut)
    case .stopped, .idle, .offline, .backoff, .parked, .attempting, .ready, .replacing, .closing:
      return false
    }
    return true
  }

  /// Called when the connection cannot be used much longer. A successor is opened, unless a replacement is in progress.
  package mutating func replaceSoon(_ generation: Generation, now: MonotonicTime) {
    guard case .ready(var connection) = state, connection.generation == generation else { return }
    connection.replaceAt = min(connection.replaceAt, now)
    state = .ready(connection)
  }

  // MARK: The cut

  mutating func startSwitch(
    from old: ReadyConnection, to successor: ReadyConnection, now: MonotonicTime,
    using generator: inout some RandomNumberGenerator,
    _ actions: inout [SessionAction]
  ) {
    var old = old
    // A shutdown does not wait for the two pongs.
    guard old.liveness.isEnabled, successor.liveness.isEnabled, !isShuttingDown else {
      // The pong to this ping confirms the old connection's messages.
      let last = old.liveness.takeLastPing()
      finishSwitch(from: old, to: successor, now: now, &actions)
      if let last { actions.append(.ping(last, old.generation)) }
      return
    }
    let counter = old.liveness.takePing(now: now, using: &generator)
    let cut = Cut(awaited: old.generation, counter: counter, response: pongDeadline(now: now))
    state = .switching(old, successor: successor, cut)
    actions.append(.pauseSending(old.generation, successor: successor.generation))
    actions.append(.ping(counter, old.generation))
  }

  /// Called after `pongReceived`. Continues a hand-over that waited for this pong.
  package mutating func handOverPongReceived(
    _ counter: UInt64, _ reported: Generation, now: MonotonicTime, using generator: inout some RandomNumberGenerator
  ) -> [SessionAction] {
    var actions: [SessionAction] = []
    if case .switching(let old, var successor, var cut) = state, cut.awaited == reported, counter >= cut.counter {
      if reported == successor.generation {
        finishSwitch(from: old, to: successor, now: now, &actions)
      } else {
        cut.awaited = successor.generation
        cut.counter = successor.liveness.takePing(now: now, using: &generator)
        cut.response = pongDeadline(now: now)
        state = .switching(old, successor: successor, cut)
        actions.append(.ping(cut.counter, cut.awaited))
      }
    } else if case .gone(let ping)? = retiring?.phase, connection?.generation == reported, counter >= ping {
      retiring = nil
      actions.append(.endOverlap)
    }
    return actions
  }

  private func pongDeadline(now: MonotonicTime) -> ResponseDeadline {
    // Bytes that may be in the buffers of a proxy (`ResponseDeadline`) do not extend this deadline: clients wait during
    // the cut, and their messages may expire.
    ResponseDeadline(Self.cutLimit, from: now, received: nil)
  }

  /// Lets the successor send from now on. Pushes of the old connection are read for `overlap`.
  mutating func finishSwitch(
    from old: ReadyConnection, to successor: ReadyConnection, now: MonotonicTime, _ actions: inout [SessionAction]
  ) {
    actions.append(.stopSending(old.generation, closedAsTooBig: false))
    let response = ResponseDeadline(settings.overlap, from: now, received: nil)
    retiring = Retiring(connection: old, phase: .listening, response: response)
    takeOver(successor, now: now, &actions)
  }

  /// Called when a connection is ready, either the first or a successor.
  mutating func takeOver(_ connection: ReadyConnection, now: MonotonicTime, _ actions: inout [SessionAction]) {
    connections += 1
    // The connection starts to send before `ready` is reported, so that a client that reads `ready` can send.
    actions.append(.startSending(connection.generation))
    move(to: .ready(connection), because: .progress, connection.generation, now: now, &actions)
  }

  /// Called when a ready successor is gone. The old connection continues. A postponed replacement begins at once.
  mutating func loseSuccessor(
    _ successor: ReadyConnection, _ loss: ConnectionLoss, now: MonotonicTime,
    using generator: inout some RandomNumberGenerator, _ actions: inout [SessionAction]
  ) {
    let isReplacementDue = successor.replaceAt <= now
    dropAttempt(successor.dial, loss, now: now, using: &generator, &actions)
    guard case .ready(var connection) = state else { preconditionFailure("no predecessor continues in \(observed)") }
    actions.append(.resumeSending(connection.generation))
    guard isReplacementDue else { return }
    connection.replaceAt = now
    connection.replacement = successor.replacement
    state = .ready(connection)
  }

  // MARK: The predecessor's end

  /// Called when a deadline of the predecessor has passed: the deadline of its overlap, of its closing handshake, or of
  /// the last pong.
  mutating func endRetiring(
    now: MonotonicTime, using generator: inout some RandomNumberGenerator, _ actions: inout [SessionAction]
  ) {
    switch retiring?.phase {
    case .listening:
      releasePredecessor(now: now, &actions)
    case .closing:
      if let old = retiring { actions.append(.discard(old.connection.generation)) }
      predecessorEnded(now: now, using: &generator, &actions)
    case .gone:
      retiring = nil
      actions.append(.endOverlap)
    case nil:
      break
    }
  }

  /// Closes the predecessor: its overlap is over, or its successor has ended.
  mutating func releasePredecessor(now: MonotonicTime, _ actions: inout [SessionAction]) {
    guard var old = retiring, old.phase == .listening else { return }
    actions.append(.close(old.connection.generation, code: settings.closeCode))
    old.phase = .closing
    // Bytes that may be in the buffers of a proxy (`ResponseDeadline`) do not extend this deadline. A message that the
    // cut has interrupted can be sent on another connection only when this connection has ended.
    old.response = closeDeadline(now: now)
    retiring = old
  }

  /// Called when the predecessor delivers nothing more. A ping is sent on the successor now. Until its pong arrives,
  /// the successor may still repeat pushes of the predecessor.
  mutating func predecessorEnded(
    now: MonotonicTime, using generator: inout some RandomNumberGenerator, _ actions: inout [SessionAction]
  ) {
    guard var old = retiring, case .ready(var connection) = state else {
      retiring = nil
      actions.append(.endOverlap)
      return
    }
    var ping = UInt64.max
    if connection.liveness.isEnabled {
      ping = connection.liveness.takePing(now: now, using: &generator)
      state = .ready(connection)
      actions.append(.ping(ping, connection.generation))
    }
    old.phase = .gone(ping: ping)
    old.response = pongDeadline(now: now)
    retiring = old
  }

  /// Called when a new connection opens. Drops a predecessor that is still closing although its successor has ended.
  /// `OverlapFilter` does not merge the pushes of such a predecessor with the pushes of the new connection. So if the
  /// predecessor were kept, pushes would be delivered twice.
  mutating func discardPredecessor(_ actions: inout [SessionAction]) {
    guard case .attempting = state, let old = retiring else { return }
    if let generation = old.generation { actions.append(.discard(generation)) }
    retiring = nil
    actions.append(.endOverlap)
  }
}
