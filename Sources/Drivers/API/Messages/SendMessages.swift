import Access
import ByteStreams
import Forwarding
import HTTPCodec
import HTTPServer
import Idempotency
import Inbox
import JSONCodec
import Journal
import Metrics
import Outbox
import Peers
import Sessions
import Threading
import Totals
import Upstream
import UpstreamSession

/// `POST /v1/messages`: queues the messages and responds with their delivery ids, at once or when they have reached the
/// state that the client waits for.
enum SendMessages: Endpoint {
  static let parameters: QueryParameter.Names = [.ttl, .topic, .until, .wait, .event, .namespace, .type]

  static var route: Route {
    Route(
      method: .post, path: "/v1/messages", sessionPath: "/v1/sessions/{name}/messages", scope: .send,
      parameters: parameters, body: .messages, takesIdempotencyKey: true,
      place: .holder(
        // The receipt of accepted messages stays true: the messages are stored, and the receipt shows no states that
        // were read after the session was lost.
        HolderRules(repetition: .recognised, staysTrue: true, wait: .with(.until))),
      kind: .send)
  }

  static func read(
    _ head: borrowing HTTPRequestHead, _ variable: Span<UInt8>, of request: ReceivedRequest, _ api: API
  ) throws(Problem) -> IncomingMessage {
    var message = try IncomingMessage(head, api.messageLimits)
    let session = request.session
    if message.parameters.event != nil || session.upstream.hasEvents {
      let form = EventForm(parameters: message.parameters.event, form: message.form, isJSON: message.isJSON)
      try form.check(for: session)
    }
    // The limit for messages is checked before the body is collected, except in two cases. The number of messages of a
    // batch is known only after its lines are read. A repetition under an idempotency key sends no message, so the
    // limit does not matter.
    if !message.isBatch, message.idempotency == nil { try api.checkMessages(in: request.context) }
    message.acceptOnce(request, head)
    return message
  }

  static func smallestLongBody(_ message: IncomingMessage) -> Int { message.smallestLongBody }

  static func mayWait(_ message: IncomingMessage) -> Bool {
    message.parameters.until != .queued && message.parameters.wait > .zero
  }

  static func preparation(
    _ message: IncomingMessage, of request: ReceivedRequest, _ api: API
  ) -> (any BodyPreparation)? {
    let format = request.session.upstream.eventFormat
    guard message.isExamined || format != nil else { return nil }
    return PreparedBody { message.prepared($0, format) }
  }

  static func execute(
    _ message: IncomingMessage, of request: ReceivedRequest, _ body: RequestBody?, _ turn: Turn,
    into response: inout Response
  ) throws(Problem) -> Outcome {
    let (api, session, now) = (turn.api, request.session, turn.now)
    if message.parameters.until == .confirmed, !session.upstream.confirms {
      throw Problem(
        .invalidParameter,
        "until=confirmed is not possible: \(session.settingPrefix)upstream.queue.confirm or heartbeat.ping is off; use until=written"
      )
    }
    let content = try message.received(body)
    let pending: PendingSend
    if let field = message.idempotency {
      pending = try api.acceptOnce(
        message, field, content, for: session, request.grant, by: request.client, request.context, at: now)
    } else {
      let receipt = try api.accept(message, content, for: session, by: request.client, request.context, at: now)
      let deadline = api.deadline(after: message.parameters.wait, for: request.grant, at: now)
      pending = PendingSend(receipt, message.parameters, until: deadline, at: now)
    }
    return try api.respond(to: pending, as: HeldSend.self, at: now, into: &response)
  }

  static func store(_ message: consuming IncomingMessage) -> StoredInput { .messages(message) }
  static func restore(_ input: StoredInput) -> IncomingMessage? {
    if case .messages(let message) = input { message } else { nil }
  }
}

extension API {
  /// Accepts a request with an idempotency key, or finds the result of an earlier request with that key.
  fileprivate func acceptOnce(
    _ message: IncomingMessage, _ field: IdempotencyField, _ content: MessageBody, for session: Session,
    _ grant: Grant?, by client: UInt64, _ context: RequestContext?, at now: MonotonicTime
  ) throws(Problem) -> PendingSend {
    let key = AcceptanceKey(field.key(of: grant?.principal ?? "", in: session), isForwarded: field.isForwarded)
    let fingerprint = field.fingerprint(message.parameters, content)
    let owner = common.keyOwner(of: grant, by: client)
    let deadline = deadline(after: message.parameters.wait, for: grant, at: now)
    let (verdict, lifetime) = common.withKeys(ofForwarded: field.isForwarded) { keys in
      if let retention = field.retention { keys.remember(for: retention) }
      return (keys.begin(key.key, fingerprint, by: owner.count, now: now), keys.retention)
    }
    switch verdict {
    case .repeated(let acceptance):
      return PendingSend(
        SendReceipt(acceptance, in: session), message.parameters, isReplayed: true, byGateway: field.isForwarded,
        until: deadline, at: now)
    case .first:
      do throws(Problem) {
        var stored: KeyToStore?
        if let digest = owner.digest, session.upstream.isStored {
          stored = KeyToStore(
            key: key.key, fingerprint: fingerprint,
            principal: field.isForwarded ? AcceptanceKey.ofPeers : digest, isBatch: message.isBatch,
            position: session.inbox.latest.position,
            lifetime: lifetime)
        }
        let receipt = try accept(message, content, key: stored, for: session, by: client, context, at: now)
        return PendingSend(
          receipt, message.parameters, key: pendingKey(key, of: receipt, at: now), until: deadline, at: now)
      } catch {
        common.cancel(key)
        throw error
      }
    case .inProgress:
      throw Problem(
        .idempotencyKeyInProgress,
        "the first request with this Idempotency-Key is not accepted yet: repeat this request after the time in Retry-After"
      )
    case .different:
      throw Problem(
        .idempotencyKeyReused,
        "this Idempotency-Key was used with another body, Content-Type, TTL or Topic: use a new key for a new message")
    case .full(let until) where field.isForwarded:
      throw Problem(
        .tooManyKeys,
        "the holder of the session remembers \(CommonState.forwardedIDs) messages of other gateways, the maximum, so that it accepts none twice: try again after the time in Retry-After, send batches, or send with an Idempotency-Key",
        .retryAfter(Self.retryAfter(until, now)))
    case .full(let until):
      throw Problem(
        .tooManyKeys,
        "\(common.settings.idempotencyKeys) idempotency keys are remembered (the setting http.idempotency_keys)\(common.access.isOpen ? "" : ", or a quarter of them for the same credentials"): try again after the time in Retry-After, or send without a key",
        .retryAfter(Self.retryAfter(until, now)))
    }
  }

  fileprivate func accept(
    _ message: IncomingMessage, _ body: MessageBody, key: KeyToStore? = nil, for session: Session, by client: UInt64,
    _ context: RequestContext?, at now: MonotonicTime
  ) throws(Problem) -> SendReceipt {
    session.noteUse(at: now)
    // The cursor is read before a message is queued, so that a poll from it cannot miss a reply.
    let cursor = key.map { session.inbox.cursor(at: $0.position) } ?? session.inbox.latest
    let results: SendReceipt.Results
    var submitted: SubmittedChange?
    switch try message.content(of: body, session.upstream.eventFormat) {
    case .item(let item):
      try admitMessages(1, in: context, at: now)
      results = .single(try queue(item, message, key, to: session, by: client, &submitted, at: now), item.kind)
    case .lines(let lines):
      try admitMessages(lines.count, in: context, at: now)
      results = .batch(try queue(lines, message, key, to: session, by: client, &submitted, at: now))
    case .event(let event):
      try EventForm.check(event, for: session)
      try admitMessages(1, in: context, at: now)
      let item = IncomingMessage.Item(payload: ByteString(event.record), kind: .text)
      results = .single(try queue(item, message, key, to: session, by: client, &submitted, at: now), .text)
    case .events(let events, let failure):
      let records = try records(of: events, failure, for: session)
      try admitMessages(records.count, in: context, at: now)
      results = .batch(try queue(records, message, key, to: session, by: client, &submitted, at: now))
    case .acknowledgement(let token, let parts):
      results = .single(try acknowledge(token, parts, message, to: session, by: client, context, at: now), .text)
    }
    return SendReceipt(session: session, cursor: cursor, results: results, submitted: submitted)
  }

  private func queue(
    _ lines: [ByteSlice], _ message: IncomingMessage, _ key: KeyToStore?, to session: Session, by client: UInt64,
    _ submitted: inout SubmittedChange?, at now: MonotonicTime
  ) throws(Problem) -> BatchResults {
    message.idempotency == nil
      ? try queueBatch(lines, message, to: session, by: client, &submitted, at: now)
      : try queueAll(lines, message, key, to: session, by: client, &submitted, at: now)
  }

  /// Throws the first problem if every message is refused.
  private func queueBatch(
    _ lines: [ByteSlice], _ message: IncomingMessage, to session: Session, by client: UInt64,
    _ submitted: inout SubmittedChange?, at now: MonotonicTime
  ) throws(Problem) -> BatchResults {
    let timeToLive = try timeToLive(of: message.parameters, to: session, lines.count)
    let receipt = session.upstream.post(
      PostedMessages(
        .each(lines), kind: .text, timeToLive: timeToLive, topic: message.parameters.topic, by: client), now: now)
    submitted = SubmittedChange(receipt)
    var runs: [BatchResults.Run] = []
    var accepted = 0
    var firstRefusal: Problem?
    var kinds: Set<Problem.Kind> = []
    for results in receipt.runs {
      if case .queued(let sequence, _) = results.result {
        accepted += results.count
        let first = SendReceipt.Accepted(sequence: sequence, nextAttempt: receipt.nextAttempt)
        runs.append(.accepted(first, count: results.count))
      } else {
        let kind = Self.problemKind(of: results.result)
        common.metrics.refusedMessages.add(kind, results.count)
        var detail: String?
        // A batch can have thousands of refusals, so only the first of each kind has a detail.
        if kinds.insert(kind).inserted {
          let problem = problem(results.result, receipt.nextAttempt, session, at: now)
          if firstRefusal == nil { firstRefusal = problem }
          detail = problem.detail
        }
        runs.append(.refused(kind, detail: detail, count: results.count))
      }
    }
    // Messages that must be stored are counted as accepted later, when they are stored.
    if submitted == nil { common.metrics.acceptedMessages.add(accepted) }
    if accepted == 0, let firstRefusal { throw firstRefusal }
    return BatchResults(runs)
  }

  /// How long the messages of a request may be queued. Throws 503 if their TTL has ended while the request waited at
  /// another gateway.
  func timeToLive(
    of parameters: SendParameters, to session: Session, _ count: Int = 1
  ) throws(Problem) -> TimeSpan {
    try timeLeft(
      of: parameters.timeToLive ?? session.upstream.defaultTimeToLive, after: parameters.waited, count)
  }

  /// The time that is left of a TTL after the request has waited at another gateway. Throws 503 if the TTL has ended.
  /// After a wait, `TTL: 0` has always ended, since it means that the message is sent at once or not at all.
  func timeLeft(of timeToLive: TimeSpan, after waited: TimeSpan, _ count: Int = 1) throws(Problem) -> TimeSpan {
    guard waited > .zero else { return timeToLive }
    guard timeToLive > waited else {
      common.metrics.refusedMessages.add(.upstreamDown, count)
      throw Problem(
        .upstreamDown,
        "the TTL of \(timeToLive.text) has ended while the request waited for a holder of the session: the message was not accepted"
      )
    }
    return timeToLive - waited
  }

  /// Queues all messages of a batch, or none.
  func queueAll(
    _ lines: [ByteSlice], _ message: IncomingMessage, _ key: KeyToStore?, to session: Session, by client: UInt64,
    _ submitted: inout SubmittedChange?, at now: MonotonicTime
  ) throws(Problem) -> BatchResults {
    let timeToLive = try timeToLive(of: message.parameters, to: session, lines.count)
    let topic = message.parameters.topic
    if let limit = session.upstream.queueSettings.batchLimit(for: lines, timeToLive: timeToLive, topic: topic) {
      throw Problem(.contentTooLarge, Self.batchDetail(limit, session))
    }
    let receipt = session.upstream.post(
      PostedMessages(
        .allOrNone(lines), kind: .text, timeToLive: timeToLive, topic: topic, key: key, by: client), now: now)
    submitted = SubmittedChange(receipt)
    return BatchResults(try accepted(receipt, lines.count, by: session, at: now), count: lines.count)
  }

  /// Describes why a batch does not fit even into an empty queue.
  private static func batchDetail(_ limit: BatchLimit, _ session: Session) -> String {
    let queue = session.upstream.queueSettings
    let (most, setting) =
      switch limit {
      case .messages: ("\(queue.maximumMessages) messages", "messages")
      case .bytes: ("\(queue.maximumBytes) bytes", "bytes")
      case .burst: ("\(queue.burst) messages, with TTL: 0", "burst")
      }
    return
      "the batch has more than \(most) (the setting \(session.settingPrefix)upstream.queue.\(setting)). With an Idempotency-Key, or if the holder of the session is another gateway, a batch is accepted as a whole or not at all: send several batches, each with its own key"
  }

  private func queue(
    _ item: IncomingMessage.Item, _ message: IncomingMessage, _ key: KeyToStore?, to session: Session,
    by client: UInt64, _ submitted: inout SubmittedChange?, at now: MonotonicTime
  ) throws(Problem) -> SendReceipt.Accepted {
    let timeToLive = try timeToLive(of: message.parameters, to: session)
    let receipt = session.upstream.post(
      PostedMessages(
        .one(item.payload), kind: item.kind, timeToLive: timeToLive, topic: message.parameters.topic,
        key: key, by: client), now: now)
    submitted = SubmittedChange(receipt)
    return try accepted(receipt, 1, by: session, at: now)
  }

  /// Returns the accepted messages. Throws the problem if no message was accepted.
  func accepted(
    _ receipt: PostReceipt, _ count: Int, by session: Session, at now: MonotonicTime
  ) throws(Problem) -> SendReceipt.Accepted {
    guard case .queued(let sequence, _) = receipt.result else {
      common.metrics.refusedMessages.add(Self.problemKind(of: receipt.result), count)
      throw problem(receipt.result, receipt.nextAttempt, session, at: now)
    }
    // Messages that must be stored are counted as accepted later, when they are stored.
    if SubmittedChange(receipt) == nil { common.metrics.acceptedMessages.add(count) }
    return SendReceipt.Accepted(sequence: sequence, nextAttempt: receipt.nextAttempt)
  }

  static func problemKind(of result: EnqueueResult) -> Problem.Kind {
    switch result {
    case .queued: preconditionFailure("a queued message is not a problem")
    case .full: .queueFull
    case .notReady: .upstreamDown
    case .closed: .sessionClosed
    case .notStored(.failed): .storeFailed
    case .notStored(.full): .queueFull
    }
  }

  /// The response if a message was not queued.
  func problem(
    _ result: EnqueueResult, _ nextAttempt: MonotonicTime?, _ session: Session, at now: MonotonicTime
  ) -> Problem {
    let kind = Self.problemKind(of: result)
    switch result {
    case .queued: preconditionFailure("a queued message is not a problem")
    case .full(let limit):
      return Problem(kind, queueFullDetail(limit, session), .retryAfter(Self.retryAfter(nextAttempt, now)))
    case .notReady(let hindrance):
      let (reason, next): (String, MonotonicTime?) =
        switch hindrance {
        case .notConnected: ("the upstream is not connected", nextAttempt)
        case .blocked:
          ("the upstream has not read the earlier messages, or a large one is being compressed or sent", nil)
        case .storeFailed: ("the messages queued before it cannot be stored now", nil)
        case .pace(let until): ("the limit of \(session.settingPrefix)upstream.queue.rate is reached", until)
        }
      return Problem(
        kind, "the message has TTL: 0 and cannot be sent now: \(reason)",
        .retryAfter(Self.retryAfter(next, now)))
    case .closed: return Problem(kind, "the gateway is shutting down: the message was not accepted")
    case .notStored(.failed): return Self.storeFailed
    case .notStored(.full):
      return Problem(
        kind,
        "more than \(ByteSize.format(common.storeSettings.pendingBytes)) wait to be stored (the setting store.pending_bytes): try again after the time in Retry-After"
      )
    }
  }

  /// Describes which limit was reached, and why the queue does not drain.
  func queueFullDetail(_ limit: QueueLimit, _ session: Session) -> String {
    let queue = session.upstream.queueSettings
    let prefix = session.settingPrefix
    let (held, reserve, share) =
      switch limit {
      case .messages:
        (
          "\(queue.maximumMessages) messages, the setting \(prefix)upstream.queue.messages", queue.messageReserve,
          "\(queue.messageReserve.share)"
        )
      case .bytes:
        (
          "\(ByteSize.format(queue.maximumBytes)), the setting \(prefix)upstream.queue.bytes", queue.byteReserve,
          ByteSize.format(queue.byteReserve.share)
        )
      }
    let others =
      reserve.maximum > reserve.limit ? "; a reserve above it is for clients that have less than \(share)" : ""
    let state = session.upstream.snapshot().state
    let reason =
      state == .ready
      ? "the upstream is connected and reads messages more slowly than clients send them"
      : "the upstream is not connected (state \(state.name))"
    return
      "the queue to the upstream is full (\(held)\(others)): \(reason). Try again after the time in Retry-After"
  }

  /// Returns the value of `Retry-After` in seconds: the time until `moment`, or 1 if `moment` is nil.
  static func retryAfter(_ moment: MonotonicTime?, _ now: MonotonicTime) -> Int {
    guard let moment else { return 1 }
    let seconds = ((moment - now).millisecondsRoundedUp + 999) / 1_000
    return Int(min(max(seconds, 1), longestRetryAfter))
  }

  /// The longest value of `Retry-After`, in seconds: one hour. The gateway honours `Retry-After` of an upstream up to
  /// the same maximum (`ReconnectPolicy`).
  private static var longestRetryAfter: Int64 { 3_600 }
}
