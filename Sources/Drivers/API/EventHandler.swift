import ByteStreams
import Configuration
import HTTPServer
import Journal
import Outbox
import Sessions
import SocketIO
import Upstream
import UpstreamProtocol

/// `POST /v1/messages` to a Socket.IO upstream.
extension API {
  func acceptEvents(
    _ message: IncomingMessage, _ content: [UInt8], _ settings: SocketIOSettings, _ key: KeyToStore?,
    for session: Session, by client: UInt64, _ context: RequestContext?, _ ticket: inout JournalTicket?,
    at now: MonotonicTime
  ) throws(ProblemError) -> SendReceipt.Results {
    if message.isBatch {
      let lines = try message.lines(in: content)
      var records: [SharedSlice] = []
      records.reserveCapacity(lines.count)
      for (index, line) in lines.enumerated() {
        do throws(ProblemError) {
          let event = try Self.event(in: try EventForm.envelope(line.bytes, settings), settings, for: session)
          records.append(SharedSlice(SharedBytes(event.record)))
        } catch {
          let problem = error.problem
          throw ProblemError(
            Problem(
              problem.kind, detail: "message \(index + 1) of the batch: \(problem.detail). No message was accepted",
              retryAfter: problem.retryAfter))
        }
      }
      try admitMessages(lines.count, in: context, at: now)
      return .batch(
        message.idempotency == nil
          ? try queueBatch(records, message, to: session, by: client, &ticket, at: now)
          : try queueAll(records, message, key, to: session, by: client, &ticket, at: now))
    }
    let form = EventForm(parameters: message.parameters.event, form: message.form, isJSON: message.isJSON)
    let envelope = try form.envelope(of: content, settings)
    switch envelope {
    case .event:
      let event = try Self.event(in: envelope, settings, for: session)
      try admitMessages(1, in: context, at: now)
      let item = IncomingMessage.Item(payload: SharedBytes(event.record), kind: .text)
      return .single(try queue(item, message, key, to: session, by: client, &ticket, at: now), .text)
    case .acknowledgement(let token, let parts):
      guard settings.acknowledgements == .client else {
        throw ProblemError(
          .invalidDocument,
          "clients do not send acknowledgements: \(session.settingPrefix)upstream.socketio.acks is \(settings.acknowledgements.rawValue)"
        )
      }
      try EventForm.check(sizeOf: parts, settings, for: session)
      try admitMessages(1, in: context, at: now)
      let timeToLive = try timeToLive(of: message.parameters, to: session)
      switch session.upstream.acknowledge(token, parts, timeToLive: timeToLive, by: client, now: now) {
      case .posted(let receipt): return .single(try accepted(receipt, 1, by: session, at: now), .text)
      case .notYet:
        throw ProblemError(
          Problem(
            .upstreamDown, detail: "the connection on which the server requested the acknowledgement does not send yet",
            retryAfter: 1))
      case .gone:
        throw ProblemError(
          .acknowledgementGone,
          "the acknowledgement was sent already, or the connection on which the server requested it has ended or been replaced"
        )
      }
    }
  }

  private static func event(
    in envelope: SocketIOEnvelope, _ settings: SocketIOSettings, for session: Session
  ) throws(ProblemError) -> SocketIOParts {
    guard case .event(let event) = envelope else {
      throw ProblemError(.invalidDocument, "send an acknowledgement in a request of its own, not in a batch")
    }
    try EventForm.check(event, settings, for: session)
    return event
  }

  /// Emits the event of a call, and registers it for its acknowledgement.
  func registerEvent(
    _ call: IncomingCall, _ body: RequestBody?, of session: Session, by client: UInt64, at now: MonotonicTime
  ) throws(ProblemError) -> SessionHandle.CallReceipt {
    guard let settings = session.upstream.socketIO, let form = call.event else {
      preconditionFailure("an event for another upstream")
    }
    guard case .event(let event) = try form.envelope(of: try IncomingMessage.decoded(body), settings) else {
      throw ProblemError(.invalidDocument, "a call emits an event: send an acknowledgement with POST /v1/messages")
    }
    try EventForm.check(event, settings, for: session)
    let timeToLive = try timeToLive(of: call, to: session)
    return session.upstream.call(event, timeToLive: timeToLive, by: client, now: now)
  }
}
