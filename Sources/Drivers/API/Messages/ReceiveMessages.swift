import Access
import ByteStreams
import HTTPCodec
import HTTPServer
import Inbox
import Metrics
import Reactor
import Sessions
import Upstream

/// `GET /v1/messages`: responds with the pushes after the cursor, waits for one, or streams them.
enum ReceiveMessages: Endpoint {
  static let parameters = QueryParameter.Names(
    [.cursor, .since, .last, .wait, .limit, .maxBytes, .stream, .events, .data], repeatable: [.topic, .namespace])

  static var route: Route {
    Route(
      method: .get, path: "/v1/messages", sessionPath: "/v1/sessions/{name}/messages", scope: .receive,
      parameters: parameters, formats: .chosenByEndpoint, place: .anyGateway, kind: .poll)
  }

  static func read(
    _ head: borrowing HTTPRequestHead, _ variable: Span<UInt8>, of request: ReceivedRequest, _ api: API
  ) throws(Problem) -> PollParameters {
    let parameters = try PollParameters(head, api.common.settings.delivery, request.coding, for: request.grant)
    try parameters.checkNamespaces(of: request.session)
    return parameters
  }

  static func mayWait(_ parameters: PollParameters) -> Bool { parameters.wait > .zero }

  static func execute(
    _ parameters: PollParameters, of request: ReceivedRequest, _ body: RequestBody?, _ turn: Turn,
    into response: inout Response
  ) throws(Problem) -> Outcome {
    let (api, session, now) = (turn.api, request.session, turn.now)
    session.upstream.noteReader()
    session.noteUse(at: now)
    let deadline = api.deadline(after: parameters.wait, for: request.grant, at: now)
    if let copy = session.copy,
      let outcome = try parameters.hold(
        for: copy, of: session, for: request.grant, until: deadline, api, at: now, into: &response)
    {
      return outcome
    }
    let start = try parameters.position(in: session, api, at: now)
    if let format = parameters.streamFormat {
      return .stream(
        parameters.stream(session, format, from: start, until: deadline, for: request.grant, api, into: &response))
    }
    var poll = Poll(session: session, start: start, options: parameters.options)
    if parameters.wait > .zero, !poll.hasNewData() {
      return .wait(HeldPoll(api: api, slot: api.polls.insert(poll), deadline: deadline))
    }
    poll.respond(api, at: now, into: &response)
    return .respond
  }

  static func store(_ parameters: consuming PollParameters) -> StoredInput { .poll(parameters) }
  static func restore(_ input: StoredInput) -> PollParameters? {
    if case .poll(let parameters) = input { parameters } else { nil }
  }
}

extension PollParameters {
  /// Returns the position from which the request reads. Throws the problem of the response if it is not known.
  func position(in session: Session, _ api: API, at now: MonotonicTime) throws(Problem) -> ReadStart {
    // Without a cursor, the start depends on the pushes that the session has. With a cursor, the request can wait until
    // this gateway has read the session.
    if session.inbox.isUnknown, start.cursor == nil { throw api.noHolder }
    do throws(CursorAheadError) {
      return try session.inbox.resolve(start, now: now)
    } catch {
      throw Problem(
        .invalidParameter,
        "the cursor is ahead of the newest push: use the cursor of an earlier response, 'earliest' or 'latest'")
    }
  }

  /// Begins a stream.
  ///
  /// - Parameter copy: the wait before the stream can read; nil if it can read now.
  func stream(
    _ session: Session, _ format: StreamFormat, from start: ReadStart, until end: MonotonicTime, for grant: Grant?,
    awaiting copy: FollowedCopy.Wait? = nil, _ api: API, into response: inout Response
  ) -> MessageStream {
    // A proxy that compresses or collects a stream would delay each message until many have arrived.
    response.fields.appendField("Content-Type", format.representation.contentType)
    response.fields.append(
      "Cache-Control: no-store, no-transform\r\nX-Content-Type-Options: nosniff\r\nX-Accel-Buffering: no\r\n"
        as StaticString)
    response.fields.append("Vary: Accept\r\nGateway-Cursor: " as StaticString)
    start.cursor.write(into: &response.fields)
    response.fields.append("\r\n" as StaticString)
    // `Gateway-Cursor` is the position after this gap, and a client may continue there without having read the gap's
    // event. So a header field also reports the gap.
    if let reason = start.gap { PollFields.write(Gap(missed: nil, reasons: [reason]), into: &response.fields) }
    response.fields.append("Gateway-Heartbeat: " as StaticString)
    response.fields.append(decimal: Int(api.common.settings.delivery.streamHeartbeat.seconds.rounded(.up)))
    response.fields.append("\r\n" as StaticString)
    // If HAProxy can recognise the end of a response, it delays each part by 200 ms, unless it has `option
    // http-no-delay`.
    response.endsWithConnection = true
    let contents = MessageStream.Options(
      format: format, filter: options.filter, omitsData: options.given.contains(.data))
    return MessageStream(
      api, session, from: start, contents, withState: options.given.contains(.events), for: grant, until: end,
      awaiting: copy)
  }
}

extension Poll {
  /// Responds with the available pushes. Returns the time at which the first of them arrived.
  @discardableResult
  func respond(_ api: API, at now: MonotonicTime, into response: inout Response) -> MonotonicTime? {
    let inbox = session.inbox
    if inbox.isClosed {
      api.respond(with: .closed(session), into: &response)
      return nil
    }
    var options = options
    let revision = inbox.revision
    var key = PreparedPolls.Key(inbox: inbox.epoch, start: start, options: options, revision: revision)
    var entry = api.preparedPolls.find(key)
    if entry == nil, options.coding != .identity, !api.compressor.hasTime(at: now) {
      // The cache contains the response without compression.
      options.coding = .identity
      key = PreparedPolls.Key(inbox: inbox.epoch, start: start, options: options, revision: revision)
      entry = api.preparedPolls.find(key)
    }
    if let entry {
      Self.count(entry.messages, api)
      response.prepared = entry.response
      return entry.arrival
    }
    let result = inbox.read(
      after: start, limit: Int(options.limit), maxBytes: Int(options.maxBytes), matching: options.filter)
    let isCompressed = write(result, options, api, at: now, into: &response)
    let arrival = result.messages.first?.arrival
    response.prepared = api.preparedPolls.note(
      key, response, messages: result.messages.count, arrival: arrival, isCompressed: isCompressed)
    return arrival
  }

  /// Writes a response with `result`. Returns whether the content is compressed.
  @discardableResult
  func write(
    _ result: ReadResult, _ options: PollOptions, _ api: API, at now: MonotonicTime, into response: inout Response
  ) -> Bool {
    Self.count(result.messages.count, api)
    api.cursorText.removeAll()
    result.cursor.write(into: &api.cursorText)
    let status = Self.status(of: result, options)
    response.begin(status, status == .ok ? Self.contentType(of: result, options) : nil)
    PollFields.write(api.cursorText.bytes, of: session, options, into: &response.fields)
    if let gap = result.gap { PollFields.write(gap, into: &response.fields) }
    var isCompressed = false
    if status == .ok {
      if options.representation == .json {
        MessagesJSON.write(result, api.cursorText.bytes, into: &response.content)
      } else {
        Self.write(result, options, into: &response)
      }
      isCompressed = api.compressor.compress(&response, options.coding, at: now)
    }
    return isCompressed
  }

  private static func status(of result: ReadResult, _ options: PollOptions) -> HTTPStatus {
    if options.isConditional, !result.hasContent, !result.more { return .notModified }
    return options.representation.isPayload && result.messages.isEmpty ? .noContent : .ok
  }

  private static func contentType(of result: ReadResult, _ options: PollOptions) -> StaticString {
    // Binary payloads are not sent as text, even if text was requested.
    let isBinary = options.representation == .text && result.messages.first?.kind == .binary
    return (isBinary ? .bytes : options.representation).contentType
  }

  private static func write(_ result: ReadResult, _ options: PollOptions, into response: inout Response) {
    if options.representation == .lines {
      MessagesContent.writeLines(result.messages, into: &response.content)
    } else if let message = result.messages.first {
      MessagesContent.write(message, id: message.id(like: result.cursor), into: &response)
    }
  }

  private static func count(_ messages: Int, _ api: API) {
    api.common.metrics.pollResponses.add()
    api.common.metrics.deliveredMessages.add(messages)
  }
}

extension Representation {
  /// Whether the content is the payload of one message.
  fileprivate var isPayload: Bool { self == .text || self == .bytes }
}

extension Poll {
  /// Whether a response now would have a message or a gap.
  mutating func hasNewData() -> Bool {
    guard let filter = options.filter else { return session.inbox.hasNewData(after: start) }
    return session.inbox.hasNewData(after: &start, matching: filter)
  }

  mutating func advance(until deadline: MonotonicTime) -> WaitStep {
    hasNewData() ? .ready : .wait(session.inbox.notifier, until: deadline)
  }
}

/// A held poll. Its `Poll` is in a table of the loop, so that this struct fits inline in the connection.
private struct HeldPoll: WaitingRequest {
  let api: API
  let slot: Int
  let deadline: MonotonicTime

  private var poll: Poll {
    guard let poll = api.polls[slot] else { preconditionFailure("a poll waits that has ended") }
    return poll
  }

  var heldCount: Gauge? { api.common.metrics.heldPolls }

  func advance(_ cause: WaitCause, at now: MonotonicTime) -> WaitStep {
    guard let step = api.polls.change(slot, { $0.advance(until: deadline) }) else {
      preconditionFailure("a poll waits that has ended")
    }
    return step
  }

  func finish(at now: MonotonicTime, into response: inout Response) {
    let poll = poll
    abandon()
    // The poll waited, so everything that it returns arrived meanwhile.
    if let arrival = poll.respond(api, at: now, into: &response) {
      api.latencies.note(.pushToPoll, since: arrival)
    }
  }

  func abandon() { api.polls.remove(slot) }
}
