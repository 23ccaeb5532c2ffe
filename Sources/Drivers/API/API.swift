import Access
import ByteStreams
import Forwarding
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
  /// The routes and their endpoints.
  let table: RouteTable
  private let router: Router
  let messageLimits: IncomingMessage.Limits
  private let loopIndex: Int
  /// The requests whose heads have been read and whose responses have not begun.
  var requests = SlotTable<Pending>()
  /// The held polls.
  var polls = SlotTable<Poll>()
  /// The requests whose messages are queued and whose responses are pending.
  var sends = SlotTable<PendingSend>()
  /// The requests that wait for the replies to their calls.
  var calls = SlotTable<PendingCall>()
  /// Makes the ids of calls.
  var entropy = EntropyPool()
  /// The held requests for consumers.
  var consumerRequests = SlotTable<PendingConsumerRequest>()
  var preparedPolls = PreparedPolls()
  var preparedBatches = PreparedBatches()
  /// The cursor of the current response, which contains it several times.
  var cursorText = ByteQueue()
  /// Decides which requests this loop serves.
  var access: RequestAccess
  var compressor = ResponseCompressor()
  /// The number of requests in progress on management listeners that may have to wait. All connections of these
  /// listeners are on one loop, so this loop counts all of them.
  var heldManagementRequests = 0
  private var requestCount: UInt64 = 0
  private let requestPrefix = UInt32.random(in: .min ... .max)

  /// - Parameters:
  ///   - loopIndex: part of each request id.
  ///   - forwarder: sends requests to the other gateways, if there are any.
  package convenience init(_ common: CommonState, loopIndex: Int, forwarder: Forwarder? = nil) {
    self.init(common, loopIndex: loopIndex, forwarder: forwarder, endpoints: Self.endpoints)
  }

  /// - Parameter endpoints: the operations of the API.
  init(_ common: CommonState, loopIndex: Int, forwarder: Forwarder? = nil, endpoints: [any Endpoint.Type]) {
    self.common = common
    self.forwarder = forwarder
    table = RouteTable(endpoints)
    latencies = LoopLatencies(common.metrics.latencies)
    self.loopIndex = loopIndex
    router = Router(table, common.sessions)
    access = RequestAccess(common.access, common.browsers, common.limiter)
    messageLimits = IncomingMessage.Limits(
      bodyBytes: common.http.bodyBytes, inflationRatio: common.settings.inflationRatio,
      batchMessages: common.settings.batchMessages,
      wait: common.settings.delivery.wait, maximumWait: common.settings.delivery.maximumWait)
  }

  /// A request between its head and its response.
  struct Pending {
    /// What happens when the content has arrived.
    var step = Step.execute(by: .thisGateway)
    var request = ReceivedRequest()
    var input = StoredInput.nothing

    enum Step {
      case execute(by: Executor)
      case options(Methods)
      case preflight(CrossOrigin.Origin, allowsCredentials: Bool)
      indirect case refused(Problem)
      /// A request for a session that this gateway does not have, with the problem if the session does not exist.
      indirect case missing(String, Problem)
    }

    /// Whether an endpoint of this gateway executes the request.
    var isExecutedHere: Bool { if case .execute(let executor) = step { executor.isThisGateway } else { false } }
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
    _ head: borrowing HTTPRequestHead, on listener: HTTPListener, from client: borrowing ClientConnection
  ) -> Exchange {
    guard head.hasEscapes else { return begin(head, at: head.path, on: listener, from: client) }
    var path = ByteQueue()
    PercentDecoder.decodeUnreserved(head.path, into: &path)
    return begin(head, at: path.bytes, on: listener, from: client)
  }

  /// - Parameter path: the path of the request, in which unreserved characters are decoded.
  private func begin(
    _ head: borrowing HTTPRequestHead, at path: Span<UInt8>, on listener: HTTPListener,
    from client: borrowing ClientConnection
  ) -> Exchange {
    var body: RequestBody?
    var pending = Pending()
    do throws(Problem) {
      let found = router.find(head, at: path, on: listener.role)
      pending.request.grant = try admit(head, for: found, on: listener, from: client, &pending.request.context)
      let origin = pending.request.context?.forwardedOrigin ?? client.origin
      pending.request.client = Self.client(of: pending.request.grant, at: origin)
      if try accept(head, at: path, found, on: listener, from: client.origin, &pending, &body) {
        if listener.role == .management { try holdManagement(&pending.request.context) }
        if let context = pending.request.context { try hold(context) }
      }
    } catch {
      body = nil
      pending.step = .refused(error)
    }
    return Exchange(state: requests.insert(pending), body: body)
  }

  /// Returns the client's grant, and sets the request's context. Limits count requests by their principal.
  private func admit(
    _ request: borrowing HTTPRequestHead, for path: Router.Path, on listener: HTTPListener,
    from client: borrowing ClientConnection, _ context: inout RequestContext?
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
      grant = try access.admit(request, for: path, on: listener, from: client)
    } catch {
      // A refused request has no principal, so it is counted for its address only.
      if !isPreflight, path.isOfAPI { try count(nil, from: client, &context) }
      throw error
    }
    if isPreflight {
      context?.isPreflight = true
    } else if path.isOfAPI {
      try count(grant, from: client, &context)
    }
    return grant
  }

  /// The origin of the page that sends the request, if it may read the response. Pages may read only responses of
  /// listeners for clients.
  private func allowedOrigin(of request: borrowing HTTPRequestHead, on listener: HTTPListener) -> CrossOrigin.Origin? {
    listener.role == .client ? common.browsers.crossOrigin.origin(of: request) : nil
  }

  private func count(
    _ grant: Grant?, from client: borrowing ClientConnection, _ context: inout RequestContext?
  ) throws(Problem) {
    guard let limited = common.limiter.client(grant?.principal ?? "", at: client.origin) else { return }
    if context == nil { context = RequestContext(nil, allowsCredentials: false, nil) }
    context?.client = limited
    try common.limiter.admitRequest(of: limited, at: ProcessInformation.monotonicTime())
  }

  /// Routes a request, and reads its head. Returns whether its response may have to wait, or is a stream.
  private func accept(
    _ head: borrowing HTTPRequestHead, at path: Span<UInt8>, _ found: Router.Path, on listener: HTTPListener,
    from origin: ClientOrigin, _ pending: inout Pending, _ body: inout RequestBody?
  ) throws(Problem) -> Bool {
    if let context = pending.request.context, context.isPreflight, let origin = context.origin {
      pending.step = .preflight(origin, allowsCredentials: context.allowsCredentials)
      return false
    }
    do throws(Problem) {
      switch try router.route(head, at: path, found, for: pending.request.grant) {
      case .target(let target): pending.request.target = target
      case .options(let methods):
        pending.step = .options(methods)
        return false
      }
    } catch {
      guard let name = error.missingSession else { throw error }
      if head.framing != .none { body = RequestBody(head.framing, limit: messageLimits.bodyBytes) }
      pending.step = .missing(name, error)
      return false
    }
    let route = table.routes[pending.request.target.route]
    try route.authorize(pending.request.grant)
    if head.fields.contains(.idempotencyKey), !route.takesIdempotencyKey {
      // The key is refused and not ignored, since a client that sends a key relies on it when it repeats the request.
      throw Problem(
        .invalidParameter,
        "Idempotency-Key is not accepted by \(head.methodBytes.excerpt()) \(head.path.excerpt()): leave it out, since only POST of messages has it"
      )
    }
    let executor = try executor(of: pending.request, head, route, from: origin, &body)
    pending.step = .execute(by: executor)
    guard executor.isThisGateway else { return executor.mayWaitElsewhere }
    pending.request.representation = try route.formats.negotiate(head)
    if !route.formats.isEmpty { pending.request.coding = try Representation.coding(of: head) }
    body = try route.body.prepare(head)
    let accepted = try table.endpoints[pending.request.target.route].accept(
      head, path.extracting(found.match?.variable ?? 0..<0), pending.request, self)
    pending.input = accepted.input
    if case .messages = route.body {
      body = RequestBody(head.framing, limit: messageLimits.bodyBytes, preparedFrom: accepted.smallestLongBody)
    }
    // The gateway that has forwarded the request counts it.
    if pending.request.isFromPeer { return false }
    if accepted.mayWait, let executor = movableExecutor(of: pending.request, head, route, from: origin) {
      pending.step = .execute(by: executor)
    }
    return accepted.mayWait
  }

  package func route(of head: borrowing HTTPRequestHead) -> StaticString {
    guard head.hasEscapes else { return router.template(of: head.path) }
    var path = ByteQueue()
    PercentDecoder.decodeUnreserved(head.path, into: &path)
    return router.template(of: path.bytes)
  }

  package func isClientRequest(_ head: borrowing HTTPRequestHead, on listener: HTTPListener) -> Bool {
    guard head.hasEscapes else { return Router.isOfAPI(head.path, on: listener.role) }
    var path = ByteQueue()
    PercentDecoder.decodeUnreserved(head.path, into: &path)
    return Router.isOfAPI(path.bytes, on: listener.role)
  }

  package func principal(of exchange: borrowing Exchange) -> String? {
    guard let principal = requests[exchange.state]?.request.grant?.principal, !principal.isEmpty else { return nil }
    return principal
  }

  package func finish(
    _ exchange: consuming Exchange, at now: MonotonicTime, into response: inout Response
  ) -> Outcome {
    guard let pending = requests.remove(exchange.state) else {
      preconditionFailure("a request was finished twice")
    }
    let grant = common.access.isOpen ? nil : pending.request.grant
    let context = pending.request.context
    let outcome: Outcome
    // The credentials are checked again, since the body may have taken long to arrive. For a request that another
    // gateway has forwarded, that gateway has done this. Such a request may be a repetition of a request that was
    // already executed, so it must not be refused here.
    if let grant, !pending.request.isFromPeer, let refusal = common.access.refusal(of: grant) {
      respond(with: refusal, into: &response)
      outcome = .respond
    } else {
      outcome = respond(to: pending, exchange.body, at: now, into: &response)
    }
    if case .respond = outcome {
      latencies.count(pending.isExecutedHere ? table.routes[pending.request.target.route].kind : .other)
      response.principal = Self.principal(of: grant)
    }
    if grant == nil, context == nil { return outcome }
    return accompany(outcome, for: grant, in: context, at: now, into: &response)
  }

  private func respond(
    to pending: Pending, _ body: RequestBody?, at now: MonotonicTime, into response: inout Response
  ) -> Outcome {
    switch pending.step {
    case .execute(let executor): return execute(pending, by: executor, body, at: now, into: &response)
    case .options(let methods):
      response.begin(.noContent, nil)
      methods.writeField(into: &response.fields)
    case .preflight(let origin, let allowsCredentials):
      response.begin(.noContent, nil)
      common.browsers.crossOrigin.writePreflight(
        for: origin, allowsCredentials: allowsCredentials, into: &response.fields)
    case .refused(let problem): respond(with: problem, into: &response)
    case .missing(let name, let problem):
      do throws(Problem) {
        return try lookUp(name, problem, for: pending.request.grant, by: pending.request.client, at: now)
      } catch {
        respond(with: error, into: &response)
      }
    }
    return .respond
  }

  /// Executes a request by its endpoint. Throws if nothing was done.
  func run(
    _ pending: Pending, _ body: RequestBody?, at now: MonotonicTime, into response: inout Response
  ) throws(Problem) -> Outcome {
    let number = pending.request.target.route
    let outcome = try table.endpoints[number].run(
      pending.input, pending.request, body, Turn(api: self, now: now), into: &response)
    // Only responses without a problem are compressed, since problem documents are small.
    if table.routes[number].isCompressed, case .respond = outcome, response.refusal.isEmpty,
      response.content.count >= ResponseCompressor.minimumBytes
    {
      response.fields.append("Vary: Accept-Encoding\r\n" as StaticString)
      compressor.compress(&response, pending.request.coding, at: now)
    }
    return outcome
  }

  package func abandon(_ exchange: consuming Exchange) {
    if let context = requests.remove(exchange.state)?.request.context { release(context) }
  }

  package func addFields(
    to response: inout Response, for request: borrowing HTTPRequestHead, on listener: HTTPListener
  ) {
    guard let origin = allowedOrigin(of: request, on: listener) else { return }
    common.browsers.crossOrigin.writeFields(
      for: origin, allowsCredentials: allowsCredentials(request), into: &response.additionalFields)
  }

  package func refuse(_ refusal: HTTPServerRefusal, into response: inout Response) {
    respond(with: Problem(refusal, common.http), into: &response)
  }

  /// Number of requests that have got no response yet. For tests.
  var pendingRequests: Int { requests.count + polls.count + sends.count + calls.count + consumerRequests.count }

  // MARK: Responses

  /// Returns the deadline of a wait that begins now. A wait ends no later than the credentials expire.
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
    case .allow(let methods): methods.writeField(into: &response.fields)
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
