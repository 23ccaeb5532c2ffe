import Access
import ByteStreams
import Consumers
import Forwarding
import HTTPCodec
import HTTPServer
import Inbox
import Sessions

/// `GET /v1/consumers`
enum ListConsumers: ImmediateEndpoint {
  static let parameters: QueryParameter.Names = [.limit, .after]

  static var route: Route {
    Route(
      method: .get, path: "/v1/consumers", sessionPath: "/v1/sessions/{name}/consumers", scope: .receive,
      parameters: parameters, isCompressed: true, place: .holder(HolderRules(repetition: .harmless)), kind: .consumer)
  }

  static func read(
    _ head: borrowing HTTPRequestHead, _ variable: Span<UInt8>, of request: ReceivedRequest, _ api: API
  ) throws(Problem) -> ConsumerListParameters { try ConsumerListParameters(head) }

  static func respond(
    _ page: ConsumerListParameters, to request: ReceivedRequest, _ turn: Turn, into response: inout Response
  ) {
    let session = request.session
    response.begin(.ok, "application/json")
    ConsumerJSON.write(
      list(page, of: session.consumers, for: request.grant), session.webhooks, turn.api.common.clockOffset,
      into: &response.content.text)
  }

  /// Returns a page of the consumers that the grant allows. A session has at most a thousand consumers.
  private static func list(
    _ page: ConsumerListParameters, of consumers: ConcurrentConsumers, for grant: Grant?
  ) -> ConsumerPage {
    guard let grant, !grant.topics.isAll else { return consumers.statuses(after: page.after, limit: page.limit) }
    let visible = consumers.statuses.filter { $0.name > page.after && grant.allows($0) }
    return ConsumerPage(consumers: Array(visible.prefix(page.limit)), more: visible.count > page.limit)
  }
}

/// `GET /v1/consumers/{consumer}`
enum ReadConsumer: ConsumerReading {
  static var route: Route { .consumer(.get, "/v1/consumers/{consumer}", "/v1/sessions/{name}/consumers/{consumer}") }

  static func write(
    _ target: ConsumerTarget, for grant: Grant?, _ api: API, into response: inout Response
  ) throws(ConsumerRefusal) {
    let status = try target.session.consumers.status(of: target.name)
    response.begin(.ok, "application/json")
    ConsumerJSON.write(status, target.session.webhooks, api.common.clockOffset, into: &response.content.text)
    response.content.text.append("\n" as StaticString)
  }
}

/// `GET /v1/consumers/{consumer}/dead`
enum ReadDeadLetters: ConsumerReading {
  static var route: Route {
    .consumer(.get, "/v1/consumers/{consumer}/dead", "/v1/sessions/{name}/consumers/{consumer}/dead")
  }

  static func write(
    _ target: ConsumerTarget, for grant: Grant?, _ api: API, into response: inout Response
  ) throws(ConsumerRefusal) {
    let dead = try target.session.consumers.deadLetters(of: target.name)
    response.begin(.ok, "application/json")
    let letters = dead.letters.filter { grant?.allows($0.message) ?? true }
    ConsumerJSON.write(letters, dropped: dead.dropped, into: &response.content)
  }
}

/// `PUT /v1/consumers/{consumer}`
enum PutConsumer: ConsumerChange {
  static var route: Route {
    .consumer(
      .put, "/v1/consumers/{consumer}", "/v1/sessions/{name}/consumers/{consumer}",
      body: .document(limit: ConsumerDocument.limit))
  }

  static func change(
    _ target: ConsumerTarget, _ body: RequestBody?, of request: ReceivedRequest, at now: MonotonicTime
  ) throws(Problem) -> ConsumerResult {
    try target.checkIsOfClients()
    let document = try ConsumerDocument(body)
    target.session.noteUse(at: now)
    try request.grant?.checkConsumer(topics: document.settings.topics)
    let start: Cursor
    do throws(CursorAheadError) {
      start = try target.session.inbox.resolveShown(document.start, now: now).cursor
    } catch {
      // An error in `start` matters only for a new consumer: for an existing consumer, `start` is ignored.
      guard target.session.consumers.settings(of: target.name) != nil else {
        throw Problem(
          .invalidDocument,
          "start is ahead of the newest push: use the cursor of an earlier response, \"earliest\" or \"latest\"")
      }
      start = target.session.inbox.latest
    }
    return try target.refusing { () throws(ConsumerRefusal) in
      let (isNew, status) = try target.session.consumers.put(
        target.name, document.settings, start: start, by: request.client, now: now)
      return .put(isNew: isNew, status)
    }
  }
}

/// `DELETE /v1/consumers/{consumer}`
enum RemoveConsumer: ConsumerChange {
  static var route: Route {
    .consumer(.delete, "/v1/consumers/{consumer}", "/v1/sessions/{name}/consumers/{consumer}")
  }

  static func change(
    _ target: ConsumerTarget, _ body: RequestBody?, of request: ReceivedRequest, at now: MonotonicTime
  ) throws(Problem) -> ConsumerResult {
    try target.checkIsOfClients()
    return try target.refusing { () throws(ConsumerRefusal) in
      try target.session.consumers.remove(target.name)
      return .removed
    }
  }
}

/// `POST /v1/consumers/{consumer}/settle`
enum SettleLeases: ConsumerChange {
  static var route: Route {
    .consumer(
      .post, "/v1/consumers/{consumer}/settle", "/v1/sessions/{name}/consumers/{consumer}/settle",
      body: .document(limit: SettleDocument.limit),
      // If the request were executed twice, the client would get the second response: that its leases are not valid.
      HolderRules(repetition: .harmful, staysTrue: true))
  }

  static func change(
    _ target: ConsumerTarget, _ body: RequestBody?, of request: ReceivedRequest, at now: MonotonicTime
  ) throws(Problem) -> ConsumerResult {
    try target.checkIsOfClients()
    let settlements = try SettleDocument(body).settlements
    // A settlement counts as a use of the session, since a worker that needs long for its pushes may only extend its
    // leases for some time, and receive no pushes.
    target.session.noteUse(at: now)
    let outcomes = try target.refusing { () throws(ConsumerRefusal) in
      try target.session.consumers.settle(settlements, of: target.name, now: now)
    }
    let lost = outcomes.count { $0 == .leaseLost }
    if lost > 0, lost == outcomes.count {
      throw Problem(
        .leaseLost,
        "none of the leases is valid (\(lost) given): a lease ends when it expires, is settled, or its consumer is removed; receive the messages again"
      )
    }
    return .settled(settlements, outcomes)
  }
}

/// `DELETE /v1/consumers/{consumer}/dead`
enum RemoveDeadLetters: ConsumerChange {
  static var route: Route {
    .consumer(.delete, "/v1/consumers/{consumer}/dead", "/v1/sessions/{name}/consumers/{consumer}/dead")
  }

  static func change(
    _ target: ConsumerTarget, _ body: RequestBody?, of request: ReceivedRequest, at now: MonotonicTime
  ) throws(Problem) -> ConsumerResult {
    try target.refusing { () throws(ConsumerRefusal) in
      .removedDeadLetters(
        try target.session.consumers.removeDeadLetters(
          of: target.name, allowing: { request.grant?.allows($0) ?? true }, now: now))
    }
  }
}

/// `POST /v1/consumers/{consumer}/dead/retry`
enum RetryDeadLetters: ConsumerChange {
  static var route: Route {
    .consumer(
      .post, "/v1/consumers/{consumer}/dead/retry", "/v1/sessions/{name}/consumers/{consumer}/dead/retry",
      // If the request were executed twice, the client would get the second response: that nothing was left to retry.
      HolderRules(repetition: .harmful, staysTrue: true))
  }

  static func change(
    _ target: ConsumerTarget, _ body: RequestBody?, of request: ReceivedRequest, at now: MonotonicTime
  ) throws(Problem) -> ConsumerResult {
    try target.refusing { () throws(ConsumerRefusal) in
      .retriedDeadLetters(
        try target.session.consumers.retryDeadLetters(
          of: target.name, allowing: { request.grant?.allows($0) ?? true }, now: now))
    }
  }
}

/// A GET of a consumer.
protocol ConsumerReading: ImmediateEndpoint where Input == ConsumerTarget {
  static func write(
    _ target: ConsumerTarget, for grant: Grant?, _ api: API, into response: inout Response
  ) throws(ConsumerRefusal)
}

/// A request that changes a consumer. Its response waits until the change is stored.
protocol ConsumerChange: Endpoint where Input == ConsumerTarget {
  static func change(
    _ target: ConsumerTarget, _ body: RequestBody?, of request: ReceivedRequest, at now: MonotonicTime
  ) throws(Problem) -> ConsumerResult
}

extension Endpoint where Input == ConsumerTarget {
  static func read(
    _ head: borrowing HTTPRequestHead, _ consumer: Span<UInt8>, of request: ReceivedRequest, _ api: API
  ) throws(Problem) -> ConsumerTarget { ConsumerTarget(consumer, of: request.session, head) }
}

extension ConsumerReading {
  static func respond(
    _ target: ConsumerTarget, to request: ReceivedRequest, _ turn: Turn, into response: inout Response
  ) throws(Problem) {
    try target.check(request.grant)
    do throws(ConsumerRefusal) {
      try write(target, for: request.grant, turn.api, into: &response)
    } catch {
      throw target.problem(error)
    }
  }
}

extension ConsumerChange {
  static func execute(
    _ target: ConsumerTarget, of request: ReceivedRequest, _ body: RequestBody?, _ turn: Turn,
    into response: inout Response
  ) throws(Problem) -> Outcome {
    try target.check(request.grant)
    let result = try change(target, body, of: request, at: turn.now)
    return try turn.api.respond(
      to: PendingConsumerRequest(result, of: target, at: turn.now), as: HeldConsumerRequest.self, at: turn.now,
      into: &response)
  }
}

extension Route {
  /// A route below a consumer. Only the holder of the session has the positions and leases of its consumers. Only
  /// responses to GET are compressed.
  static func consumer(
    _ method: HTTPMethod, _ path: StaticString, _ sessionPath: StaticString,
    parameters: QueryParameter.Names = .none, body: Body = .none,
    _ rules: HolderRules = HolderRules(repetition: .harmless)
  ) -> Route {
    Route(
      method: method, path: path, sessionPath: sessionPath, scope: .receive, parameters: parameters, body: body,
      isCompressed: method == .get, place: .holder(rules), kind: .consumer)
  }
}
