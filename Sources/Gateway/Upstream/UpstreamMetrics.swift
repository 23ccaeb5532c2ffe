import ByteStreams
import Metrics
import UpstreamSession

/// What the metrics page tells of the session with the upstream.
final class UpstreamMetrics: Sendable {
  let connections: Counter
  let failures: Counter
  let transitions: Counter
  let receivedMessages: Counter
  let receivedBytes: Counter

  init(_ registry: MetricsRegistry) {
    connections = registry.counter("drawbridge_session_connections_total", "Connections that became ready.")
    failures = registry.counter(
      "drawbridge_session_failures_total", "Openings that failed, and ready connections that were lost.")
    transitions = registry.counter("drawbridge_session_transitions_total", "Changes of the session's state.")
    receivedMessages = registry.counter("drawbridge_upstream_messages_total", "Messages received from the upstream.")
    receivedBytes = registry.counter(
      "drawbridge_upstream_bytes_total", "Bytes of messages received from the upstream, after inflation.")
  }

  /// Counts that the session keeps itself.
  func observe(_ handle: SessionHandle, in registry: MetricsRegistry) {
    registry.gauge("drawbridge_session_round_trip_seconds", "Last measured round trip of a ping.") { [weak handle] in
      handle?.snapshot().status.roundTrip?.seconds ?? 0
    }
    for state in DeliveryState.allCases {
      registry.counter(
        "drawbridge_outbound_messages_total", "Messages for the upstream that came into each state.",
        [("state", state.name)]
      ) { [weak handle] in Double(handle?.total(state) ?? 0) }
    }
  }
}
