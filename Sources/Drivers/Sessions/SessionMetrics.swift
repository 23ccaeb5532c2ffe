import ByteStreams
import Consumers
import Inbox
import Metrics
import Outbox
import Upstream

/// The figures of one session, or sums over several sessions, computed once per page of metrics.
struct SessionFigures: Sendable {
  var counts = SessionCounts()
  var consumers = ConsumerSummary()
  var pushes: UInt64 = 0
  var retainedMessages = 0
  var retainedBytes = 0
  var sessions = 0

  init() {}

  init(_ session: Session) {
    counts = session.upstream.counts()
    consumers = session.consumers.summary
    let inbox = session.inbox.summary
    (pushes, retainedMessages, retainedBytes) = (inbox.last.sequence, inbox.count, inbox.bytes)
    sessions = 1
  }

  /// The values that counters keep after the session has ended, since a counter must never decrease.
  var totals: SessionFigures {
    var totals = SessionFigures()
    totals.counts = counts.totals
    totals.pushes = pushes
    totals.consumers.addedDeadLetters = consumers.addedDeadLetters
    totals.consumers.droppedDeadLetters = consumers.droppedDeadLetters
    return totals
  }

  static func += (left: inout SessionFigures, right: SessionFigures) {
    left.counts += right.counts
    left.consumers.consumers += right.consumers.consumers
    left.consumers.leases += right.consumers.leases
    left.consumers.deadLetters += right.consumers.deadLetters
    left.consumers.addedDeadLetters += right.consumers.addedDeadLetters
    left.consumers.droppedDeadLetters += right.consumers.droppedDeadLetters
    left.consumers.lag = max(left.consumers.lag, right.consumers.lag)
    left.pushes += right.pushes
    left.retainedMessages += right.retainedMessages
    left.retainedBytes += right.retainedBytes
    left.sessions += right.sessions
  }
}

extension SessionEntry {
  var figures: SessionFigures {
    switch self {
    case .fixed(let session): SessionFigures(session)
    case .shared(let slot): slot.figuresSum
    }
  }
}

/// Sums over all sessions. `pushes` counts since the start and includes ended sessions; the other values are
/// sums over the present sessions.
package struct SessionSums: Sendable {
  package let ready: Int
  package let pushes: UInt64
  package let queuedMessages: Int
  package let retainedMessages: Int
  package let retainedBytes: Int
  /// The longest round trip of all sessions; nil if no session has measured a round trip.
  package let roundTrip: TimeSpan?

  init(_ figures: SessionFigures) {
    ready = figures.counts.ready
    pushes = figures.pushes
    queuedMessages = figures.counts.queuedMessages
    roundTrip = figures.counts.roundTrip
    (retainedMessages, retainedBytes) = (figures.retainedMessages, figures.retainedBytes)
  }
}

/// The metrics that each configured session has. All created sessions together have the same metrics, as sums.
enum SessionMetrics {
  /// The value of the label `session` for all created sessions together. Clients choose the names of sessions, so no
  /// metric has such a name as a label.
  static var createdLabel: String { "(created)" }

  static func register(of session: Session, in metrics: MetricsRegistry) {
    let figures = metrics.figures { [weak session] in session.map { SessionFigures($0) } ?? SessionFigures() }
    register(figures, [(name: "session", value: session.name)], in: metrics)
  }

  static func register(
    _ figures: MetricsRegistry.Figures<SessionFigures>, _ labels: MetricsRegistry.Labels, in metrics: MetricsRegistry
  ) {
    metrics.gauge("drawbridge_buffer_messages", "Pushes retained for clients.", labels) {
      Double(figures.value.retainedMessages)
    }
    metrics.gauge("drawbridge_buffer_bytes", "Size of the retained pushes, in bytes.", labels) {
      Double(figures.value.retainedBytes)
    }
    metrics.counter("drawbridge_pushes_total", "Pushes received from the upstream and numbered.", labels) {
      Double(figures.value.pushes)
    }
    metrics.gauge("drawbridge_session_ready", "1 while messages can be sent to the upstream, otherwise 0.", labels) {
      Double(figures.value.counts.ready)
    }
    metrics.gauge(
      "drawbridge_session_available",
      "1 while the session is ready, or connects on demand and its last attempt has not failed, as for /readyz.", labels
    ) { Double(figures.value.counts.available) }
    metrics.gauge(
      "drawbridge_session_desired",
      "1 while the session should be open; 0 after an operator has closed it, and always at gateways that are not its holder.",
      labels
    ) { Double(figures.value.counts.desired) }
    metrics.gauge("drawbridge_queue_messages", "Messages queued for the upstream.", labels) {
      Double(figures.value.counts.queuedMessages)
    }
    metrics.gauge("drawbridge_queue_bytes", "Size of the messages queued for the upstream, in bytes.", labels) {
      Double(figures.value.counts.queuedBytes)
    }
    // Clients choose the names of consumers, so no metric has such a name as a label.
    metrics.gauge("drawbridge_consumers", "Consumers.", labels) { Double(figures.value.consumers.consumers) }
    metrics.gauge(
      "drawbridge_consumer_lag_messages", "Pushes after the position of the consumer that is furthest behind.", labels
    ) { Double(figures.value.consumers.lag) }
    metrics.gauge("drawbridge_consumer_leases", "Pushes leased to workers, of all consumers.", labels) {
      Double(figures.value.consumers.leases)
    }
    metrics.gauge("drawbridge_consumer_dead_letters", "Dead letters kept, of all consumers.", labels) {
      Double(figures.value.consumers.deadLetters)
    }
    metrics.counter("drawbridge_consumer_dead_letters_total", "Pushes that became dead letters.", labels) {
      Double(figures.value.consumers.addedDeadLetters)
    }
    metrics.counter(
      "drawbridge_consumer_dead_letters_dropped_total", "Dead letters dropped to stay within the limits.", labels
    ) { Double(figures.value.consumers.droppedDeadLetters) }
  }

  /// Registers the metrics of all created sessions, as sums.
  static func register(_ created: CreatedSessions, in metrics: MetricsRegistry) -> UpstreamMetrics {
    let labels: MetricsRegistry.Labels = [(name: "session", value: createdLabel)]
    let figures = metrics.figures { [weak created] in created?.figures ?? SessionFigures() }
    register(figures, labels, in: metrics)
    metrics.gauge("drawbridge_created_sessions", "Open sessions that clients have created.") {
      Double(figures.value.sessions)
    }
    return registerUpstream(figures, session: createdLabel, in: metrics)
  }

  /// Registers the metrics of a slot, whose sessions replace each other.
  static func register(
    _ figures: MetricsRegistry.Figures<SessionFigures>, session name: String, in metrics: MetricsRegistry
  ) -> UpstreamMetrics {
    register(figures, [(name: "session", value: name)], in: metrics)
    return registerUpstream(figures, session: name, in: metrics)
  }

  /// Registers the metrics of the upstream connections of several sessions together.
  private static func registerUpstream(
    _ figures: MetricsRegistry.Figures<SessionFigures>, session name: String, in metrics: MetricsRegistry
  ) -> UpstreamMetrics {
    let labels: MetricsRegistry.Labels = [(name: "session", value: name)]
    let upstream = UpstreamMetrics(metrics, session: name)
    metrics.gauge(
      "drawbridge_outbound_unconfirmed", "Messages written but not yet confirmed by the upstream.", labels
    ) { Double(figures.value.counts.unconfirmed) }
    metrics.counter(
      "drawbridge_outbound_redeliveries_total", "Messages sent again after their connection was lost.", labels
    ) { Double(figures.value.counts.redeliveries) }
    for (index, state) in DeliveryState.allCases.enumerated() {
      metrics.counter(
        "drawbridge_outbound_messages_total", "Messages for the upstream, by the state that they have entered.",
        labels + [(name: "state", value: state.name)]
      ) { Double(figures.value.counts.messages[index]) }
    }
    return upstream
  }
}
