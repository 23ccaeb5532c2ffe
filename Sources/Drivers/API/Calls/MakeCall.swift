import Access
import ByteStreams
import Calls
import Forwarding
import HTTPCodec
import HTTPServer
import Metrics
import Outbox
import Reactor
import Sessions
import Upstream
import UpstreamProtocol
import UpstreamSession

/// `POST /v1/call`: queues the client's request, and responds with the upstream's reply.
enum MakeCall: Endpoint {
  static let parameters: QueryParameter.Names = [.wait, .ttl, .event, .namespace, .type]

  static var route: Route {
    Route(
      method: .post, path: "/v1/call", sessionPath: "/v1/sessions/{name}/call", scope: .call, parameters: parameters,
      body: .messages,
      place: .holder(
        // The upstream replies on the connection on which it got the request. So the call ends with this connection,
        // and does not continue at the next holder. A call is not stored, and ends when its wait ends.
        HolderRules(
          repetition: .harmful, staysTrue: true, effect: .changeAndData, wait: .always,
          standardWait: IncomingCall.defaultWait, isStored: false)))
  }

  static func read(
    _ head: borrowing HTTPRequestHead, _ variable: Span<UInt8>, of request: ReceivedRequest, _ api: API
  ) throws(Problem) -> IncomingCall {
    try api.checkMessages(in: request.context)
    return try IncomingCall(head, of: request.session, api.messageLimits)
  }

  static func smallestLongBody(_ call: IncomingCall) -> Int { call.smallestLongBody }

  static func mayWait(_ call: IncomingCall) -> Bool { call.wait > .zero }

  static func preparation(_ call: IncomingCall, of request: ReceivedRequest, _ api: API) -> (any BodyPreparation)? {
    let format = request.session.upstream.eventFormat
    let random = api.randomBits()
    return PreparedBody { bytes in Result { () throws(Problem) in try call.content(bytes, format, random) } }
  }

  static func execute(
    _ call: IncomingCall, of request: ReceivedRequest, _ body: RequestBody?, _ turn: Turn, into response: inout Response
  ) throws(Problem) -> Outcome {
    let (api, session, now) = (turn.api, request.session, turn.now)
    try api.admitMessages(1, in: request.context, at: now)
    session.noteUse(at: now)
    let registered: SessionHandle.RegisteredCall
    switch try call.content(of: body, session.upstream.eventFormat, api.randomBits()) {
    case .event(let event):
      let receipt = try api.registerEvent(call, event, of: session, by: request.client, at: now)
      guard let call = try accepted(receipt, by: session, api, at: now) else {
        preconditionFailure("an id was used twice")
      }
      registered = call
    case .request(let content):
      registered = try register(call, content, of: session, by: request.client, api, at: now)
    }
    let pending = PendingCall(
      session: session, call: registered, caller: request.grant?.principal ?? "", start: now,
      preferredWait: call.preferredWait)
    let deadline = api.deadline(after: call.wait, for: request.grant, at: now)
    let held = HeldCall(api: api, slot: api.calls.insert(pending), deadline: deadline)
    if call.wait > .zero, case .wait = held.advance(.news, at: now) { return .wait(held) }
    held.finish(at: now, into: &response)
    return .respond
  }

  static func store(_ call: consuming IncomingCall) -> StoredInput { .call(call) }
  static func restore(_ input: StoredInput) -> IncomingCall? {
    if case .call(let call) = input { call } else { nil }
  }
}

extension IncomingCall {
  /// How long the request may be queued: at most as long as the client waits, since no client would get a later reply.
  func timeToLive(to session: Session, _ api: API) throws(Problem) -> TimeSpan {
    min(try api.timeLeft(of: timeToLive ?? session.upstream.defaultTimeToLive, after: waited), wait)
  }
}

extension MakeCall {
  private static func register(
    _ call: IncomingCall, _ request: CallRequest, of session: Session, by client: UInt64, _ api: API,
    at now: MonotonicTime
  ) throws(Problem) -> SessionHandle.RegisteredCall {
    let timeToLive = try call.timeToLive(to: session, api)
    var request = request
    while true {
      let receipt = session.upstream.call(
        request.id, ByteSlice(request.message), token: request.token, timeToLive: timeToLive, by: client, now: now)
      if let registered = try accepted(receipt, by: session, api, at: now) { return registered }
      request = request.with(CallID(request.id.form, random: api.randomBits()))
    }
  }

  /// Returns nil if another call has the same id.
  private static func accepted(
    _ receipt: SessionHandle.CallReceipt, by session: Session, _ api: API, at now: MonotonicTime
  ) throws(Problem) -> SessionHandle.RegisteredCall? {
    switch receipt {
    case .registered(let registered):
      api.common.metrics.acceptedMessages.add()
      return registered
    case .idInUse: return nil
    case .full:
      api.common.metrics.refusedMessages.add(.tooManyCalls)
      throw Problem(
        .tooManyCalls,
        "\(CallTable.Limits().calls) calls of this session, or the share of this client of them, wait for their replies: try again after the time in Retry-After"
      )
    case .refused(let receipt):
      api.common.metrics.refusedMessages.add(API.problemKind(of: receipt.result))
      throw api.problem(receipt.result, receipt.nextAttempt, session, at: now)
    }
  }
}

/// A `POST /v1/call` whose request is queued and whose response is pending.
struct PendingCall {
  let session: Session
  let call: SessionHandle.RegisteredCall
  /// The principal of the client.
  let caller: String
  /// When the request was received.
  let start: MonotonicTime
  /// The wait, if it was requested by `Prefer`.
  let preferredWait: TimeSpan?
}

extension PendingCall {
  /// Throws if the request was not sent.
  fileprivate func respond(_ api: API, at now: MonotonicTime, into response: inout Response) throws(Problem) {
    let (outcome, number) = session.upstream.finish(call, for: caller, now: now)
    api.common.metrics.calls.count(outcome)
    if let wait = preferredWait {
      response.fields.append("Preference-Applied: wait=" as StaticString)
      response.fields.append(decimal: Int(wait.seconds))
      response.fields.append("\r\n" as StaticString)
    }
    switch outcome {
    case .replied(let reply):
      api.latencies.note(.call, since: start)
      writeIdentifiers(number, into: &response.fields)
      response.begin(.ok, "application/json")
      for piece in reply.pieces { response.content.append(piece) }
    case .timedOut:
      writeIdentifiers(number, into: &response.fields)
      api.respond(
        with: Problem(
          .replyTimeout,
          "the upstream sent no reply within the wait. The delivery in Location shows the reply if it arrives within \(LateCalls.Limits().time.text); a longer wait is possible, up to delivery.maximum_wait"
        ), into: &response)
    case .upstreamClosed:
      DeliveryJSON.writeLocation(of: call.sequence, in: session, into: &response.fields)
      api.respond(
        with: Problem(
          .upstreamClosed,
          "the connection to the upstream ended before the reply, and the request is not sent again. The upstream may have acted upon it: repeat the call only if that does no harm"
        ), into: &response)
    case .notSent: throw notSent(api, at: now)
    }
  }

  /// Writes the path of the delivery, and the id that the upstream got. Further messages of the upstream about the
  /// request contain this id.
  private func writeIdentifiers(_ number: UInt32?, into fields: inout ByteQueue) {
    DeliveryJSON.writeLocation(of: call.sequence, in: session, into: &fields)
    // The acknowledgement of an event is its only reply.
    guard call.id.form != .acknowledgement else { return }
    // The request may not have its number yet, for example if the client does not wait.
    if number == nil, session.upstream.correlation?.ids == .sequence { return }
    fields.append("Gateway-Call-Id: " as StaticString)
    if let number { fields.append(decimal: Int(number)) } else { call.id.write(into: &fields) }
    fields.append("\r\n" as StaticString)
  }

  /// The response to a call whose request was dropped from the queue.
  private func notSent(_ api: API, at now: MonotonicTime) -> Problem {
    switch session.upstream.deliveryRecord(call.sequence, now: now)?.reason {
    case .sessionClosed: Problem(.sessionClosed, "the gateway is shutting down: the request was not sent")
    case .queueFull: Problem(.queueFull, api.queueFullDetail(.messages, session))
    case .notConnected:
      Problem(.upstreamDown, "the namespace of the event is not connected: it was not sent")
    case .ttl, .notSentAtOnce, .connectionLost, .tooLarge, .gatewayRestart, .storeFailed, nil:
      Problem(
        .upstreamDown,
        "the request was not sent within the wait or its TTL: the upstream is not connected, or reads more slowly than clients send (state \(session.upstream.snapshot().state.name))",
        .retryAfter(API.retryAfter(session.upstream.nextAttempt, now)))
    }
  }
}

/// A request that waits for a `PendingCall`. The call itself is in a table of the loop, so that this struct fits inline
/// in the connection.
private struct HeldCall: HolderRequest {
  let api: API
  let slot: Int
  let deadline: MonotonicTime

  var heldCount: Gauge? { nil }
  var effect: HeldEffect { .changeAndData }
  var residue: Residue { .mayBeDone }

  private var pending: PendingCall {
    guard let pending = api.calls[slot] else { preconditionFailure("a call waits that has ended") }
    return pending
  }

  var session: Session { pending.session }
  /// A call ends with the connection that carries it.
  var afterLoss: AfterLoss { .continues }

  func proceed(_ cause: WaitCause, at now: MonotonicTime) -> WaitStep {
    let pending = pending
    // The wait does not end at a drain, since the session keeps its connection for the reply, for at most
    // `shutdown.flush`.
    return pending.session.upstream.isOver(pending.call)
      ? .ready : .wait(pending.call.notifier, until: deadline, endsAtDrain: false)
  }

  func conclude(at now: MonotonicTime, into response: inout Response) throws(Problem) {
    let pending = pending
    api.calls.remove(slot)
    try pending.respond(api, at: now, into: &response)
  }

  func abandon() {
    let pending = pending
    api.calls.remove(slot)
    pending.session.upstream.abandon(pending.call)
    api.common.metrics.calls.abandoned.add()
  }
}

/// Counts the outcomes of calls.
struct CallMetrics: Sendable {
  private let replied: Counter
  private let timedOut: Counter
  private let upstreamClosed: Counter
  private let notSent: Counter
  let abandoned: Counter

  init(_ registry: MetricsRegistry) {
    func counter(_ outcome: String) -> Counter {
      registry.counter("drawbridge_calls_total", "Calls that ended, by their outcome.", [("outcome", outcome)])
    }
    replied = counter("replied")
    timedOut = counter("timed-out")
    upstreamClosed = counter("upstream-closed")
    notSent = counter("not-sent")
    abandoned = counter("abandoned")
  }

  func count(_ outcome: CallTable.Outcome) {
    switch outcome {
    case .replied: replied.add()
    case .timedOut: timedOut.add()
    case .upstreamClosed: upstreamClosed.add()
    case .notSent: notSent.add()
    }
  }
}
