import Access
import ByteStreams
import Forwarding
import HTTPCodec
import HTTPServer
import Metrics
import Peers
import Reactor
import Sessions

/// The values that are needed to forward a request, read from its head. Made for a request that must be forwarded, or
/// that may have to be forwarded later.
struct RequestToForward {
  let session: Session
  let method: HTTPMethod
  let target: String
  /// The header fields that the holder needs (`isForwarded`), and the fields that name the client and the request.
  let fieldLines: [UInt8]
  let repetition: ForwardingRepetition
  /// Whether the request is counted as a request that may wait. The values of its parameters are ignored, although they
  /// may exclude a wait.
  let mayWait: Bool
  /// Whether a wait may end before its condition is met (`HolderRules.movesOn`).
  let movesOn: Bool
  /// The effect that the request may have had after it was sent to the holder.
  let effect: HeldEffect
  /// The time that the request may take at the holder.
  let time: TimeSpan
  /// Whether the request may take longer than its execution because it waits, for example for a push or a state.
  let waits: Bool
  /// The client for which the request is counted.
  let client: UInt64
  /// For a request whose response is the document of a session: whether the request only reads the document. nil for
  /// any other request. This gateway adds its own part to the document.
  let readsDocument: Bool?

  /// - Parameter id: identifies the request among the requests of all gateways.
  init(
    _ request: borrowing HTTPRequestHead, _ rules: HolderRules, of session: Session, for client: ForwardedClient,
    id: UInt128, _ delivery: APISettings.Delivery
  ) {
    self.session = session
    self.client = API.client(of: client.grant, at: client.origin)
    let isRead = request.method == .get || request.method == .head
    // A HEAD request is forwarded as GET: this gateway needs the length of the content, and then drops it.
    method = request.method == .head ? .get : request.method
    // Without a store that gateways share, only the holder knows the session.
    let isShared = session.placement.isShared
    repetition = rules.repetition == .optional && !isShared ? .harmless : rules.repetition
    movesOn = rules.movesOn
    let parameters = QueryParameter.unvalidated(of: request)
    let hasEffect = !isRead && rules.effectParameter.map(parameters.contains) ?? true
    effect = hasEffect ? rules.effect : .none
    mayWait =
      switch rules.wait {
      case .never: false
      case .always: true
      case .with(let parameter): parameters.contains(parameter)
      case .withParameters: !request.query.isEmpty || request.fields.contains(.prefer)
      }
    let wait =
      mayWait ? WaitParameter.longest(request, default: rules.standardWait ?? delivery.wait, delivery) : .zero
    waits = wait > .zero
    time = isRead || !rules.isStored ? wait : wait + API.storeWait
    readsDocument = rules.isDocument && isShared ? isRead : nil
    var target = ByteQueue()
    target.append(request.path)
    if !request.query.isEmpty {
      target.append("?" as StaticString)
      target.append(request.query)
    }
    self.target = target.bytes.text()
    var lines = ByteQueue()
    for index in 0..<request.fields.count where request.fields.field(at: index).isForwarded {
      // The holder must not compress the document, since this gateway could not add its part to it.
      if readsDocument != nil, request.fields.field(at: index) == .acceptEncoding { continue }
      lines.append(request.fields.field(at: index).name)
      lines.append(": " as StaticString)
      lines.append(request.fields.value(at: index))
      lines.append("\r\n" as StaticString)
    }
    lines.append(ForwardedClient.field)
    lines.append(": " as StaticString)
    client.write(into: &lines)
    lines.append("\r\n" as StaticString)
    lines.append(ForwardedID.field)
    lines.append(": " as StaticString)
    lines.append(hexadecimal: UInt64(truncatingIfNeeded: id >> 64), digits: 16)
    lines.append(hexadecimal: UInt64(truncatingIfNeeded: id), digits: 16)
    lines.append("\r\n" as StaticString)
    fieldLines = lines.copyBytes()
  }
}

extension HTTPFieldName {
  /// Whether a handler or the access log uses the field. X-Request-Id is added separately, since the gateway chooses an
  /// id if the client has sent none.
  fileprivate var isForwarded: Bool {
    switch self {
    case .accept, .acceptEncoding, .contentEncoding, .contentType, .idempotencyKey, .prefer, .topic, .traceparent,
      .tracestate, .ttl, .xEnvoyExpectedTimeout:
      true
    default: false
    }
  }
}

/// The id of a forwarded request, in `Drawbridge-Forwarded`: 32 hexadecimal digits. The field also means that the
/// request must not be forwarded again.
enum ForwardedID {
  static let field: StaticString = "drawbridge-forwarded"

  /// Returns nil unless the value is an id.
  @_lifetime(borrow request)
  static func read(_ request: borrowing HTTPRequestHead) -> Span<UInt8>? {
    guard let id = request.fields.first(field), id.count == 32 else { return nil }
    for index in id.indices where !ASCII.isHexDigit(id[index]) { return nil }
    return id
  }
}

/// Requests for a remote session, which are forwarded to its holder. Polls and streams are not forwarded, since every
/// gateway has the pushes.
///
/// This gateway routes the request, checks access, and applies the limits of requests and of the size of a body. The
/// holder checks parameters and content, and applies the limits of messages.
extension API {
  /// Returns the request for a remote session in the form in which it is sent to the holder. nil if this gateway itself
  /// responds, because there is no other gateway, or because there is no holder and the response does not need a
  /// holder.
  func forwarded(
    _ head: borrowing HTTPRequestHead, _ rules: HolderRules, _ request: ReceivedRequest, from origin: ClientOrigin,
    _ body: inout RequestBody?
  ) -> RequestToForward? {
    let placement = request.session.placement
    if rules.repetition == .optional, placement.isShared, placement.place == .nowhere { return nil }
    guard let forwarded = requestToForward(head, rules, request, from: origin) else { return nil }
    if head.framing != .none { body = RequestBody(head.framing, limit: common.http.bodyBytes) }
    return forwarded
  }

  /// Returns nil if there are no other gateways.
  func requestToForward(
    _ head: borrowing HTTPRequestHead, _ rules: HolderRules, _ request: ReceivedRequest, from origin: ClientOrigin
  ) -> RequestToForward? {
    guard forwarder != nil, let grant = request.grant, let session = request.target.session else { return nil }
    let id = UInt128(entropy.next()) << 64 | UInt128(entropy.next())
    return RequestToForward(
      head, rules, of: session, for: ForwardedClient(grant, from: origin), id: id, common.settings.delivery)
  }

  /// Sends a request to the holder of its session, and waits for the response.
  func forward(
    _ request: RequestToForward, _ body: RequestBody?, at now: MonotonicTime, into response: inout Response
  ) throws(Problem) -> Outcome {
    guard let forwarder else { throw Self.holderUnavailable }
    // Without the store, no gateway can become the holder, so it would be useless to wait for a holder.
    if request.session.placement.place == .nowhere, let problem = common.storeProblem { throw problem }
    let message = message(of: request, body, at: now, &response)
    guard let exchange = forwarder.forward(message, to: request.session.placement) else {
      throw Problem(
        .tooManyBodies,
        "the bodies of requests that wait for another gateway exceed \(forwarder.network.limits.requestBytes) bytes, or the bodies of this client exceed its share: try again after the time in Retry-After"
      )
    }
    if let isRead = request.readsDocument {
      return .wait(HeldDocumentRequest(self, request.session, exchange, isRead: isRead, at: now))
    }
    return .wait(
      HeldForward(api: self, exchange: exchange, endsAtDrain: request.movesOn, effectAtHolder: request.effect))
  }

  /// Returns the request in the form in which it is sent to the holder. The body of the request must be complete.
  func message(
    of request: RequestToForward, _ body: RequestBody?, at now: MonotonicTime, _ response: inout Response
  ) -> ForwardedRequest {
    nameRequest(&response)
    var lines = request.fieldLines
    lines += Array("X-Request-Id: ".utf8) + response.requestID.copyBytes() + [0x0D, 0x0A]
    return ForwardedRequest(
      request.method, target: request.target, fieldLines: lines, content: body?.bytes ?? [],
      repetition: request.repetition, time: request.time, waits: request.waits, by: request.client,
      start: now)
  }

  static var holderUnavailable: Problem {
    Problem(
      .holderUnavailable,
      "no gateway has served the request in time: the holder of the session was lost or is overloaded, or this gateway is shutting down. Nothing was done that a repetition would do twice: repeat the request after the time in Retry-After"
    )
  }

  /// The response to a request for a session whose holder is unknown. If the store does not work, the response says
  /// this.
  var noHolder: Problem { common.storeProblem ?? Self.holderUnavailable }

  static var outcomeUnknown: Problem {
    Problem(
      .outcomeUnknown,
      "the holder of the session was lost after the request was sent to it, and may have executed it: repeat it only if that does no harm, a POST of messages with the same Idempotency-Key"
    )
  }

  func write(_ outcome: ForwardedOutcome, into response: inout Response) {
    switch outcome {
    case .response(let status, let fields, let content):
      response.status = status
      response.fields.append(fields)
      if content.count > 0 { response.content.append(ByteSlice(content)) }
    case .unavailable: respond(with: noHolder, into: &response)
    case .unreachable(let peer):
      let address = common.access.isOpen ? " at \(peer)" : ""
      let unreachable = Problem(
        .holderUnavailable,
        "this gateway cannot connect to the holder of the session\(address): an operator finds the reason in its log (listeners.peer_address, or a firewall). Nothing was done: repeat the request after the time in Retry-After"
      )
      respond(with: common.storeProblem ?? unreachable, into: &response)
    case .closed:
      respond(
        with: Problem(.sessionClosed, "the session is closed: create it again with PUT /v1/sessions/{session}"),
        into: &response)
    case .unknown: respond(with: Self.outcomeUnknown, into: &response)
    }
  }
}

/// A request that waits at this gateway. If this gateway loses the session, the request is sent to the next holder, and
/// waits for its response.
final class HeldMovableRequest: WaitingRequest {
  private let request: any HolderRequest
  private let session: Session
  private let message: ForwardedRequest
  private let api: API
  private var hasMoved = false
  /// The effect that the request had before it moved. The request has no additional effect at the next holder.
  private var effectBefore = HeldEffect.none
  /// The exchange with the next holder. nil if the request has not moved, or if too many requests wait for other
  /// gateways.
  private var exchange: ForwardedExchange?

  init(_ request: any HolderRequest, _ session: Session, _ message: ForwardedRequest, _ api: API) {
    self.request = request
    self.session = session
    self.message = message
    self.api = api
  }

  var heldCount: Gauge? { request.heldCount }
  var effect: HeldEffect { hasMoved ? effectBefore : request.effect }

  func advance(_ cause: WaitCause, at now: MonotonicTime) -> WaitStep {
    if !hasMoved {
      let step = request.advance(cause, at: now)
      guard session.hasLeft, cause == .news, request.afterLoss == .moves else { return step }
      moveOn()
    }
    return exchange?.step() ?? .ready
  }

  private func moveOn() {
    (hasMoved, effectBefore) = (true, request.effect)
    request.abandon()
    exchange = api.forwarder?.forward(message, to: session.placement)
  }

  func finish(at now: MonotonicTime, into response: inout Response) {
    guard hasMoved else { return request.finish(at: now, into: &response) }
    let outcome = exchange?.outcome ?? .unavailable
    exchange?.cancel()
    api.write(outcome, into: &response)
  }

  func abandon() {
    if hasMoved { exchange?.cancel() } else { request.abandon() }
  }
}

extension ForwardedExchange {
  /// The exchange ends by its own deadline. The deadline of the wait is one second later, so that the exchange ends
  /// first.
  fileprivate func step(endsAtDrain: Bool = true) -> WaitStep {
    outcome == nil ? .wait(notifier, until: deadline + .seconds(1), endsAtDrain: endsAtDrain) : .ready
  }
}

/// A request that waits for the response of the holder. The struct fits inline in the connection.
private struct HeldForward: WaitingRequest {
  let api: API
  let exchange: ForwardedExchange
  let endsAtDrain: Bool
  let effectAtHolder: HeldEffect

  var heldCount: Gauge? { nil }
  var effect: HeldEffect { exchange.mayHaveBeenExecuted ? effectAtHolder : .none }
  var residue: Residue { effect == .none ? .nothing : .mayBeDone }

  func advance(_ cause: WaitCause, at now: MonotonicTime) -> WaitStep { exchange.step(endsAtDrain: endsAtDrain) }

  func finish(at now: MonotonicTime, into response: inout Response) {
    // If there is no outcome, the request ends because the server is draining. The holder detects the end of the
    // connection, and undoes the effect of such a request: it takes back the leases of a receive.
    let outcome = exchange.outcome ?? (endsAtDrain ? .unavailable : exchange.failure)
    exchange.cancel()
    api.write(outcome, into: &response)
  }

  func abandon() { exchange.cancel() }
}
