import ByteStreams
import Calls
import Events
import HTTPCodec
import HTTPServer
import JSONCodec
import Sessions
import Upstream
import UpstreamProtocol

/// The head of a `POST /v1/call`. The body is a JSON text with an id, which the reply repeats.
struct IncomingCall {
  /// The default wait for the reply.
  static var defaultWait: TimeSpan { .seconds(10) }
  /// The maximum size of an id, in bytes of JSON. The session keeps the id of every call, for up to a minute after the
  /// timeout of the call.
  private static var idLimit: Int { 256 }

  private let isCompressed: Bool
  private let limits: IncomingMessage.Limits
  let timeToLive: TimeSpan?
  /// How long the call has waited at another gateway. This time is part of its TTL and of its wait.
  let waited: TimeSpan
  /// How a reply is assigned to its call; nil for an event.
  private let correlation: Correlation?
  /// How the body becomes an event; nil unless the upstream speaks Socket.IO.
  let event: EventForm?
  let wait: TimeSpan
  /// The granted wait if `Prefer` has requested it, so that the response confirms it; otherwise nil.
  let preferredWait: TimeSpan?

  init(
    _ request: borrowing HTTPRequestHead, of session: Session, _ limits: IncomingMessage.Limits
  ) throws(Problem) {
    let hasEvents = session.upstream.hasEvents
    guard let correlation = session.upstream.correlation.map(Optional.some) ?? (hasEvents ? .some(nil) : nil) else {
      throw Problem(
        .callsNotConfigured,
        "session '\(session.name)' is not configured for calls: set \(session.settingPrefix)upstream.correlation to jsonrpc, or to the places of the id"
      )
    }
    self.correlation = correlation
    let declared = try IncomingMessage.form(of: request)
    guard declared != .lines else {
      throw Problem(
        .unsupportedMediaType, "a call is one JSON text: send it with Content-Type: application/json")
    }
    isCompressed = try IncomingMessage.isCompressed(request)
    self.limits = limits
    waited = WaitParameter.waited(request)
    if request.fields.contains(.topic) {
      throw Problem(
        .invalidParameter, "Topic is not accepted for a call, which no other message may replace: leave it out")
    }
    var timeToLive: TimeSpan?
    if let value = request.fields.first(.ttl) { timeToLive = try SendParameters.timeToLive(inField: value) }
    var asked: TimeSpan?
    var parameters: EventParameters?
    var kind: MessageKind?
    try QueryParameter.forEach(of: request, accepting: MakeCall.parameters) { parameter, value throws(Problem) in
      if parameter == .ttl {
        timeToLive = try SendParameters.timeToLive(inQuery: value, field: timeToLive)
      } else if parameter == .wait {
        asked = try WaitParameter.read(value)
      } else if parameter == .type {
        kind = try SendParameters.kind(value)
      } else {
        parameters = EventParameters(adding: parameter, value, to: parameters)
      }
    }
    // The body is JSON, even if a library has declared it as bytes.
    guard hasEvents || kind != .binary else {
      throw Problem(
        .invalidParameter, "type=binary is not accepted for a call, which is one JSON text: leave it out")
    }
    let event = EventForm(
      parameters: parameters, form: try IncomingMessage.form(declared, of: kind),
      isJSON: kind != .binary && IncomingMessage.isJSON(request))
    try event.check(for: session)
    self.event = hasEvents ? event : nil
    self.timeToLive = timeToLive
    let preferred = asked == nil ? WaitParameter.preference(of: request) : nil
    let granted = WaitParameter.granted(
      asked ?? preferred ?? Self.defaultWait, for: request, maximum: limits.maximumWait)
    preferredWait = preferred == nil ? nil : granted
    wait = WaitParameter.left(of: granted, for: request)
    // No time is left in which the client could get the reply.
    if wait == .zero, waited > .zero { throw API.holderUnavailable }
  }

  /// The size in bytes from which the body is read on another thread.
  var smallestLongBody: Int { LargeBody.smallest(isCompressed: isCompressed) }

  /// Returns the content of the body. Reads the body now if it was not prepared on another thread.
  ///
  /// - Parameters:
  ///   - format: the format of events; nil unless messages are events.
  ///   - random: a random number for the id.
  func content(
    of body: RequestBody?, _ format: (any EventFormat)?, _ random: @autoclosure () -> UInt128
  ) throws(Problem) -> CallContent {
    if let preparation = body?.preparation as? PreparedBody<Result<CallContent, Problem>>,
      let prepared = preparation.take()
    {
      return try prepared.get()
    }
    return try content(body?.bytes ?? [], format, random())
  }

  /// Reads a whole body.
  func content(
    _ bytes: [UInt8], _ format: (any EventFormat)?, _ random: UInt128
  ) throws(Problem) -> CallContent {
    let plain = try limits.decoded(bytes, isCompressed: isCompressed)
    if let event {
      guard let format else { preconditionFailure("an event for another upstream") }
      guard case .event(let parts) = try event.envelope(of: plain, format, limit: limits.bodyBytes) else {
        throw Problem(.invalidDocument, "a call emits an event: send an acknowledgement with POST /v1/messages")
      }
      return .event(EventContent(parts, format))
    }
    guard let correlation else { preconditionFailure("an event has no id in its body") }
    let place = try identifier(in: plain.span, correlation)
    let token = ByteString(copying: plain.span.extracting(place))
    let id = correlation.callID(for: token.bytes, random: random)
    return .request(CallRequest(id, at: place, in: plain.span, token: token))
  }

  /// Returns the range of the id in a valid request.
  private func identifier(in request: Span<UInt8>, _ correlation: Correlation) throws(Problem) -> Range<Int> {
    guard UTF8StreamValidator.isValid(request) else {
      throw Problem(.invalidText, "a call must be UTF-8: JSON has no other encoding")
    }
    do throws(JSONError) {
      _ = try JSONValidator.validate(request)
    } catch {
      throw Problem(.invalidDocument, "the call is not valid JSON: \(error)")
    }
    let id: Range<Int>
    do throws(Correlation.RequestError) {
      id = try correlation.identifier(ofRequest: request)
    } catch {
      throw Problem(.invalidDocument, detail(of: error))
    }
    try refuse(id: request.extracting(id))
    return id
  }

  /// Throws if the id is too large to be kept, or cannot be embedded in the document of a delivery.
  private func refuse(id: Span<UInt8>) throws(Problem) {
    guard id.count <= Self.idLimit else {
      throw Problem(
        .invalidDocument, "the id \(place) has \(id.count) bytes: use a string or a number of at most \(Self.idLimit)")
    }
    let traits = try? JSONValidator.validate(id)
    guard let traits, !traits.hasUnpairedSurrogates else {
      throw Problem(
        .invalidDocument, "the id \(place) contains half of a surrogate pair: use both halves, or another id")
    }
  }

  private var place: String { "at \(correlation?.request.description ?? "") (upstream.correlation)" }

  private func detail(of error: Correlation.RequestError) -> String {
    switch error {
    case .absent:
      "the request has no id \(place), so it gets no reply: add a string or a number, or use POST /v1/messages"
    case .batch: "a call is one request, and this is an array: send each of its elements as a call of its own"
    case .neitherStringNorNumber: "the id \(place) is neither a string nor a number: use one of them"
    case .repeated: "a name on the way to the id \(place) is repeated, so it is not clear which id counts: use it once"
    }
  }
}

/// The validated content of a `POST /v1/call`.
enum CallContent: Sendable {
  case request(CallRequest)
  case event(EventContent)
}

/// The request of a call, with an id of the gateway in place of the client's id.
struct CallRequest: Sendable {
  let id: CallID
  /// The range of the id in `message`.
  private let place: Range<Int>
  let message: ByteString
  /// The id that the client has chosen for the call, as JSON.
  let token: ByteString

  fileprivate init(_ id: CallID, at place: Range<Int>, in request: Span<UInt8>, token: ByteString) {
    self.id = id
    self.place = place.lowerBound..<place.lowerBound + id.token.count
    self.token = token
    message = ByteString(id.replacing(place, in: request))
  }

  /// Returns the same request with another id.
  func with(_ id: CallID) -> CallRequest { CallRequest(id, at: place, in: message.bytes, token: token) }
}
