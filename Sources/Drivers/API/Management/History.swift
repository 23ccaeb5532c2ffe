import ByteStreams
import HTTPCodec
import HTTPServer
import Metrics
import Sessions
import Threading

extension CommonState {
  /// The time between two calls of `takeSample`.
  package static var historyInterval: TimeSpan { GatewayHistory.interval }

  /// Adds the current values of the metrics to the history. Can be called on any thread.
  package func takeSample(at now: MonotonicTime) {
    var sample = HistorySample(time: now)
    let sums = sessions.sums
    sample.received = registry.total(of: "drawbridge_upstream_messages_total")
    sample.accepted = metrics.acceptedMessages.total
    sample.queued = sums.queuedMessages
    sample.roundTrip = sums.roundTrip
    sample.held = metrics.heldPolls.current + metrics.heldReceives.current + sessions.callCount
    sample.streams = metrics.openStreams.current
    history.withLock { $0.append(sample) }
  }
}

/// `GET /history`: the data for the plots of the status page. The data contains no names of sessions, since this path
/// needs no credentials.
enum ReadHistory: ImmediateEndpoint {
  static var route: Route { .management("/history", formats: .json) }

  static func respond(_ input: Void, to request: ReceivedRequest, _ turn: Turn, into response: inout Response) {
    response.begin(.ok, "application/json")
    response.content.text.append("{\"instance\":" as StaticString)
    response.content.text.append(decimal: Int(turn.api.common.instance))
    response.content.text.append(",\"interval_seconds\":" as StaticString)
    response.content.text.append(seconds: GatewayHistory.interval)
    response.content.text.append(",\"samples\":[" as StaticString)
    for (index, point) in turn.api.common.history.withLock({ $0.points }).enumerated() {
      if index > 0 { response.content.text.append(",") }
      point.write(at: turn.now, into: &response.content.text)
    }
    response.content.text.append("]}\n" as StaticString)
  }
}

extension GatewayHistory.Point {
  fileprivate func write(at now: MonotonicTime, into output: inout ByteQueue) {
    output.append("{\"seconds_ago\":" as StaticString)
    output.append(seconds: now - sample.time)
    output.append(",\"received_per_second\":" as StaticString)
    output.append(String((receivedPerSecond * 1_000).rounded() / 1_000))
    output.append(",\"accepted_per_second\":" as StaticString)
    output.append(String((acceptedPerSecond * 1_000).rounded() / 1_000))
    output.append(",\"round_trip_seconds\":" as StaticString)
    output.append(seconds: sample.roundTrip, digits: 6)
    output.append(",\"queued\":" as StaticString)
    output.append(decimal: sample.queued)
    output.append(",\"held\":" as StaticString)
    output.append(decimal: sample.held)
    output.append(",\"streams\":" as StaticString)
    output.append(decimal: sample.streams)
    output.append("}")
  }
}
