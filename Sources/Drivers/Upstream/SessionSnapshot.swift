import ByteStreams
import Outbox
import UpstreamSession

/// What the driver last said of its session.
package struct SessionStatus: Sendable {
  package var desired = DesiredState.down
  package var state = SessionState.stopped
  /// Of the endpoint in use, without credentials or query.
  package var url: String
  /// On the way to it, without credentials; nil where it is dialled directly.
  package var proxy: String?
  package var generation = Generation.none
  /// When the present state was entered.
  package var since = MonotonicTime.zero
  /// Failed attempts since the last stable connection.
  package var failures = 0
  /// Connections that ever became ready.
  package var connections: UInt64 = 0
  package var nextDial: MonotonicTime?
  package var roundTrip: TimeSpan?
  package var subprotocol: String?
  package var isCompressed = false
  /// Why the last opening failed or the last connection was lost, for a person.
  package var lastFailure: String?
  package var lastFailureAt: MonotonicTime?
  package var lastReport: OpeningReport?
  /// The machine's own memory of them, shared and not copied.
  package var transitions = TransitionHistory()

  /// The last transitions, oldest first.
  package var history: [SessionTransition] { transitions.entries }

  init(url: String) { self.url = url }
}

/// A session at one moment: for `GET /v1/session`, the status page and the metrics.
package struct SessionSnapshot: Sendable {
  package let status: SessionStatus
  package let queuedMessages: Int
  package let queuedBytes: Int
  /// Messages written and not confirmed yet.
  package let unconfirmedMessages: Int
  /// Messages that went back to the queue after they had been written.
  package let redeliveries: UInt64
  /// Messages that ever came into each state.
  package let ledger: [(state: DeliveryState, count: UInt64)]

  package var state: SessionState { status.state }
  package var desired: DesiredState { status.desired }
  package var url: String { status.url }
  package var generation: Generation { status.generation }
  package var since: MonotonicTime { status.since }
  package var attempts: Int { status.failures }
  package var lastFailure: String? { status.lastFailure }
  package var nextDial: MonotonicTime? { status.nextDial }
  package var roundTripMilliseconds: Double? { status.roundTrip.map { $0.seconds * 1_000 } }
}
