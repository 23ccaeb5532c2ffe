import ByteStreams

/// Keeps one upstream session connected across any number of sockets. It decides; a driver carries out its actions.
///
/// Each input is a method that returns actions, to be carried out in order. After every input the driver arms one timer
/// for `nextDeadline`, and calls `deadlineReached` when it fires.
///
/// It keeps two invariants. `desired` is separate from the observed state, so a lost connection does not change the
/// operator's request, and a pending attempt does not outlive that request. Every report of a socket carries the
/// generation of its attempt, so late reports of an older socket are dropped.
///
/// The type is not copyable: a value takes 1.7 KB, and a read of one field would copy the whole value.
package struct SessionStateMachine: ~Copyable, Sendable {
  /// The observed state, with exactly the values that belong to it.
  enum State: Sendable {
    case stopped
    case idle
    case offline(until: MonotonicTime)
    case backoff(until: MonotonicTime)
    /// nil means until an operator opens the session.
    case parked(until: MonotonicTime?)
    case attempting(Attempt)
    case ready(ReadyConnection)
    case replacing(ReadyConnection, successor: Attempt)
    /// Both connections are ready. The queue sends nothing until both pongs of the cut have arrived or timed out.
    case switching(ReadyConnection, successor: ReadyConnection, Cut)
    case closing(Closing)
  }

  /// A connection attempt, up to `ready`.
  struct Attempt: Sendable {
    let dial: Dial
    var phase: AttemptPhase
    var phaseDeadline: MonotonicTime
    /// The deadline of the response to the opening handshake, across all phases.
    var wholeDeadline: MonotonicTime
    /// The deadline of the pending setup step. After this deadline, the setup continues without the response if the
    /// step is optional.
    var stepDeadline = MonotonicTime.distantFuture
    /// The pending setup step.
    var step = 0
    /// The response to the pending step, and the time since which it is awaited. While the upstream acknowledges
    /// earlier output, the deadlines of the setup are postponed.
    var response: ResponseDeadline?
    var awaitedSince = MonotonicTime.zero
    /// Number of redirections followed so far.
    var redirections = 0
    /// The announced heartbeats merged with the configured heartbeats; nil if the upstream has announced none.
    var heartbeat: HeartbeatSettings?
    /// The state of the announced heartbeats, which begin before the setup is complete.
    var beats: ApplicationHeartbeat?

    var deadline: MonotonicTime {
      min(min(phaseEnd, wholeDeadline, stepEnd), beats?.nextDeadline ?? .distantFuture)
    }

    /// `phaseDeadline` and `stepDeadline`, postponed by the time in which the upstream has acknowledged output.
    var phaseEnd: MonotonicTime { phaseDeadline + postponement }
    var stepEnd: MonotonicTime { stepDeadline + postponement }

    private var postponement: TimeSpan { response?.postponement(from: awaitedSince) ?? .zero }
  }

  /// A connection that is ready.
  struct ReadyConnection: Sendable {
    let dial: Dial
    let since: MonotonicTime
    var liveness: Liveness
    var heartbeat: ApplicationHeartbeat
    /// When to open a successor, and why; `.distantFuture` if none is planned.
    var replaceAt: MonotonicTime
    var replacement = ReplacementReason.maximumAge

    var generation: Generation { dial.generation }

    /// When liveness and heartbeats must be checked next.
    var nextCheck: MonotonicTime { min(liveness.nextDeadline, heartbeat.nextDeadline) }
  }

  /// A connection that has been replaced. It sends nothing more, but its pushes are read for a while, since the
  /// upstream may not have started to send to its successor. After that, it is closed. While there is a retiring
  /// connection, no successor is opened.
  struct Retiring: Sendable {
    enum Phase: Sendable, Equatable {
      case listening
      case closing
      /// The connection is gone, and this ping was sent on its successor. The pong to this ping arrives after
      /// everything that the upstream sent on either connection before.
      case gone(ping: UInt64)
    }

    var connection: ReadyConnection
    var phase: Phase
    /// The deadline of the phase: when to close the connection, when its closing handshake times out, or when the last
    /// pong is no longer awaited.
    var response: ResponseDeadline

    var deadline: MonotonicTime { response.deadline }
    /// nil once the connection is gone.
    var generation: Generation? { if case .gone = phase { nil } else { connection.generation } }
  }

  /// A connection whose closing handshake is in progress.
  struct Closing: Sendable {
    let generation: Generation
    var response: ResponseDeadline
    /// Why the upstream ended the connection, which decides the next state; nil if the gateway closed it.
    var loss: ConnectionLoss?
    let readyFor: TimeSpan
    /// Whether an on-demand session becomes idle afterwards.
    var becomesIdle = false
    /// Why the session connects again afterwards, if `desired` is `up`.
    var reopening = TransitionCause.operatorRequest
  }

  var settings: SessionSettings
  var state = State.stopped
  /// The replaced connection, until it is gone.
  var retiring: Retiring?
  var policy: ReconnectPolicy
  /// Before this time, no further network change ends a wait.
  var nextNetworkAttempt = MonotonicTime.zero
  /// When an on-demand session last had something to send, was opened or became ready.
  var lastUse = MonotonicTime.zero
  package internal(set) var desired = DesiredState.down
  /// The deadline for flushing the outbox; nil until the shutdown of the session begins.
  var flushDeadline: MonotonicTime?
  /// The close code that is sent when the shutdown's flush is over; nil if the process shuts down.
  var shutdownCode: UInt16?
  /// When the observed state was entered.
  var since = MonotonicTime.zero
  /// The generation of the newest attempt.
  package internal(set) var generation = Generation.none
  package internal(set) var history = TransitionHistory()
  package internal(set) var transitions: UInt64 = 0
  /// Number of connections that became ready.
  package internal(set) var connections: UInt64 = 0

  package init(_ settings: SessionSettings) {
    self.settings = settings
    policy = ReconnectPolicy(settings)
  }

  /// The state under its public name.
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

  /// The connection that takes messages from the outbox.
  package var sending: Generation? {
    switch state {
    case .ready(let connection), .replacing(let connection, successor: _), .switching(let connection, successor: _, _):
      connection.generation
    case .stopped, .idle, .offline, .backoff, .parked, .attempting, .closing: nil
    }
  }

  /// The values to publish now.
  package var figures: PublishedFigures {
    PublishedFigures(
      desired: desired, state: observed, generation: generation, since: since, failures: failures,
      connections: connections, nextAttempt: nextAttempt, roundTrip: roundTrip)
  }

  /// Failed attempts since the last stable connection.
  package var failures: Int { policy.backoff.failures }

  /// When the next attempt is due, after a wait or to replace the connection; nil if none is planned.
  package var nextAttempt: MonotonicTime? {
    switch state {
    case .offline(let until), .backoff(let until): until
    case .parked(let until): until
    case .ready(let connection):
      connection.replaceAt < .distantFuture ? max(connection.replaceAt, retiring?.deadline ?? .zero) : nil
    case .stopped, .idle, .attempting, .replacing, .switching, .closing: nil
    }
  }

  /// The last round trip measured on the ready connection.
  package var roundTrip: TimeSpan? { connection?.liveness.roundTrip }

  var connection: ReadyConnection? {
    switch state {
    case .ready(let connection), .replacing(let connection, successor: _), .switching(let connection, successor: _, _):
      connection
    case .stopped, .idle, .offline, .backoff, .parked, .attempting, .closing: nil
    }
  }

  /// When to call `deadlineReached`; `.distantFuture` if there is no need.
  package var nextDeadline: MonotonicTime {
    let own: MonotonicTime =
      switch state {
      case .stopped, .idle: .distantFuture
      case .offline(let until), .backoff(let until): until
      case .parked(let until): until ?? .distantFuture
      case .attempting(let attempt): attempt.deadline
      case .ready(let connection): deadline(of: connection)
      case .replacing(let connection, let successor): min(connection.nextCheck, successor.deadline)
      case .switching(let connection, successor: _, let cut): min(connection.nextCheck, cut.response.deadline)
      case .closing(let closing): closing.response.deadline
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

  /// Enters `next`, and reports the transition if `observed` changes.
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
      roundTrip: measured ?? roundTrip, nextAttempt: nextAttempt)
    history.append(transition)
    actions.append(.report(transition))
  }
}
