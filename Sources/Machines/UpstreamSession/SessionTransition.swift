import ByteStreams

/// One change of a session's state, as it is logged, counted and shown.
package struct SessionTransition: Equatable, Sendable {
  /// Counted from 1, without holes.
  package let sequence: UInt64
  package let from: SessionState
  package let to: SessionState
  package let cause: TransitionCause
  /// The dial that this concerns; `.none` before the first.
  package let generation: Generation
  package let time: MonotonicTime
  /// The last round trip measured on the connection that this concerns; nil where there was none.
  package let roundTrip: TimeSpan?
  /// When the next dial is due; nil where none is planned.
  package let nextDial: MonotonicTime?
}

/// What a session shows of itself at one moment.
package struct SessionFigures: Equatable, Sendable {
  package var desired = DesiredState.down
  package var state = SessionState.stopped
  package var generation = Generation.none
  /// When the state was entered.
  package var since = MonotonicTime.zero
  /// Failed attempts since the last stable connection.
  package var failures = 0
  /// Connections that ever became ready.
  package var connections: UInt64 = 0
  /// When the next attempt is due; nil where none is planned.
  package var nextDial: MonotonicTime?
  /// The last round trip measured on the connection that is ready.
  package var roundTrip: TimeSpan?

  package init() {}

  init(
    desired: DesiredState, state: SessionState, generation: Generation, since: MonotonicTime, failures: Int,
    connections: UInt64, nextDial: MonotonicTime?, roundTrip: TimeSpan?
  ) {
    self.desired = desired
    self.state = state
    self.generation = generation
    self.since = since
    self.failures = failures
    self.connections = connections
    self.nextDial = nextDial
    self.roundTrip = roundTrip
  }
}

/// The last transitions of a session, oldest first.
package struct TransitionHistory: Sendable {
  /// What `GET /v1/session` shows: some attempts' worth, and a bound on memory under a flapping upstream.
  package static let limit = 32

  private var ring: [SessionTransition] = []
  private var next = 0

  package init() {}

  package mutating func append(_ transition: SessionTransition) {
    if ring.count < Self.limit {
      ring.append(transition)
    } else {
      ring[next] = transition
      next = (next + 1) % Self.limit
    }
  }

  package var entries: [SessionTransition] { Array(ring[next...] + ring[..<next]) }
}
