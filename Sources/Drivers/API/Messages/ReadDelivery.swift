import Access
import ByteStreams
import Calls
import Forwarding
import HTTPCodec
import HTTPServer
import Host
import JSONCodec
import Metrics
import Outbox
import Reactor
import Sessions
import Upstream

/// `GET /v1/deliveries/{id}`: responds with the state of a message. Waits for a final state.
enum ReadDelivery: Endpoint {
  static var route: Route {
    Route(
      // `call` suffices, since calls have deliveries, too. The response contains the reply to a call only if the grant
      // has `call`.
      method: .get, path: "/v1/deliveries/{id}", sessionPath: "/v1/sessions/{name}/deliveries/{id}",
      scope: [.send, .call], parameters: [.wait],
      place: .holder(HolderRules(repetition: .harmless, movesOn: true, wait: .withParameters)), kind: .delivery)
  }

  static func read(
    _ head: borrowing HTTPRequestHead, _ id: Span<UInt8>, of request: ReceivedRequest, _ api: API
  ) throws(Problem) -> (id: DeliveryTerms.Issued, wait: TimeSpan) {
    guard let delivery = request.session.deliveryTerms.read(id) else {
      let reason =
        IdentifierKind(id) == .push
        ? "this is a cursor or the id of a push, not of a delivery" : "no delivery has this id"
      throw Problem(
        .notFound, "\(reason): use the 'id' of a response to POST /v1/messages, which begins with 'd-'")
    }
    return (
      delivery, try WaitParameter.read(head, default: .zero, maximum: api.common.settings.delivery.maximumWait)
    )
  }

  static func mayWait(_ input: Input) -> Bool { input.wait > .zero }

  static func execute(
    _ input: Input, of request: ReceivedRequest, _ body: RequestBody?, _ turn: Turn, into response: inout Response
  ) throws(Problem) -> Outcome {
    let session = request.session
    session.noteUse(at: turn.now)
    let deadline = turn.api.deadline(after: input.wait, for: request.grant, at: turn.now)
    let delivery = WaitingDelivery(
      api: turn.api, session: session, id: input.id, deadline: deadline,
      caller: request.grant.flatMap { $0.scopes.contains(.call) ? $0 : nil })
    if deadline > turn.now, case .wait = delivery.advance(.news, at: turn.now) {
      session.upstream.beginWaitingForConfirmations()
      return .wait(delivery)
    }
    delivery.write(into: &response)
    return .respond
  }

  static func store(_ input: consuming Input) -> StoredInput { .delivery(input.id, wait: input.wait) }
  static func restore(_ input: StoredInput) -> (id: DeliveryTerms.Issued, wait: TimeSpan)? {
    if case .delivery(let id, let wait) = input { (id, wait) } else { nil }
  }
}

/// A `GET /v1/deliveries/{id}` that waits until the state of the message is final.
private struct WaitingDelivery: HolderRequest {
  let api: API
  let session: Session
  let id: DeliveryTerms.Issued
  let deadline: MonotonicTime
  /// The client; nil unless it may read the replies to its own calls.
  let caller: Grant?

  var heldCount: Gauge? { nil }

  func proceed(_ cause: WaitCause, at now: MonotonicTime) -> WaitStep {
    // An unknown message also counts as settled: it never existed, or its final state was dropped.
    id.isLost || session.upstream.isSettled(sequence) || isClosed
      ? .ready : .wait(session.upstream.deliveryNotifier, until: deadline)
  }

  /// Whether the session is stored and a client has closed it. In such a session, no message gets a final state any
  /// more. A session that is not stored gives each message a final state when the session ends.
  private var isClosed: Bool { session.inbox.isClosed && session.upstream.isStored }

  private var sequence: UInt64 { id.number }

  /// If the message gets a state after this gateway's deadline, it may have another state at the next holder.
  var afterLoss: AfterLoss { .moves }

  func conclude(at now: MonotonicTime, into response: inout Response) {
    abandon()
    write(into: &response)
  }

  func write(into response: inout Response) {
    if isClosed, !session.upstream.isSettled(sequence) { return api.respond(with: .closed(session), into: &response) }
    let now = ProcessInformation.monotonicTime()
    let found = id.isLost ? nil : session.upstream.deliveryRecord(sequence, now: now)
    if found == nil, session.upstream.isStored, id.isLost || sequence <= session.upstream.lastDelivery {
      return writeUnknown(into: &response)
    }
    guard let record = found else {
      let remembered = session.upstream.rememberedDeliveries
      api.respond(
        with: Problem(
          .notFound,
          "this delivery is unknown: it never existed, or it is older than the last \(remembered) messages, which are remembered (65536, or twice the setting upstream.queue.messages)"
        ),
        into: &response)
      return
    }
    response.begin(.ok, "application/json")
    DeliveryJSON.begin(of: session, sequence, into: &response.content.text)
    response.content.text.append(decimal: sequence)
    DeliveryJSON.end(with: record.state, of: session, into: &response.content.text)
    DeliveryJSON.write(record.reason, into: &response.content.text)
    response.content.text.append(",\"time\":" as StaticString)
    var times = ResponseTimes(api.common.clockOffset)
    times.write(record.time, into: &response.content.text)
    if let caller, let reply = session.upstream.lateReply(to: sequence, for: caller.principal, now: now) {
      response.content.text.append(",\"reply\":" as StaticString)
      for piece in reply.pieces { response.content.append(piece) }
    }
    response.content.text.append("}\n" as StaticString)
  }

  /// Writes the response for an id that was issued and whose message has no known outcome.
  private func writeUnknown(into response: inout Response) {
    response.begin(.ok, "application/json")
    DeliveryJSON.begin(of: session, ofTerm: id.term, into: &response.content.text)
    response.content.text.append(decimal: sequence)
    DeliveryJSON.end(with: .unknown, of: session, into: &response.content.text)
    response.content.text.append(
      id.isLost
        ? ",\"reason\":\"store-lost\",\"time\":null}\n" as StaticString : ",\"reason\":\"forgotten\",\"time\":null}\n")
  }

  func abandon() { session.upstream.endWaitingForConfirmations() }
}

/// A delivery in a response: `{"id":"…","state":"…","session":"…"}`. The id ends with the number of the message. The
/// caller writes this number between the two parts.
enum DeliveryJSON {
  /// Writes the text before the number of a message, with the term in which the number was issued.
  static func begin(of session: Session, _ number: UInt64, into output: inout ByteQueue) {
    output.append("{\"id\":\"" as StaticString)
    output.append(session.deliveryTerms.prefix(of: number))
  }

  /// Writes the text before the number of a message whose number was issued in `term`.
  static func begin(of session: Session, ofTerm term: UInt64, into output: inout ByteQueue) {
    output.append("{\"id\":\"" as StaticString)
    output.append(session.deliveryTerms.prefix(ofTerm: term))
  }

  /// Writes the text after the number, except the final brace.
  static func end(with state: DeliveryState, of session: Session, into output: inout ByteQueue) {
    output.append("\",\"state\":\"" as StaticString)
    output.append(state.name)
    output.append("\",\"session\":\"" as StaticString)
    // The name is not escaped, since that would copy it for each message. A session name contains no character that
    // JSON must escape (see `SessionName`).
    output.append(session.name)
    output.append("\"" as StaticString)
  }

  /// Writes the header field `Location` with the path of the delivery.
  static func writeLocation(of sequence: UInt64, in session: Session, into fields: inout ByteQueue) {
    fields.append("Location: " as StaticString)
    fields.append(session.path)
    fields.append("deliveries/" as StaticString)
    fields.append(session.deliveryTerms.prefix(of: sequence))
    fields.append(decimal: sequence)
    fields.append("\r\n" as StaticString)
  }

  static func write(_ reason: DeliveryReason?, into output: inout ByteQueue) {
    output.append(",\"reason\":" as StaticString)
    guard let reason else {
      output.append("null" as StaticString)
      return
    }
    output.append("\"" as StaticString)
    output.append(reason.name)
    output.append("\"" as StaticString)
  }
}
