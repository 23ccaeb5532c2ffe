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

/// Requests about a session that another gateway holds: all but polls and streams, which are served from the pushes that every gateway has.
///
/// This gateway routes the request, checks access, and applies the limits of requests and of the size of a body. Parameters, content and the limits of
/// messages are the holder's.
extension Route {
  /// The session whose holder executes the request; nil if every gateway does.
  func forwardedSession(in sessions: SessionDirectory) -> Session? {
    switch self {
    case .send(let session), .delivery(_, let session), .distantDelivery(let session), .call(let session),
      .session(let session), .changeSession(let session):
      session
    case .consumer(let target): target.session
    case .putSession(let name): sessions.find(Array(name.utf8).span)
    // It is removed from the list, which every gateway can change.
    case .closeSession, .receive, .sessions, .document, .errorPage, .live, .started, .metrics, .status, .ready,
      .options:
      nil
    }
  }

  /// What it means to execute the request twice.
  var repetition: ForwardingRepetition {
    switch self {
    case .send: .recognised
    case .call: .harmful
    case .session(let session) where session.placement.isShared: .optional
    case .consumer(let target):
      switch target.action {
      case .list, .show, .put, .remove, .deadLetters, .removeDeadLetters: .harmless
      // The second time, the leases are not valid, or there is nothing to retry.
      case .receive, .settle, .retryDeadLetters: .harmful
      }
    default: .harmless
    }
  }

  /// Whether a wait for it ends when the server drains, although nothing has happened.
  fileprivate var endsAtDrain: Bool {
    switch self {
    case .delivery, .distantDelivery: true
    case .consumer(let target): target.action == .receive
    default: false
    }
  }
}

/// A request to be forwarded, by its head.
struct RequestToForward {
  let session: Session
  let method: HTTPMethod
  let target: String
  /// The fields that mean something to a handler, and those of the gateways.
  let fieldLines: [UInt8]
  let repetition: ForwardingRepetition
  /// Whether it counts as a request that may wait. Its parameters, which the holder reads, may say that it does not.
  let mayWait: Bool
  let endsAtDrain: Bool
  /// What it may have changed when the holder has it.
  let effect: HeldEffect
  /// How long it may take at the holder.
  let time: TimeSpan
  /// Whether the client waits for more than its execution.
  let waits: Bool
  /// The client that it is counted for.
  let client: UInt64
  /// nil unless the response is the document of a session, to which this gateway adds its part. Then, whether the request only reads.
  let readsDocument: Bool?

  private static func effect(of route: Route, _ request: borrowing HTTPRequestHead) -> HeldEffect {
    if request.method == .get || request.method == .head { return .none }
    switch route {
    case .call: return .changeAndData
    // The holder takes back what it has leased when the connection to it ends.
    case .consumer(let target) where target.action == .receive:
      return QueryParameter.unvalidated(of: request).contains(.ack) ? .changeAndData : .none
    default: return .change
    }
  }

  /// - Parameter id: identifies the request among those of all gateways.
  init(
    _ request: borrowing HTTPRequestHead, _ route: Route, of session: Session, for client: ForwardedClient, id: UInt128,
    _ delivery: GatewaySettings.Delivery
  ) {
    self.session = session
    self.client = API.client(of: client.grant, at: client.origin)
    // The content of the response to HEAD is dropped here, where its length is needed.
    method = request.method == .head ? .get : request.method
    repetition = route.repetition
    endsAtDrain = route.endsAtDrain
    effect = Self.effect(of: route, request)
    let hasParameters = !request.query.isEmpty || request.fields.contains(.prefer)
    switch route {
    case .call: mayWait = true
    case .consumer(let target): mayWait = target.action == .receive
    // A message waits only for a state that the query names.
    case .send: mayWait = QueryParameter.unvalidated(of: request).contains(.until)
    case .delivery, .distantDelivery: mayWait = hasParameters
    default: mayWait = false
    }
    let standard = if case .call = route { IncomingCall.defaultWait } else { delivery.wait }
    let wait = mayWait ? WaitParameter.longest(request, default: standard, delivery) : .zero
    waits = wait > .zero
    switch route {
    // It is not stored, and ends with its wait.
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
      // Nothing can be added to a compressed document.
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
  /// Whether a handler reads the field, or the access log has it. X-Request-Id is added by the gateway, which chooses one if the client has not.
  fileprivate var isForwarded: Bool {
    switch self {
    case .accept, .acceptEncoding, .contentEncoding, .contentType, .idempotencyKey, .prefer, .topic, .traceparent,
      .tracestate, .ttl, .xEnvoyExpectedTimeout:
      true
    default: false
    }
  }
}

/// The id of a forwarded request, in `Drawbridge-Forwarded`: 32 hexadecimal digits. It also says that the request must not be forwarded again.
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
  /// Returns the request if another gateway must execute it.
  func forwarded(
    _ request: borrowing HTTPRequestHead, _ route: Route, for grant: Grant?, from origin: ClientOrigin,
    _ body: inout RequestBody?
  ) -> PendingRequest? {
    guard let grant, let session = route.forwardedSession(in: shared.sessions), !session.isHere else {
      return nil
    }
    // This gateway says so.
    if case .session = route, session.placement.isShared, session.placement.place == .nowhere { return nil }
    if request.framing != .none { body = RequestBody(request.framing, limit: shared.settings.http.bodyBytes) }
    return .forward(requestToForward(request, route, of: session, for: grant, from: origin))
  }

  private func requestToForward(
    _ request: borrowing HTTPRequestHead, _ route: Route, of session: Session, for grant: Grant,
    from origin: ClientOrigin
  ) -> RequestToForward {
    let id = UInt128(entropy.next()) << 64 | UInt128(entropy.next())
    return RequestToForward(
      request, route, of: session, for: ForwardedClient(grant, from: origin), id: id, shared.settings.delivery)
  }

  /// Lets a request that waits here continue at the next holder, if this gateway loses the session meanwhile: only what can be executed twice, or
  /// takes back what it has done. Messages are stored here or not at all, and a call belongs to the connection that sends it.
  func movable(
    _ pending: PendingRequest, _ request: borrowing HTTPRequestHead, _ route: Route, for grant: Grant?,
    from origin: ClientOrigin
  ) -> PendingRequest {
    guard route.endsAtDrain, pending.mayWait, let grant, let session = route.forwardedSession(in: shared.sessions)
    else { return pending }
    return .movable(pending, requestToForward(request, route, of: session, for: grant, from: origin))
  }

  /// Sends a request to the holder of its session, and waits for the response.
  func forward(
    _ request: RequestToForward, _ body: RequestBody?, at now: MonotonicTime, into response: inout Response
  ) throws(ProblemError) -> Outcome {
    guard let forwarder else { throw ProblemError(Self.holderUnavailable) }
    // Nothing will be found out about the holder before the store works.
    if request.session.placement.place == .nowhere, let problem = shared.storeProblem { throw ProblemError(problem) }
    let message = message(of: request, body, at: now, &response)
    guard let exchange = forwarder.forward(message, to: request.session.placement) else {
      throw ProblemError(
        Problem(
          .tooManyBodies,
          detail:
            "the bodies of requests that wait for another gateway exceed \(forwarder.network.limits.requestBytes) bytes, or those of this client its share: try again after the time in Retry-After",
          retryAfter: 1))
    }
    if let isRead = request.readsDocument {
      return .wait(HeldSessionDocument(self, request.session, exchange, isRead: isRead, at: now))
    }
    return .wait(
      HeldForward(api: self, exchange: exchange, endsAtDrain: request.endsAtDrain, effectAtHolder: request.effect))
  }

  /// What the holder gets of a request that is complete now.
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
      detail:
        "no gateway has served the request in time: the one that held the session was lost or is overloaded, or this one shuts down. Nothing was done that a repetition would do twice: repeat the request after the time in Retry-After",
      retryAfter: 1)
  }

  /// The problem of a request about a session of which no holder is known: the store's, if it does not work.
  var noHolder: Problem { shared.storeProblem ?? Self.holderUnavailable }

  static var outcomeUnknown: Problem {
    Problem(
      .outcomeUnknown,
      detail:
        "the gateway that holds the session was lost after the request was sent to it, and may have executed it: repeat it only if that does no harm, a POST of messages with the same Idempotency-Key"
    )
  }

  func write(_ outcome: ForwardedOutcome, into response: inout Response) {
    switch outcome {
    case .response(let status, let fields, let content):
      response.status = status
      response.fields.append(fields)
      if content.count > 0 { response.content.append(SharedSlice(content)) }
    case .unavailable: respond(with: noHolder, into: &response)
    case .unreachable(let peer):
      let address = shared.access.isOpen ? " at \(peer)" : ""
      let unreachable = Problem(
        .holderUnavailable,
        detail:
          "this gateway cannot connect to the gateway that holds the session\(address): an operator finds the reason in its log (listeners.peer_address, or a firewall). Nothing was done: repeat the request after the time in Retry-After",
        retryAfter: 1)
      respond(with: shared.storeProblem ?? unreachable, into: &response)
    case .closed:
      respond(
        with: Problem(.sessionClosed, detail: "the session is closed: create it again with PUT /v1/sessions/{session}"),
        into: &response)
    case .unknown: respond(with: Self.outcomeUnknown, into: &response)
    }
  }
}

/// A request that waits here until this gateway loses the session, and then for the response of the next holder.
final class HeldMovableRequest: WaitingRequest {
  private let request: any HolderRequest
  private let session: Session
  private let message: ForwardedRequest
  private let api: API
  let heldCount: Gauge?
  let notifier: Notifier
  private var hasMoved = false
  /// What it had changed when it moved. It changes nothing else there.
  private var effectBefore = HeldEffect.none
  /// nil before it has moved, and if too much waits for other gateways.
  private var exchange: ForwardedExchange?

  init(_ request: any HolderRequest, _ session: Session, _ message: ForwardedRequest, _ api: API) {
    self.request = request
    self.session = session
    self.message = message
    self.api = api
    (heldCount, notifier) = (request.heldCount, request.notifier)
  }

  var deadline: MonotonicTime {
    if let exchange { return exchange.deadline + .seconds(1) }
    return hasMoved ? .zero : request.deadline
  }

  var hasNewData: Bool {
    if !hasMoved {
      let hasNewData = request.hasNewData
      // After the news, which may be from a time when another gateway held the session.
      guard session.hasLeft else { return hasNewData }
      if hasNewData, request.isFact { return true }
      moveOn()
    }
    return exchange.map { $0.outcome != nil } ?? true
  }

  /// It has another deadline once it has moved.
  var isConcerned: Bool { hasMoved ? hasNewData : !session.isHere || request.isConcerned }
  var endsAtDrain: Bool { hasMoved || request.endsAtDrain }
  var effect: HeldEffect { hasMoved ? effectBefore : request.effect }

  private func moveOn() {
    (hasMoved, effectBefore) = (true, request.effect)
    request.abandon()
    exchange = api.forwarder?.forward(message, to: session.placement, notifying: notifier)
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

/// A request that waits for the response of the holder. It fits inline in the connection.
private struct HeldForward: WaitingRequest {
  let api: API
  let exchange: ForwardedExchange
  let endsAtDrain: Bool
  let effectAtHolder: HeldEffect

  var heldCount: Gauge? { nil }
  var notifier: Notifier { exchange.notifier }
  var effect: HeldEffect { exchange.mayHaveBeenExecuted ? effectAtHolder : .none }
  /// The exchange has an outcome by its own deadline; this one is later, so that it is never first.
  var deadline: MonotonicTime { exchange.deadline + .seconds(1) }
  var hasNewData: Bool { exchange.outcome != nil }
  var isConcerned: Bool { hasNewData }

  func finish(at now: MonotonicTime, into response: inout Response) {
    // Without an outcome, the server drains. What ends then has no effect at the holder, which notices that the connection has ended: a receive takes its
    // leases back.
    let outcome = exchange.outcome ?? (endsAtDrain ? .unavailable : exchange.failure)
    exchange.cancel()
    api.write(outcome, into: &response)
  }

  func abandon() { exchange.cancel() }
}
