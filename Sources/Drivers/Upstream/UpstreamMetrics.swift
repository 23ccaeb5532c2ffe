import ByteStreams
import Metrics
import Outbox
import UpstreamSession

/// The metrics of one session, or of all created sessions together. Their label is `session`.
package final class UpstreamMetrics: Sendable {
  private let labels: MetricsRegistry.Labels
  let connections: Counter
  let failures: Counter
  let delayedAttempts: Counter
  private let transitions: [Counter]
  let receivedMessages: Counter
  let receivedBytes: Counter
  let writes: Counter
  let pings: Counter

  let sentHeartbeats: Counter
  let receivedHeartbeats: Counter
  let malformedPayloads: Counter
  let ignoredPackets: Counter
  let subscriptions: Gauge
  /// All sessions use one histogram: a histogram for each of a thousand sessions would make twenty thousand time
  /// series.
  let confirmations: Histogram

  /// - Parameter session: the session's name, unique in `registry`.
  package init(_ registry: MetricsRegistry, session: String) {
    let labels: MetricsRegistry.Labels = [("session", session)]
    self.labels = labels
    connections = registry.counter(
      "drawbridge_session_connections_total", "Connections to the upstream that became ready.", labels)
    failures = registry.counter(
      "drawbridge_session_failures_total", "Connection attempts that failed, and ready connections that were lost.",
      labels)
    delayedAttempts = registry.counter(
      "drawbridge_session_dials_postponed_total",
      "Connection attempts delayed by the limits of upstream.dials or by Retry-After.",
      labels)
    transitions = SessionState.allCases.map { state in
      registry.counter(
        "drawbridge_session_transitions_total", "State changes of the session, by the new state.",
        labels + [("state", state.name)])
    }
    receivedMessages = registry.counter(
      "drawbridge_upstream_messages_total", "Messages received from the upstream.", labels)
    receivedBytes = registry.counter(
      "drawbridge_upstream_bytes_total",
      "Size of the messages received from the upstream, in bytes after decompression.", labels)
    writes = registry.counter(
      "drawbridge_upstream_writes_total",
      "Write system calls to the upstream's socket. One call carries all messages of a loop turn.", labels)
    pings = registry.counter(
      "drawbridge_upstream_pings_total", "Pings sent, for liveness and to confirm messages.", labels)
    sentHeartbeats = registry.counter(
      "drawbridge_upstream_heartbeats_sent_total", "Heartbeat messages sent to the upstream.", labels)
    receivedHeartbeats = registry.counter(
      "drawbridge_upstream_heartbeats_received_total", "Heartbeat messages received from the upstream.", labels)
    subscriptions = registry.gauge(
      "drawbridge_subscriptions", "Subscriptions of clients that are sent again on a new connection.", labels)
    ignoredPackets = registry.counter(
      "drawbridge_upstream_ignored_packets_total",
      "Ignored packets of a Socket.IO upstream, such as packets of a namespace that is not joined.", labels)
    confirmations = registry.histogram(
      "drawbridge_confirmation_seconds",
      "Time from the sending of a message until the pong that confirms it. One observation per pong, of the oldest message that it confirms."
    )
    malformedPayloads = registry.counter(
      "drawbridge_upstream_malformed_payloads_total",
      "Binary messages that could not be decompressed with upstream.payload_codec.", labels)
  }

  func transitions(to state: SessionState) -> Counter { transitions[Int(state.rawValue)] }

  /// Registers the metrics whose values are read from `handle`.
  func registerMetrics(of handle: SessionHandle, in registry: MetricsRegistry) {
    registry.gauge("drawbridge_session_round_trip_seconds", "Round-trip time of the last ping, in seconds.", labels) {
      [weak handle] in
      handle?.snapshot().status.roundTrip?.seconds ?? 0
    }
    registry.gauge(
      "drawbridge_outbound_unconfirmed", "Messages written but not yet confirmed by the upstream.", labels
    ) {
      [weak handle] in Double(handle?.snapshot().unconfirmedMessages ?? 0)
    }
    registry.counter(
      "drawbridge_outbound_redeliveries_total", "Messages sent again after their connection was lost.", labels
    ) {
      [weak handle] in Double(handle?.snapshot().redeliveries ?? 0)
    }
    for state in DeliveryState.allCases {
      registry.counter(
        "drawbridge_outbound_messages_total", "Messages for the upstream, by the state that they have entered.",
        labels + [("state", state.name)]
      ) { [weak handle] in Double(handle?.total(state) ?? 0) }
    }
  }
}
