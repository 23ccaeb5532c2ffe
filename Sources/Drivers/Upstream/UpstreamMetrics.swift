import ByteStreams
import Metrics
import Outbox
import UpstreamSession

/// The metrics of one session with its upstream, under the label `session`.
package final class UpstreamMetrics: Sendable {
  private let labels: MetricsRegistry.Labels
  let connections: Counter
  let failures: Counter
  let postponedDials: Counter
  private let transitions: [Counter]
  let receivedMessages: Counter
  let receivedBytes: Counter
  let writes: Counter
  let pings: Counter

  let sentHeartbeats: Counter
  let receivedHeartbeats: Counter
  let malformedPayloads: Counter
  let subscriptions: Gauge

  /// - Parameter session: the session's name, unique in `registry`.
  package init(_ registry: MetricsRegistry, session: String) {
    let labels: MetricsRegistry.Labels = [("session", session)]
    self.labels = labels
    connections = registry.counter("drawbridge_session_connections_total", "Connections that became ready.", labels)
    failures = registry.counter(
      "drawbridge_session_failures_total", "Openings that failed, and ready connections that were lost.", labels)
    postponedDials = registry.counter(
      "drawbridge_session_dials_postponed_total", "Dials that had to wait because of a limit or a hold of their host.",
      labels)
    transitions = SessionState.allCases.map { state in
      registry.counter(
        "drawbridge_session_transitions_total", "Changes of the session's state, by the state entered.",
        labels + [("state", state.name)])
    }
    receivedMessages = registry.counter(
      "drawbridge_upstream_messages_total", "Messages received from the upstream.", labels)
    receivedBytes = registry.counter(
      "drawbridge_upstream_bytes_total", "Bytes of messages received from the upstream, after inflation.", labels)
    writes = registry.counter(
      "drawbridge_upstream_writes_total",
      "Writes to the upstream's socket; all that one turn of a loop has goes in one.", labels)
    pings = registry.counter(
      "drawbridge_upstream_pings_total", "Pings sent, for liveness and to confirm messages.", labels)
    sentHeartbeats = registry.counter(
      "drawbridge_upstream_heartbeats_sent_total", "Heartbeats sent to the upstream as messages.", labels)
    receivedHeartbeats = registry.counter(
      "drawbridge_upstream_heartbeats_received_total", "Heartbeats of the upstream's that came as messages.", labels)
    subscriptions = registry.gauge(
      "drawbridge_subscriptions", "Subscriptions of clients that are made again on a new connection.", labels)
    malformedPayloads = registry.counter(
      "drawbridge_upstream_malformed_payloads_total",
      "Binary messages that are not packed as upstream.payload_codec says.", labels)
  }

  func transitions(to state: SessionState) -> Counter { transitions[Int(state.rawValue)] }

  /// Registers the metrics whose values the session itself stores.
  func observe(_ handle: SessionHandle, in registry: MetricsRegistry) {
    registry.gauge("drawbridge_session_round_trip_seconds", "Last measured round trip of a ping.", labels) {
      [weak handle] in
      handle?.snapshot().status.roundTrip?.seconds ?? 0
    }
    registry.gauge(
      "drawbridge_outbound_unconfirmed", "Messages written of which it is not known yet if they arrived.", labels
    ) {
      [weak handle] in Double(handle?.snapshot().unconfirmedMessages ?? 0)
    }
    registry.counter("drawbridge_outbound_redeliveries_total", "Messages sent again after a lost connection.", labels) {
      [weak handle] in Double(handle?.snapshot().redeliveries ?? 0)
    }
    for state in DeliveryState.allCases {
      registry.counter(
        "drawbridge_outbound_messages_total", "Messages for the upstream that came into each state.",
        labels + [("state", state.name)]
      ) { [weak handle] in Double(handle?.total(state) ?? 0) }
    }
  }
}
