import ByteStreams
import Outbox
import UpstreamSession

/// The published status of a session, written by `StatusBoard`.
package struct SessionStatus: Sendable {
  /// The values that the session's machine does not have.
  struct Facts: Sendable {
    /// The URL in use, without credentials or query.
    var url: String
    /// The proxy, without credentials; nil if the connection is direct.
    var proxy: String?
    var subprotocol: String?
    var isCompressed = false
    /// Why the last attempt failed or the last connection was lost, for an operator.
    var lastFailure: String?
    var lastFailureAt: MonotonicTime?
    var lastReport: AttemptReport?
    /// The last transitions. This copy uses the same storage as the history of the machine.
    var transitions = TransitionHistory()
  }

  /// The values of the session's machine.
  var figures = PublishedFigures()
  var facts: Facts

  package var desired: DesiredState { figures.desired }
  package var state: SessionState { figures.state }
  package var generation: Generation { figures.generation }
  package var since: MonotonicTime { figures.since }
  package var failures: Int { figures.failures }
  package var connections: UInt64 { figures.connections }
  package var nextAttempt: MonotonicTime? { figures.nextAttempt }
  package var roundTrip: TimeSpan? { figures.roundTrip }
  package var url: String { facts.url }
  package var proxy: String? { facts.proxy }
  package var subprotocol: String? { facts.subprotocol }
  package var isCompressed: Bool { facts.isCompressed }
  package var lastFailure: String? { facts.lastFailure }
  package var lastFailureAt: MonotonicTime? { facts.lastFailureAt }
  package var lastReport: AttemptReport? { facts.lastReport }
  /// The last transitions, oldest first.
  package var history: [SessionTransition] { facts.transitions.entries }

  /// - Parameter now: the time at which the session was created, which is also the beginning of its first state.
  init(url: String, at now: MonotonicTime) {
    facts = Facts(url: url)
    figures.since = now
  }
}

/// The state of a session at one moment, for `GET /v1/session`, the status page and the metrics.
package struct SessionSnapshot: Sendable {
  package let status: SessionStatus
  package let queuedMessages: Int
  package let queuedBytes: Int
  /// Messages written and not confirmed yet.
  package let unconfirmedMessages: Int
  /// Messages that returned to the queue after they had been written.
  package let redeliveries: UInt64
  /// Number of messages that have entered each state.
  package let ledger: [(state: DeliveryState, count: UInt64)]

  package var state: SessionState { status.state }
  package var desired: DesiredState { status.desired }
  package var url: String { status.url }
  package var generation: Generation { status.generation }
  package var since: MonotonicTime { status.since }
  package var attempts: Int { status.failures }
  package var lastFailure: String? { status.lastFailure }
  package var nextAttempt: MonotonicTime? { status.nextAttempt }
  package var roundTripMilliseconds: Double? { status.roundTrip.map { $0.seconds * 1_000 } }
}

/// The numbers of one session, or the sums of several, for metrics.
package struct SessionCounts: Sendable {
  package var ready = 0
  package var available = 0
  package var desired = 0
  package var queuedMessages = 0
  package var queuedBytes = 0
  package var unconfirmed = 0
  package var calls = 0
  package var redeliveries: UInt64 = 0
  /// The longest round trip of several sessions; nil if no session has measured a round trip.
  package var roundTrip: TimeSpan?
  /// Messages that have entered each state, in the order of `DeliveryState.allCases`.
  package var messages = [UInt64](repeating: 0, count: DeliveryState.allCases.count)

  package init() {}

  package static func += (left: inout SessionCounts, right: SessionCounts) {
    left.ready += right.ready
    left.available += right.available
    left.desired += right.desired
    left.queuedMessages += right.queuedMessages
    left.queuedBytes += right.queuedBytes
    left.unconfirmed += right.unconfirmed
    left.calls += right.calls
    left.redeliveries += right.redeliveries
    left.roundTrip = right.roundTrip.map { max($0, left.roundTrip ?? $0) } ?? left.roundTrip
    for index in left.messages.indices { left.messages[index] += right.messages[index] }
  }

  /// Only the counters. Metrics keep them after the session has ended, since a counter must not decrease.
  package var totals: SessionCounts {
    var totals = SessionCounts()
    totals.redeliveries = redeliveries
    totals.messages = messages
    return totals
  }
}
