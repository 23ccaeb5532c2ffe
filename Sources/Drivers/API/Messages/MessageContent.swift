import ByteStreams
import Events
import HTTPServer
import Idempotency
import UpstreamProtocol

/// The validated content of a `POST /v1/messages`. The content depends on the body and the head, and not on the state
/// of a session. The cases that are rare or large are indirect, so that copies of the usual case are cheap.
enum MessageContent: Sendable {
  case item(IncomingMessage.Item)
  case lines([ByteSlice])
  indirect case event(EventContent)
  /// `failure` is the error of the line after these events; nil if every line is an event.
  indirect case events([EventContent], failure: Problem?)
  indirect case acknowledgement(token: [UInt8], EventParts)
}

/// An event to be queued.
struct EventContent: Sendable {
  let namespace: [UInt8]
  /// The size, in bytes, of the largest WebSocket message of the event.
  let largestFrame: Int
  let record: [UInt8]

  init(_ parts: EventParts, _ format: any EventFormat) {
    namespace = parts.namespace
    largestFrame = format.largestFrame(of: parts)
    record = parts.record
  }
}

/// The body of a `POST /v1/messages`, without its content coding. The rare case is indirect, so that copies of a small
/// body are cheap.
enum MessageBody: Sendable {
  /// A small body. Its content is read when needed.
  case plain([UInt8])
  /// A body that was read on another thread. `fingerprint` is nil if the request has no idempotency key.
  indirect case prepared(Result<MessageContent, Problem>, fingerprint: IdempotencyTable.Key?)
}

extension IncomingMessage {
  /// Returns the prepared body, or the body as received.
  func received(_ body: RequestBody?) throws(Problem) -> MessageBody {
    guard let body else { return .plain([]) }
    if let preparation = body.preparation as? PreparedBody<Result<MessageBody, Problem>>,
      let prepared = preparation.take()
    {
      return try prepared.get()
    }
    return .plain(try decoded(body.bytes))
  }

  /// Reads a whole body, on another thread, before the loop finishes its request.
  func prepared(_ bytes: [UInt8], _ format: (any EventFormat)?) -> Result<MessageBody, Problem> {
    Result { () throws(Problem) in
      let plain = try decoded(bytes)
      return .prepared(
        Result { () throws(Problem) in try content(of: plain, format) },
        fingerprint: idempotency?.fingerprint(parameters, plain))
    }
  }

  /// - Parameter format: the format of events; nil unless messages are events.
  func content(of body: MessageBody, _ format: (any EventFormat)?) throws(Problem) -> MessageContent {
    switch body {
    case .plain(let plain): try content(of: plain, format)
    case .prepared(let content, _): try content.get()
    }
  }

  private func content(of plain: [UInt8], _ format: (any EventFormat)?) throws(Problem) -> MessageContent {
    guard let format else { return isBatch ? .lines(try lines(in: plain)) : .item(try item(in: plain)) }
    if isBatch { return try events(in: plain, format) }
    let form = EventForm(parameters: parameters.event, form: form, isJSON: isJSON)
    switch try form.envelope(of: plain, format, limit: limits.bodyBytes) {
    case .event(let parts): return .event(EventContent(parts, format))
    case .acknowledgement(let token, let parts): return .acknowledgement(token: token, parts)
    }
  }

  private func events(in plain: [UInt8], _ format: any EventFormat) throws(Problem) -> MessageContent {
    let lines = try lines(in: plain)
    var events: [EventContent] = []
    events.reserveCapacity(lines.count)
    for (index, line) in lines.enumerated() {
      do throws(Problem) {
        guard case .event(let parts) = try EventForm.envelope(line.bytes, format) else {
          throw Problem(.invalidDocument, "send an acknowledgement in a request of its own, not in a batch")
        }
        events.append(EventContent(parts, format))
      } catch {
        return .events(events, failure: Self.problem(error, ofLine: index))
      }
    }
    return .events(events, failure: nil)
  }

  static func problem(_ error: Problem, ofLine index: Int) -> Problem {
    var problem = error
    problem.detail = "message \(index + 1) of the batch: \(error.detail). No message was accepted"
    return problem
  }
}

extension IdempotencyField {
  func fingerprint(_ parameters: SendParameters, _ body: MessageBody) -> IdempotencyTable.Key {
    switch body {
    case .plain(let plain): return fingerprint(parameters, plain)
    case .prepared(_, let fingerprint):
      guard let fingerprint else { preconditionFailure("the request has a key") }
      return fingerprint
    }
  }
}
