import Access
import ByteStreams
import Configuration
import Forwarding
import HTTPCodec
import HTTPServer
import Metrics
import Peers
import Reactor
import Sessions

/// Requests for a remote session, which are forwarded to its holder. Polls and streams are not forwarded, since every
/// gateway has the pushes.
///
/// This gateway routes the request, checks access, and applies the limits of requests and of the size of a body. The
/// holder checks parameters and content, and applies the limits of messages.
extension Route {
  /// The session whose holder must execute the request; nil if every gateway can execute the request.
  func forwardedSession(in sessions: SessionDirectory) -> Session? {
    switch self {
    case .send(let session), .delivery(_, let session), .distantDelivery(let session), .call(let session),
      .session(let session), .changeSession(let session):
      session
    case .consumer(let target): target.session
    case .putSession(let name): sessions.find(Array(name.utf8).span)
    // A DELETE removes a session from the list of sessions. Every gateway can change this list.
    case .closeSession, .receive, .sessions, .reload, .document, .errorPage, .live, .started, .metrics, .history,
      .status, .ready, .options:
      nil
    }
  }

  /// The effect of executing the request twice.
  var repetition: ForwardingRepetition {
    switch self {
    case .send: .recognised
    case .call: .harmful
    case .session(let session) where session.placement.isShared: .optional
    case .consumer(let target):
      switch target.action {
      case .list, .show, .put, .remove, .deadLetters, .removeDeadLetters: .harmless
      // The response to a repetition would be wrong: the leases would already be invalid, or no dead letter would be
      // left to retry.
      case .receive, .settle, .retryDeadLetters: .harmful
      }
    default: .harmless
    }
  }

  /// Whether a wait of the request ends when the server drains, even if its condition is not met.
  fileprivate var endsAtDrain: Bool {
    switch self {
    case .delivery, .distantDelivery: true
    case .consumer(let target): target.action == .receive
    default: false
    }
  }
}

/// A request that must be forwarded, or may have to be, with everything that its head states.
struct RequestToForward {
  let session: Session
  let method: HTTPMethod
  let target: String
  /// The fields that a handler reads, and the fields of the gateways.
  let fieldLines: [UInt8]
  let repetition: ForwardingRepetition
  /// Whether the request is counted as a request that may wait. Its parameters may exclude a wait, but only the holder
  /// reads them.
  let mayWait: Bool
  let endsAtDrain: Bool
  /// The effect that the request may have had after it was sent to the holder.
  let effect: HeldEffect
  /// The time that the request may take at the holder.
  let time: TimeSpan
  /// Whether the request may take longer than its execution because it waits, for example for a push or a state.
  let waits: Bool
  /// The client for which the request is counted.
  let client: UInt64
  /// nil unless the response is the document of a session, to which this gateway adds its part. If it is, whether the
  /// request only reads the document.
  let readsDocument: Bool?

  private static func effect(of route: Route, _ request: borrowing HTTPRequestHead) -> HeldEffect {
    if request.method == .get || request.method == .head { return .none }
    switch route {
    case .call: return .changeAndData
    // A receive has no lasting effect: if the connection ends, the holder takes back the leases.
    case .consumer(let target) where target.action == .receive:
      return QueryParameter.unvalidated(of: request).contains(.ack) ? .changeAndData : .none
    default: return .change
    }
  }

  /// - Parameter id: identifies the request among the requests of all gateways.
  init(
    _ request: borrowing HTTPRequestHead, _ route: Route, of session: Session, for client: ForwardedClient, id: UInt128,
    _ delivery: GatewaySettings.Delivery
  ) {
    self.session = session
    self.client = API.client(of: client.grant, at: client.origin)
    // A HEAD request is forwarded as GET: this gateway needs the length of the content, and then drops it.
    method = request.method == .head ? .get : request.method
    repetition = route.repetition
    endsAtDrain = route.endsAtDrain
    effect = Self.effect(of: route, request)
    let hasParameters = !request.query.isEmpty || request.fields.contains(.prefer)
    switch route {
    case .call: mayWait = true
    case .consumer(let target): mayWait = target.action == .receive
    // A POST of messages waits only if the query names a state (`until`).
    case .send: mayWait = QueryParameter.unvalidated(of: request).contains(.until)
    case .delivery, .distantDelivery: mayWait = hasParameters
    default: mayWait = false
    }
    let standard = if case .call = route { IncomingCall.defaultWait } else { delivery.wait }
    let wait = mayWait ? WaitParameter.longest(request, default: standard, delivery) : .zero
    waits = wait > .zero
    switch route {
    // A call is not stored, and ends when its wait ends, so no time for the store is added.
    case .call: time = wait
    default: time = request.method == .get || request.method == .head ? wait : wait + API.storeWait
    }
    switch route {
    case .session where session.placement.isShared: readsDocument = true
    case .changeSession where session.placement.isShared, .putSession where session.placement.isShared:
      readsDocument = false
    default: readsDocument = nil
    }
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

extension API {
  /// Returns the request in its forwarded form if another gateway must execute it; otherwise nil.
  func forwarded(
    _ request: borrowing HTTPRequestHead, _ route: Route, for grant: Grant?, from origin: ClientOrigin,
    _ body: inout RequestBody?
  ) -> PendingRequest? {
    guard let grant, let session = route.forwardedSession(in: common.sessions), !session.isHere else {
      return nil
    }
    // Without a holder, this gateway itself responds with the document of the session.
    if case .session = route, session.placement.isShared, session.placement.place == .nowhere { return nil }
    if request.framing != .none { body = RequestBody(request.framing, limit: common.settings.http.bodyBytes) }
    return .forward(requestToForward(request, route, of: session, for: grant, from: origin))
  }

  private func requestToForward(
    _ request: borrowing HTTPRequestHead, _ route: Route, of session: Session, for grant: Grant,
    from origin: ClientOrigin
  ) -> RequestToForward {
    let id = UInt128(entropy.next()) << 64 | UInt128(entropy.next())
    return RequestToForward(
      request, route, of: session, for: ForwardedClient(grant, from: origin), id: id, common.settings.delivery)
  }

  /// Makes a request that can wait movable: if this gateway loses the session while the request waits, the request
  /// continues at the next holder. It must be safe to execute such a request twice, or its first effect must be taken
  /// back. So messages are excluded, which are stored by this gateway or not at all. Calls are excluded, too, since
  /// they belong to the connection that has sent them.
  func movable(
    _ pending: PendingRequest, _ request: borrowing HTTPRequestHead, _ route: Route, for grant: Grant?,
    from origin: ClientOrigin
  ) -> PendingRequest {
    guard route.endsAtDrain, pending.mayWait, let grant, let session = route.forwardedSession(in: common.sessions)
    else { return pending }
    return .movable(pending, requestToForward(request, route, of: session, for: grant, from: origin))
  }

  /// Sends a request to the holder of its session, and waits for the response.
  func forward(
    _ request: RequestToForward, _ body: RequestBody?, at now: MonotonicTime, into response: inout Response
  ) throws(Problem) -> Outcome {
    guard let forwarder else { throw Self.holderUnavailable }
    // Without the store, no gateway can become the holder, so it would be useless to wait for one.
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
      HeldForward(api: self, exchange: exchange, endsAtDrain: request.endsAtDrain, effectAtHolder: request.effect))
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

  /// The problem of a request for a session without a known holder. If the store does not work, this is the problem of
  /// the store.
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
  /// The effect that the request had before it moved. It has no additional effect at the next holder.
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
      // Checked after the data, which may be from a time when the session was remote.
      guard session.hasLeft, cause == .news else { return step }
      if case .ready = step, request.isFact { return .ready }
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
  /// The exchange ends by its own deadline. The deadline of the wait is later, so that it never comes first.
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
