import ByteStreams

/// A change of a session's state, as it is logged, counted and published.
package struct SessionTransition: Equatable, Sendable {
  /// Counted from 1, without gaps.
  package let sequence: UInt64
  package let from: SessionState
  package let to: SessionState
  package let cause: TransitionCause
  /// The attempt that the transition concerns; `.none` before the first attempt.
  package let generation: Generation
  package let time: MonotonicTime
  /// The last round trip measured on the connection that the transition concerns; nil if none was measured.
  package let roundTrip: TimeSpan?
  /// When the next attempt is due; nil if none is planned.
  package let nextAttempt: MonotonicTime?
}

/// The published values of a session at one moment.
package struct PublishedFigures: Equatable, Sendable {
  package var desired = DesiredState.down
  package var state = SessionState.stopped
  package var generation = Generation.none
  /// When the state was entered.
  package var since = MonotonicTime.zero
  /// Failed attempts since the last stable connection.
  package var failures = 0
  /// Connections that ever became ready.
  package var connections: UInt64 = 0
  /// When the next attempt is due; nil if none is planned.
  package var nextAttempt: MonotonicTime?
  /// The last round trip measured on the ready connection.
  package var roundTrip: TimeSpan?

  package init() {}

  init(
    desired: DesiredState, state: SessionState, generation: Generation, since: MonotonicTime, failures: Int,
    connections: UInt64, nextAttempt: MonotonicTime?, roundTrip: TimeSpan?
  ) {
    self.desired = desired
    self.state = state
    self.generation = generation
    self.since = since
    self.failures = failures
    self.connections = connections
    self.nextAttempt = nextAttempt
    self.roundTrip = roundTrip
  }
}

/// The last transitions of a session, oldest first.
package struct TransitionHistory: Sendable {
  /// Number of transitions that are kept, all of which `GET /v1/session` shows. They are enough for several attempts.
  /// The limit keeps the memory small if connections keep failing.
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

  package var newest: SessionTransition? {
    ring.isEmpty ? nil : ring[(next + ring.count - 1) % ring.count]
  }

  package var entries: [SessionTransition] { Array(ring[next...] + ring[..<next]) }
}
