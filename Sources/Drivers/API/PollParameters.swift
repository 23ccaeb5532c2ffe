import ByteStreams
import Configuration
import HTTPCodec
import Inbox

/// The parameters of a `GET /v1/messages`, with the limits of the settings applied.
struct PollParameters {
  private(set) var start = StartingPoint.latest
  private(set) var wait: TimeSpan
  private(set) var limit: Int
  private(set) var maxBytes: Int

  init(
    _ request: borrowing HTTPRequestHead, _ settings: GatewaySettings.Delivery
  ) throws(ProblemError) {
    wait = settings.wait
    limit = settings.limit
    maxBytes = settings.answerBytes
    if let preferred = WaitParameter.preference(of: request) { wait = preferred }
    try QueryParameter.forEach(of: request, accepting: .poll) { parameter, value throws(ProblemError) in
      try read(parameter, value, settings)
    }
    wait = WaitParameter.granted(wait, for: request, maximum: settings.maximumWait)
  }

  private mutating func read(
    _ parameter: QueryParameter, _ value: Span<UInt8>, _ settings: GatewaySettings.Delivery
  ) throws(ProblemError) {
    switch parameter {
    case .cursor:
      guard let start = StartingPoint(value) else {
        let wrong =
          IdentifierKind(value) == .delivery ? "is the id of a delivery, not a position among pushes" : "is not valid"
        let shown = value.extracting(first: min(value.count, Cursor.maximumTextLength)).text()
        throw ProblemError(
          .invalidParameter, "cursor '\(shown)' \(wrong): use \(StartingPoint.expectation)")
      }
      self.start = start
    case .ttl, .topic, .until: preconditionFailure("not accepted")
    case .wait:
      wait = try WaitParameter.read(value)
    case .limit:
      guard let limit = value.decimalValue(), limit > 0 else {
        throw ProblemError(
          .invalidParameter, "limit '\(value.excerpt())' is not valid: use a number of messages, 1 or more")
      }
      self.limit = min(limit, settings.maximumLimit)
    case .maxBytes:
      guard let bytes = value.decimalValue(), bytes > 0 else {
        throw ProblemError(
          .invalidParameter, "max_bytes '\(value.excerpt())' is not valid: use a number of bytes, 1 or more")
      }
      maxBytes = min(bytes, settings.maximumAnswerBytes)
    }
  }
}
