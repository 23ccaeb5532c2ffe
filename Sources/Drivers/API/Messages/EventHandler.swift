import ByteStreams
import Events
import HTTPServer
import Journal
import Outbox
import Sessions
import Upstream
import UpstreamProtocol

/// Events and acknowledgements for a Socket.IO upstream.
extension API {
  /// Returns the records of the events of a batch. `failure` is the error of the line after these events; nil if every
  /// line is an event.
  func records(
    of events: [EventContent], _ failure: Problem?, for session: Session
  ) throws(Problem) -> [ByteSlice] {
    var records: [ByteSlice] = []
    records.reserveCapacity(events.count)
    for (index, event) in events.enumerated() {
      do throws(Problem) {
        try EventForm.check(event, for: session)
      } catch {
        throw IncomingMessage.problem(error, ofLine: index)
      }
      records.append(ByteSlice(ByteString(event.record)))
    }
    if let failure { throw failure }
    return records
  }

  func acknowledge(
    _ token: [UInt8], _ parts: EventParts, _ message: IncomingMessage, to session: Session,
    by client: UInt64, _ context: RequestContext?, at now: MonotonicTime
  ) throws(Problem) -> SendReceipt.Accepted {
    guard let format = session.upstream.eventFormat else { preconditionFailure("an event for another upstream") }
    guard format.takesAcknowledgements else {
      throw Problem(
        .invalidDocument,
        "clients do not send acknowledgements: \(session.settingPrefix)\(format.section).acks is \(format.acknowledgementsWord)"
      )
    }
    try EventForm.check(size: format.largestFrame(of: parts), for: session)
    try admitMessages(1, in: context, at: now)
    let timeToLive = try timeToLive(of: message.parameters, to: session)
    switch session.upstream.acknowledge(token, parts, timeToLive: timeToLive, by: client, now: now) {
    case .posted(let receipt): return try accepted(receipt, 1, by: session, at: now)
    case .notYet:
      throw Problem(
        .upstreamDown, "the connection on which the server requested the acknowledgement does not send yet")
    case .gone:
      throw Problem(
        .acknowledgementGone,
        "the acknowledgement was sent already, or the connection on which the server requested it has ended or been replaced"
      )
    }
  }

  /// Emits the event of a call, and registers the call for the acknowledgement.
  func registerEvent(
    _ call: IncomingCall, _ event: EventContent, of session: Session, by client: UInt64, at now: MonotonicTime
  ) throws(Problem) -> SessionHandle.CallReceipt {
    try EventForm.check(event, for: session)
    let timeToLive = try call.timeToLive(to: session, self)
    return session.upstream.call(event: event.record, timeToLive: timeToLive, by: client, now: now)
  }
}
