import ByteStreams

/// Keeps one upstream session connected, through any number of sockets: it decides, a driver does.
///
/// Each input is one method; it answers the actions that follow, to be carried out in order. After every input the driver
/// waits until `nextDeadline` and then calls `deadlineReached`: there is one timer for all that is to come.
///
/// Two rules keep it honest. `desired` is kept apart from what is observed, so that a lost connection never makes a session
/// forget that it is wanted, nor a pending redial that it is not. And whatever a socket reports carries the generation of
/// its dial, so that a late report of an older socket is dropped.
package struct SessionStateMachine: Sendable {
  /// What is observed, with all that belongs to it and nothing else.
  enum State: Sendable {
    case stopped
    case idle
    case offline(until: MonotonicTime)
    case backoff(until: MonotonicTime)
    /// nil: until an operator says otherwise.
    case parked(until: MonotonicTime?)
    case attempting(Attempt)
    case ready(ReadyConnection)
    case replacing(ReadyConnection, successor: Attempt)
    /// Both are ready; the queue waits for the pongs that make the cut clean.
    case switching(ReadyConnection, successor: ReadyConnection, Cut)
    case closing(Closing)
  }

  /// A dial on its way to `ready`.
  struct Attempt: Sendable {
    let dial: Dial
    var phase: AttemptPhase
    var phaseDeadline: MonotonicTime
    /// For everything up to the answered upgrade.
    var wholeDeadline: MonotonicTime
    /// The setup step whose response is awaited.
    var step = 0
    /// Redirections that were followed to get here.
    var redirections = 0

    var deadline: MonotonicTime { min(phaseDeadline, wholeDeadline) }
  }

  /// A connection that is ready.
  struct ReadyConnection: Sendable {
    let dial: Dial
    let since: MonotonicTime
    var liveness: Liveness
    var heartbeat: ApplicationHeartbeat
    /// When a successor is opened, and why; `.distantFuture` where none is planned.
    var replaceAt: MonotonicTime
    var replacement = ReplacementReason.maximumAge

    var generation: Generation { dial.generation }

    /// When the peer is to be looked after next.
    var nextCheck: MonotonicTime { min(liveness.nextDeadline, heartbeat.nextDeadline) }
  }

  /// A connection that has been replaced: it sends nothing more, and what it still brings is listened to for a while, since
  /// the upstream may not have begun to send to its successor. Then it is closed. While there is one, no successor is opened.
  struct Retiring: Sendable {
    enum Phase: Sendable, Equatable {
      case listening
      case closing
      /// It is gone. The pong to this ping, on its successor, comes after everything that the upstream sent to both.
      case gone(ping: UInt64)
    }

    var connection: ReadyConnection
    var phase: Phase
    /// When it is closed, when its closing handshake must be over, or when the last pong is no longer awaited.
    var deadline: MonotonicTime

    /// nil once it is gone.
    var generation: Generation? { if case .gone = phase { nil } else { connection.generation } }
  }

  /// A connection whose closing handshake is under way.
  struct Closing: Sendable {
    let generation: Generation
    let deadline: MonotonicTime
    /// What comes after: nil when we wanted the end.
    var loss: ConnectionLoss?
    let readyFor: TimeSpan
    /// Whether an on-demand session falls idle after it.
    var becomesIdle = false
    /// Why a session that is wanted again is dialled after it.
    var reopening = TransitionCause.operatorRequest
  }

  var settings: SessionSettings
  var state = State.stopped
  /// The predecessor of a connection that has replaced it, until it is gone.
  var retiring: Retiring?
  var policy: ReconnectPolicy
  /// Before this a change of the network does not end a wait again.
  var nextNetworkDial = MonotonicTime.zero
  /// When something was last to be sent, or could be, for sessions opened on demand.
  var lastUse = MonotonicTime.zero
  package internal(set) var desired = DesiredState.down
  /// Set once the process ends: until when the outbox may be emptied.
  var flushDeadline: MonotonicTime?
  /// When the present state was entered, by its name.
  var since = MonotonicTime.zero
  /// The newest dial.
  package internal(set) var generation = Generation.none
  package internal(set) var history = TransitionHistory()
  package internal(set) var transitions: UInt64 = 0
  /// Connections that have become ready.
  package internal(set) var connections: UInt64 = 0

  package init(_ settings: SessionSettings) {
    self.settings = settings
    policy = ReconnectPolicy(settings)
  }

  /// The state by its name.
  package var observed: SessionState {
    switch state {
    case .stopped: .stopped
    case .idle: .idle
    case .offline: .offline
    case .backoff: .backoff
    case .parked: .parked
    case .attempting(let attempt): attempt.phase.state
    case .ready(let connection): connection.liveness.isQuiet ? .suspect : .ready
    case .replacing, .switching: .replacing
    case .closing: .closing
    }
  }

  /// The connection into which the outbox flows.
  package var sending: Generation? {
    switch state {
    case .ready(let connection), .replacing(let connection, successor: _), .switching(let connection, successor: _, _):
      connection.generation
    case .stopped, .idle, .offline, .backoff, .parked, .attempting, .closing: nil
    }
  }

  /// What is published of the session at this moment.
  package var figures: SessionFigures {
    SessionFigures(
      desired: desired, state: observed, generation: generation, since: since, failures: failures,
      connections: connections, nextDial: nextDial, roundTrip: roundTrip)
  }

  /// Failed attempts since the last stable connection.
  package var failures: Int { policy.backoff.failures }

  /// When the next dial is due, be it after a wait or to replace the connection; nil where none is planned.
  package var nextDial: MonotonicTime? {
    switch state {
    case .offline(let until), .backoff(let until): until
    case .parked(let until): until
    case .ready(let connection):
      connection.replaceAt < .distantFuture ? max(connection.replaceAt, retiring?.deadline ?? .zero) : nil
    case .stopped, .idle, .attempting, .replacing, .switching, .closing: nil
    }
  }

  /// The last round trip measured on the connection that is ready.
  package var roundTrip: TimeSpan? { connection?.liveness.roundTrip }

  var connection: ReadyConnection? {
    switch state {
    case .ready(let connection), .replacing(let connection, successor: _), .switching(let connection, successor: _, _):
      connection
    case .stopped, .idle, .offline, .backoff, .parked, .attempting, .closing: nil
    }
  }

  /// When `deadlineReached` is to be called; `.distantFuture` for never.
  package var nextDeadline: MonotonicTime {
    let own: MonotonicTime =
      switch state {
      case .stopped, .idle: .distantFuture
      case .offline(let until), .backoff(let until): until
      case .parked(let until): until ?? .distantFuture
      case .attempting(let attempt): attempt.deadline
      case .ready(let connection): deadline(of: connection)
      case .replacing(let connection, let successor): min(connection.nextCheck, successor.deadline)
      case .switching(let connection, successor: _, let cut): min(connection.nextCheck, cut.deadline)
      case .closing(let closing): closing.deadline
      }
    let flush = desired == .up ? flushDeadline : nil
    return min(own, retiring?.deadline ?? .distantFuture, flush ?? .distantFuture)
  }

  func deadline(of connection: ReadyConnection) -> MonotonicTime {
    var next = connection.nextCheck
    if retiring == nil { next = min(next, connection.replaceAt) }
    if settings.onDemand { next = min(next, lastUse + settings.idleAfter) }
    return next
  }

  /// Moves to `next`, and reports it if the name of the state changes.
  mutating func move(
    to next: State, because cause: TransitionCause, _ concerned: Generation? = nil, now: MonotonicTime,
    _ actions: inout [SessionAction]
  ) {
    let before = observed
    let measured = roundTrip
    state = next
    report(from: before, because: cause, concerned, measured: measured, now: now, &actions)
  }

  mutating func report(
    from before: SessionState, because cause: TransitionCause, _ concerned: Generation? = nil,
    measured: TimeSpan? = nil, now: MonotonicTime, _ actions: inout [SessionAction]
  ) {
    let after = observed
    guard before != after else { return }
    transitions += 1
    since = now
    let transition = SessionTransition(
      sequence: transitions, from: before, to: after, cause: cause, generation: concerned ?? generation, time: now,
      roundTrip: measured ?? roundTrip, nextDial: nextDial)
    history.append(transition)
    actions.append(.report(transition))
  }
}
