import Access
import ByteStreams
import Calls
import HTTPCodec
import HTTPServer
import Host
import JSONCodec
import Metrics
import Outbox
import Reactor
import Sessions
import Upstream

extension API {
  /// `GET /v1/deliveries/{id}`: responds with the state of a message. Waits until `deadline` for a final state.
  func respond(
    with id: DeliveryTerms.Issued, of session: Session, for grant: Grant?, until deadline: MonotonicTime,
    at now: MonotonicTime, into response: inout Response
  ) throws(Problem) -> Outcome {
    session.noteUse(at: now)
    let delivery = WaitingDelivery(
      api: self, session: session, id: id, deadline: deadline,
      caller: grant.flatMap { $0.scopes.contains(.call) ? $0 : nil })
    if deadline > now, case .wait = delivery.advance(.news, at: now) {
      session.upstream.beginWaitingForConfirmations()
      return .wait(delivery)
    }
    delivery.write(into: &response)
    return .respond
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

  func advance(_ cause: WaitCause, at now: MonotonicTime) -> WaitStep {
    // An unknown message is settled, too: it never existed, or its final state was dropped.
    id.isLost || session.upstream.isSettled(sequence) || isClosed
      ? .ready : .wait(session.upstream.deliveryNotifier, until: deadline)
  }

  /// Whether the session is stored and a client has closed it. In such a session, no message gets a final state any
  /// more. A session that is not stored gives each message a final state when the session ends.
  private var isClosed: Bool { session.inbox.isClosed && session.upstream.isStored }

  private var sequence: UInt64 { id.number }

  /// If the message gets a state after this gateway's deadline, it may have another state at the next holder.
  var isFact: Bool { false }

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
