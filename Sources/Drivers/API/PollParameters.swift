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
    try readQuery(of: request, settings)
    wait = WaitParameter.granted(wait, for: request, maximum: settings.maximumWait)
  }

  private mutating func readQuery(
    of request: borrowing HTTPRequestHead, _ settings: GatewaySettings.Delivery
  ) throws(ProblemError) {
    var query = HTTPQueryReader(request.query)
    var seen: UInt8 = 0
    while true {
      do throws(HTTPQueryError) {
        guard try query.next() else { return }
      } catch {
        throw ProblemError(.invalidParameter, error.description)
      }
      guard let parameter = Parameter(query.name) else {
        throw ProblemError(
          .invalidParameter,
          "'\(query.name.excerpt())' is not a parameter of this path: use cursor, wait, limit and max_bytes")
      }
      guard seen & parameter.rawValue == 0 else {
        throw ProblemError(.invalidParameter, "'\(query.name.text())' is in the query twice: give it once")
      }
      seen |= parameter.rawValue
      try read(parameter, query.value, settings)
    }
  }

  /// The names of query parameters. Each raw value is one bit.
  private enum Parameter: UInt8 {
    case cursor = 1
    case wait = 2
    case limit = 4
    case maxBytes = 8

    init?(_ name: Span<UInt8>) {
      if name.equals("cursor") {
        self = .cursor
      } else if name.equals("wait") {
        self = .wait
      } else if name.equals("limit") {
        self = .limit
      } else if name.equals("max_bytes") {
        self = .maxBytes
      } else {
        return nil
      }
    }
  }

  private mutating func read(
    _ parameter: Parameter, _ value: Span<UInt8>, _ settings: GatewaySettings.Delivery
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
