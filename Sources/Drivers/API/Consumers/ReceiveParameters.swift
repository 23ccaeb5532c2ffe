import ByteStreams
import HTTPCodec
import Inbox

/// The parameters of a `POST /v1/consumers/{name}/receive`, with the limits of the settings applied.
struct ReceiveParameters {
  private(set) var acknowledged: Cursor?
  private(set) var wait: TimeSpan
  private(set) var limit: Int
  private(set) var maxBytes: Int

  init(_ request: borrowing HTTPRequestHead, _ settings: APISettings.Delivery) throws(Problem) {
    wait = WaitParameter.preference(of: request) ?? settings.wait
    limit = settings.limit
    maxBytes = settings.answerBytes
    try QueryParameter.forEach(of: request, accepting: ReceiveFromConsumer.parameters) {
      parameter, value throws(Problem) in
      switch parameter {
      case .ack:
        guard let cursor = Cursor(value) else {
          throw Problem(
            .invalidParameter,
            "ack '\(value.excerpt())' is not valid: use the cursor of an earlier response to a receive")
        }
        acknowledged = cursor
      case .wait: wait = try WaitParameter.read(value)
      case .limit: limit = try PollParameters.limit(value, settings)
      case .maxBytes: maxBytes = try PollParameters.maxBytes(value, settings)
      default: preconditionFailure("not accepted")
      }
    }
    wait = WaitParameter.granted(wait, for: request, maximum: settings.maximumWait)
    wait = WaitParameter.left(of: wait, for: request)
  }
}
