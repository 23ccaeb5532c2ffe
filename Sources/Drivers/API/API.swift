import Access
import ByteStreams
import Configuration
import HTTPCodec
import HTTPServer
import Host
import Logging
import Metrics
import Peers
import Reactor
import Sessions
import Totals
import Upstream

/// The HTTP API on one event loop: routing, access control, parameters and representations. It has no access to
/// sockets.
package final class API: HTTPApplication {
  let common: CommonState
  /// Measures the turns of the loop.
  package let latencies: LoopLatencies
  /// Sends requests to other gateways; nil if there are no other gateways.
  let forwarder: Forwarder?
  private let router: Router
  private let messageLimits: IncomingMessage.Limits
  private let loopIndex: Int
  /// The requests whose heads have been read and whose responses have not begun.
  private var requests = SlotTable<Pending>()
  /// The held polls.
  var polls = SlotTable<Poll>()
  /// The requests whose messages are queued and whose responses are pending.
  var sends = SlotTable<PendingSend>()
  /// The requests that wait for the replies to their calls.
  var calls = SlotTable<PendingCall>()
  /// Makes the ids of calls.
  var entropy = EntropyPool()
  /// The held requests for consumers.
  var consumerRequests = SlotTable<HeldConsumerRequest.Pending>()
  var preparedPolls = PreparedPolls()
  var preparedBatches = PreparedBatches()
  /// The cursor of the current response, which contains it several times.
  var cursorText = ByteQueue()
  /// Decides which requests this loop serves.
  var access: RequestAccess
  var compressor = ResponseCompressor()
  /// The number of requests that may wait, among the requests to the API on management listeners. All connections of
  /// these listeners are on one loop, so this loop counts all of them.
  var heldManagementRequests = 0
  private var requestCount: UInt64 = 0
  private let requestPrefix = UInt32.random(in: .min ... .max)

  /// - Parameters:
  ///   - loopIndex: part of each request id.
  ///   - forwarder: sends requests to the other gateways, if there are any.
  package init(_ common: CommonState, loopIndex: Int, forwarder: Forwarder? = nil) {
    self.common = common
    self.forwarder = forwarder
    latencies = LoopLatencies(common.metrics.latencies)
    self.loopIndex = loopIndex
    router = Router(common.sessions)
    access = RequestAccess(common.access, common.browsers, common.limiter)
    messageLimits = IncomingMessage.Limits(
      bodyBytes: common.settings.http.bodyBytes, inflationRatio: common.settings.http.inflationRatio,
      batchMessages: common.settings.http.batchMessages,
      wait: common.settings.delivery.wait, maximumWait: common.settings.delivery.maximumWait)
  }

  /// A request whose head has been read, with the client's grant and the codings that it accepts.
  private struct Pending {
    let request: PendingRequest
    let grant: Grant?
    /// The client for which the request is counted in totals with a reserve (`ReservedTotal`).
    let client: UInt64
    let coding: HTTPAcceptedCodings
    /// The context of the request; nil for most requests.
    let context: RequestContext?

    func with(_ request: PendingRequest) -> Pending {
      Pending(request: request, grant: grant, client: client, coding: coding, context: context)
    }
  }

  /// The client for which a request is counted. It is the principal of the request, or the address if the request has
  /// no credentials.
  static func client(of grant: Grant?, at origin: ClientOrigin) -> UInt64 {
    TotalUser(principal: principal(of: grant), at: origin).client
  }

  /// A hash of the principal of a request; 0 without credentials.
  static func principal(of grant: Grant?) -> UInt64 { UInt64(grant?.number ?? 0) }

  // MARK: HTTPApplication

  package func begin(
    _ request: borrowing HTTPRequestHead, on listener: HTTPListener, from client: borrowing ClientConnection
  ) -> Exchange {
    var body: RequestBody?
    var coding = HTTPAcceptedCodings.identity
    var context: RequestContext?
    var grant: Grant?
    var counted: UInt64 = 0
    let slot: Int
    do throws(Problem) {
      grant = try admit(request, on: listener, from: client, &context)
      counted = Self.client(of: grant, at: context?.forwardedOrigin ?? client.origin)
      let request = try accept(request, on: listener, from: client.origin, for: grant, &coding, &body, &context)
      if request.mayWait {
        if listener.role == .management { try holdManagement(&context) }
        if let context { try hold(context) }
      }
      slot = requests.insert(
        Pending(request: request, grant: grant, client: counted, coding: coding, context: context))
    } catch {
      body = nil
      slot = requests.insert(
        Pending(request: .refused(error), grant: grant, client: counted, coding: coding, context: context))
    }
    return Exchange(state: slot, body: body)
  }

  /// Returns the client's grant, and sets the request's context. Limits count requests by their principal.
  private func admit(
    _ request: borrowing HTTPRequestHead, on listener: HTTPListener, from client: borrowing ClientConnection,
    _ context: inout RequestContext?
  ) throws(Problem) -> Grant? {
    if listener.role == .client {
      if let origin = common.browsers.crossOrigin.origin(of: request) {
        context = RequestContext(origin, allowsCredentials: allowsCredentials(request), nil)
      }
    } else if listener.role == .peer {
      return try admitPeer(request, &context)
    }
    // A preflight is not counted: a browser would report a 429 as a network failure.
    let isPreflight = context != nil && CrossOrigin.isPreflight(request)
    let grant: Grant?
    do throws(Problem) {
      grant = try access.admit(request, on: listener, from: client)
    } catch {
      // A refused request has no principal, so it is counted for its address only.
      if !isPreflight { try count(nil, request, on: listener, from: client, &context) }
      throw error
    }
    if isPreflight {
      context?.isPreflight = true
    } else {
      try count(grant, request, on: listener, from: client, &context)
    }
    return grant
  }

  /// The origin of the page that sends the request, if it may read the response. Pages may read only responses of
  /// listeners for clients.
  private func allowedOrigin(of request: borrowing HTTPRequestHead, on listener: HTTPListener) -> CrossOrigin.Origin? {
    listener.role == .client ? common.browsers.crossOrigin.origin(of: request) : nil
  }

  private func count(
    _ grant: Grant?, _ request: borrowing HTTPRequestHead, on listener: HTTPListener,
    from client: borrowing ClientConnection, _ context: inout RequestContext?
  ) throws(Problem) {
    guard Router.isClientRequest(request, on: listener.role),
      let limited = common.limiter.client(grant?.principal ?? "", at: client.origin)
    else { return }
    if context == nil { context = RequestContext(nil, allowsCredentials: false, nil) }
    context?.client = limited
    try common.limiter.admitRequest(of: limited, at: ProcessInformation.monotonicTime())
  }

  private func accept(
    _ request: borrowing HTTPRequestHead, on listener: HTTPListener, from origin: ClientOrigin, for grant: Grant?,
    _ coding: inout HTTPAcceptedCodings, _ body: inout RequestBody?, _ context: inout RequestContext?
  ) throws(Problem) -> PendingRequest {
    if let context, context.isPreflight, let origin = context.origin {
      return .preflight(origin, allowsCredentials: context.allowsCredentials)
    }
    let route: Route
    do throws(Problem) {
      route = try router.route(request, on: listener.role, for: grant)
    } catch {
      guard let name = error.missingSession else { throw error }
      if request.framing != .none { body = RequestBody(request.framing, limit: messageLimits.bodyBytes) }
      return .missing(name, error)
    }
    try route.authorize(grant)
    if request.fields.contains(.idempotencyKey), !route.allowsIdempotencyKey {
      // The key is refused and not ignored, since a client that sends a key relies on it when it repeats the request.
      throw Problem(
        .invalidParameter,
        "Idempotency-Key is not accepted by \(request.methodBytes.excerpt()) \(request.path.excerpt()): leave it out, since only POST of messages has it"
      )
    }
    if forwarder != nil {
      if listener.role == .peer {
        if isMisdirected(route) { return .misdirected }
      } else if let forwarded = forwarded(request, route, for: grant, from: origin, &body) {
        return forwarded
      }
    }
    let pending = try accept(request, route, for: grant, &coding, &body, context)
    guard forwarder != nil else { return pending }
    return listener.role == .peer
      ? acceptFromPeer(pending, route, request) : movable(pending, request, route, for: grant, from: origin)
  }

  /// Accepts a request that this gateway executes.
  private func accept(
    _ request: borrowing HTTPRequestHead, _ route: Route, for grant: Grant?, _ coding: inout HTTPAcceptedCodings,
    _ body: inout RequestBody?, _ context: RequestContext?
  ) throws(Problem) -> PendingRequest {
    let representation = try representation(of: route, for: request)
    if route.readsAcceptEncoding { coding = try Representation.coding(of: request) }
    switch route {
    case .send(let session):
      let message = try IncomingMessage(request, messageLimits)
      if message.parameters.event != nil || session.upstream.hasEvents {
        let form = EventForm(parameters: message.parameters.event, form: message.form, isJSON: message.isJSON)
        try form.check(for: session)
      }
      // The limit for messages is checked before the body is collected, except in two cases. The number of messages of
      // a batch is known only after its lines are read. A repetition under an idempotency key sends no message, so the
      // limit does not matter.
      if !message.isBatch, message.idempotency == nil { try checkMessages(in: context) }
      body = RequestBody(request.framing, limit: messageLimits.bodyBytes, preparedFrom: message.smallestLongBody)
      return .send(message, to: session)
    case .receive(let session):
      let parameters = try PollParameters(request, common.settings.delivery, coding, for: grant)
      try parameters.checkNamespaces(of: session)
      return .poll(parameters, of: session)
    case .delivery(let delivery, let session):
      let wait = try WaitParameter.read(request, default: .zero, maximum: common.settings.delivery.maximumWait)
      return .delivery(delivery, of: session, wait: wait)
    case .call(let session):
      try checkMessages(in: context)
      let call = try IncomingCall(request, of: session, messageLimits)
      body = RequestBody(request.framing, limit: messageLimits.bodyBytes, preparedFrom: call.smallestLongBody)
      return .call(call, of: session)
    case .changeSession(let session):
      try SessionChange.check(request)
      body = RequestBody(request.framing, limit: SessionChange.limit)
      return .change(session)
    case .putSession(let name):
      try RequestDocument.check(request, limit: SessionDocument.limit)
      body = RequestBody(request.framing, limit: SessionDocument.limit)
      return .putSession(name)
    case .closeSession(let session): return .closeSession(session, code: try SessionClosing.code(of: request))
    case .sessions: return .listSessions(try SessionPage(request))
    // This gateway has become the holder since the request was routed, or no other gateway can be reached.
    case .distantDelivery: throw Self.holderUnavailable
    case .consumer(let target): return .consumer(try accept(request, for: target, &body))
    case .session, .reload, .document, .errorPage, .live, .ready, .started, .metrics, .history, .status, .options:
      return .read(route, representation)
    }
  }

  /// Returns the media type of the response. One rule applies to all routes except polls: the media type of a poll
  /// depends on its parameters, so it is chosen when they are read.
  private func representation(
    of route: Route, for request: borrowing HTTPRequestHead
  ) throws(Problem) -> Representation {
    let offered: [Representation]
    switch route {
    case .send, .delivery, .distantDelivery, .call, .changeSession, .putSession, .closeSession, .session, .sessions,
      .reload, .consumer, .history:
      if request.fields.acceptsAllMediaTypes { return .json }
      offered = [.json]
    case .document: offered = [.yaml]
    case .metrics: offered = [.text]
    case .status: offered = StatusPage.representations
    case .errorPage: offered = ErrorPages.representations
    // The client of a probe reads only the status code, so its `Accept` does not matter.
    case .receive, .live, .ready, .started, .options: return .text
    }
    return try Representation.negotiate(request, offered)
  }

  package func route(of request: borrowing HTTPRequestHead) -> StaticString { Router.template(of: request) }

  package func isClientRequest(_ request: borrowing HTTPRequestHead, on listener: HTTPListener) -> Bool {
    Router.isClientRequest(request, on: listener.role)
  }

  package func principal(of exchange: borrowing Exchange) -> String? {
    guard let principal = requests[exchange.state]?.grant?.principal, !principal.isEmpty else { return nil }
    return principal
  }

  func request(of exchange: borrowing Exchange) -> PendingRequest? { requests[exchange.state]?.request }

  package func finish(
    _ exchange: consuming Exchange, at now: MonotonicTime, into response: inout Response
  ) -> Outcome {
    guard let pending = requests.remove(exchange.state) else {
      preconditionFailure("a request was finished twice")
    }
    let grant = common.access.isOpen ? nil : pending.grant
    let outcome: Outcome
    // The credentials are checked again, since the body may have taken long to arrive. For a request that another
    // gateway has forwarded, that gateway has done this. Such a request may be a repetition of a request that was
    // already executed, so it must not be refused here.
    if let grant, !(pending.context?.isForwarded ?? false), let refusal = common.access.refusal(of: grant) {
      respond(with: refusal, into: &response)
      outcome = .respond
    } else {
      outcome = respond(to: pending, exchange.body, at: now, into: &response)
    }
    if case .respond = outcome {
      latencies.count(pending.request.kind)
      response.principal = Self.principal(of: grant)
    }
    if grant == nil, pending.context == nil { return outcome }
    return accompany(outcome, for: grant, in: pending.context, at: now, into: &response)
  }

  private func respond(
    to pending: Pending, _ body: RequestBody?, at now: MonotonicTime, into response: inout Response
  ) -> Outcome {
    switch pending.request {
    case .movable(let request, let forward):
      return respond(toMovable: pending.with(request), forward, body, at: now, into: &response)
    case .fromPeer(let request, let session, let movesOn):
      return respond(toPeer: pending.with(request), body, for: session, movesOn: movesOn, at: now, into: &response)
    default:
      if let outcome = respondAsHolder(to: pending, body, at: now, into: &response) { return outcome }
      respond(with: Self.holderUnavailable, into: &response)
      return .respond
    }
  }

  /// Responds to a request that this gateway executes. If only the session's holder can execute the request, verifies
  /// both before and after the execution that this gateway is the holder: the process may have been stopped during the
  /// execution, and may then have read an outdated state.
  ///
  /// Returns nil if this gateway has lost the session, and the request can be repeated at the next holder. `response`
  /// is then empty.
  private func respondAsHolder(
    to pending: Pending, _ body: RequestBody?, at now: MonotonicTime, into response: inout Response
  ) -> Outcome? {
    guard let session = pending.request.sessionOfHolder else {
      return execute(pending, body, at: now, into: &response)
    }
    guard !session.hasLeft else { return nil }
    let outcome = execute(pending, body, at: now, into: &response)
    guard case .respond = outcome, session.hasLeft,
      !pending.request.isFact(isRefused: !response.refusal.isEmpty)
    else { return outcome }
    response.reset()
    return nil
  }

  private func execute(
    _ pending: Pending, _ body: RequestBody?, at now: MonotonicTime, into response: inout Response
  ) -> Outcome {
    let isFromPeer = pending.context?.isForwarded ?? false
    do throws(Problem) {
      switch pending.request {
      case .send(let message, let session):
        return try send(
          message, body, to: session, for: pending.grant, by: pending.client, pending.context, at: now,
          into: &response)
      case .poll(let parameters, let session):
        return try poll(parameters, of: session, for: pending.grant, at: now, into: &response)
      case .delivery(let delivery, let session, let wait):
        let deadline = deadline(after: wait, for: pending.grant, at: now)
        return try respond(
          with: delivery, of: session, for: pending.grant, until: deadline, at: now, into: &response)
      case .call(let call, let session):
        try admitMessages(1, in: pending.context, at: now)
        return try self.call(
          call, body, of: session, for: pending.grant, by: pending.client, at: now, into: &response)
      case .change(let session):
        if let wait = try change(session, as: body, for: pending.grant, toPeer: isFromPeer, at: now, into: &response) {
          return wait
        }
      case .putSession(let name):
        return try putSession(name, body, for: pending.grant, at: now, into: &response)
      case .closeSession(let session, let code):
        return try closeSession(session, code: code, at: now, into: &response)
      case .listSessions(let page): listSessions(page, for: pending.grant, at: now, into: &response)
      case .consumer(let request):
        let outcome = try serve(request, body, for: pending.grant, by: pending.client, at: now, into: &response)
        if !request.target.isReading { return outcome }
      case .read(let route, let representation):
        respond(
          to: route, as: representation, for: pending.grant, toPeer: isFromPeer, at: now, into: &response)
      case .preflight(let origin, let allowsCredentials):
        response.begin(.noContent, nil)
        common.browsers.crossOrigin.writePreflight(
          for: origin, allowsCredentials: allowsCredentials, into: &response.fields)
        return .respond
      case .forward(let request):
        pending.context?.isSentToHolder = true
        return try forward(request, body, at: now, into: &response)
      case .movable, .fromPeer: preconditionFailure("a request is executed with what is around it")
      case .misdirected:
        misdirect(into: &response)
        return .respond
      case .refused(let problem): respond(with: problem, into: &response)
      case .missing(let name, let problem):
        return try lookUp(name, problem, for: pending.grant, by: pending.client, at: now)
      }
      // Only responses without a problem are compressed, since problem documents are small.
      if response.refusal.isEmpty, response.content.count >= ResponseCompressor.minimumBytes {
        response.fields.append("Vary: Accept-Encoding\r\n" as StaticString)
        compressor.compress(&response, pending.coding, at: now)
      }
    } catch {
      respond(with: error, into: &response)
    }
    return .respond
  }

  /// Responds to a request of a peer, unless this gateway has lost the session since the head was read.
  ///
  /// - Parameter movesOn: whether the peer can send the request to the next holder if this gateway loses the session
  ///   while the request waits.
  private func respond(
    toPeer pending: Pending, _ body: RequestBody?, for session: Session, movesOn: Bool, at now: MonotonicTime,
    into response: inout Response
  ) -> Outcome {
    guard session.isHere, let outcome = respondAsHolder(to: pending, body, at: now, into: &response) else {
      misdirect(into: &response)
      return .respond
    }
    if movesOn, case .wait(let request) = outcome { return .wait(HeldPeerRequest(request, session, self)) }
    return outcome
  }

  /// Responds to a request that may wait here, unless this gateway has lost the session since the head was read.
  private func respond(
    toMovable pending: Pending, _ forward: RequestToForward, _ body: RequestBody?, at now: MonotonicTime,
    into response: inout Response
  ) -> Outcome {
    guard forward.session.isHere, let outcome = respondAsHolder(to: pending, body, at: now, into: &response) else {
      return execute(pending.with(.forward(forward)), body, at: now, into: &response)
    }
    guard case .wait(let request as any HolderRequest) = outcome else { return outcome }
    return .wait(HeldMovableRequest(request, forward.session, message(of: forward, body, at: now, &response), self))
  }

  package func abandon(_ exchange: consuming Exchange) {
    if let context = requests.remove(exchange.state)?.context { release(context) }
  }

  package func addFields(
    to response: inout Response, for request: borrowing HTTPRequestHead, on listener: HTTPListener
  ) {
    guard let origin = allowedOrigin(of: request, on: listener) else { return }
    common.browsers.crossOrigin.writeFields(
      for: origin, allowsCredentials: allowsCredentials(request), into: &response.additionalFields)
  }

  package func refuse(_ refusal: HTTPServerRefusal, into response: inout Response) {
    respond(with: Problem(refusal, common.settings.http), into: &response)
  }

  /// Number of requests that have got no response yet. For tests.
  var pendingRequests: Int { requests.count + polls.count + sends.count + calls.count + consumerRequests.count }

  // MARK: Responses

  /// Returns the deadline of a wait that begins now. A wait ends when the credentials expire, at the latest.
  func deadline(after wait: TimeSpan, for grant: Grant?, at now: MonotonicTime) -> MonotonicTime {
    guard let expires = grant?.expires else { return now + wait }
    let left = expires - ProcessInformation.wallClockMilliseconds()
    // A day is longer than any wait.
    return now + min(wait, .milliseconds(min(max(left, 0), 86_400_000)))
  }

  /// Chooses an id for the request, unless the client has sent one.
  func nameRequest(_ response: inout Response) {
    guard response.requestID.isEmpty else { return }
    requestCount += 1
    response.requestID.append("\(String(requestPrefix, radix: 16))-\(loopIndex)-\(requestCount)")
  }

  func respond(with problem: Problem, into response: inout Response) {
    nameRequest(&response)
    if problem.kind == .insufficientScope || problem.kind == .sessionNotOwned {
      common.access.refusals.forbidden?.add()
    }
    let id = response.requestID.bytes.text()
    response.begin(problem.status, "application/problem+json")
    switch problem.field {
    case .retryAfter(let seconds): response.fields.appendField("Retry-After", decimal: seconds)
    case .allow(let methods): response.fields.appendField("Allow", methods)
    case .challenge(let challenge):
      challenge.write(into: &response.fields)
      // Only gateways may use the listener for peers, so the connection of another client is closed.
      if case .gateway = challenge { response.closesConnection = true }
    case nil: break
    }
    problem.write(requestID: id, into: &response.content.text)
    response.refusal = [
      .text("type", problem.kind.row.name.description), .number("status", Int(problem.status.rawValue)),
      .text("detail", problem.logDetail ?? problem.detail),
    ]
  }
}

extension Response {
  /// Begins a response with content of `type`, or without content if `type` is nil. Its header fields say that the
  /// response must not be cached, and that clients must not guess another type.
  mutating func begin(_ status: HTTPStatus, _ type: StaticString?) {
    self.status = status
    if let type { fields.appendField("Content-Type", type) }
    fields.append("Cache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\n" as StaticString)
  }
}

extension StaticString {
  static let plainText: StaticString = "text/plain; charset=utf-8"
}
