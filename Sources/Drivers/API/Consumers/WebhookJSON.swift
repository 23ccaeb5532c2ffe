import ByteStreams
import JSONCodec
import Sessions
import Webhooks

/// The state of a webhook in responses.
enum WebhookJSON {
  /// - Parameter nextAttempt: when the first push whose delivery failed will be delivered again; nil if there is no
  ///   such push.
  static func write(
    _ status: WebhookStatus, nextAttempt: MonotonicTime?, _ clock: ClockOffset, into output: inout ByteQueue
  ) {
    output.append("{\"origin\":" as StaticString)
    output.append(jsonString: status.origin)
    var times = ResponseTimes(clock)
    let state: StaticString =
      status.isDisabled ? "disabled" : status.pausedUntil > times.now ? "paused" : "active"
    output.append(",\"state\":\"" as StaticString)
    output.append(state)
    output.append("\",\"requests\":" as StaticString)
    output.append(decimal: status.inProgress)
    output.append(",\"next_attempt\":" as StaticString)
    if let next = nextAttempt.map({ max($0, status.pausedUntil) }), !status.isDisabled {
      times.write(next, into: &output)
    } else {
      output.append("null" as StaticString)
    }
    output.append(",\"last_failure\":" as StaticString)
    guard let (failure, time) = status.lastFailure else {
      output.append("null}" as StaticString)
      return
    }
    output.append("{\"time\":" as StaticString)
    times.write(milliseconds: time, into: &output)
    output.append(",\"result\":\"" as StaticString)
    output.append(failure.result.rawValue)
    output.append("\",\"status\":" as StaticString)
    if let status = failure.status {
      output.append(decimal: status)
    } else {
      output.append("null" as StaticString)
    }
    output.append(",\"attempt\":" as StaticString)
    output.append(decimal: Int(failure.attempt))
    output.append(",\"detail\":" as StaticString)
    output.append(jsonString: failure.detail)
    output.append("}}" as StaticString)
  }
}
