import Access
import ByteStreams
import Configuration
import Consumers
import HTTPCodec
import HTTPServer
import Inbox
import Sessions
import Upstream

/// A request for a consumer whose head has been read.
struct PendingConsumerRequest {
  var target: ConsumerTarget
  /// The parameters of a receive; nil for another action.
  var parameters: ReceiveParameters?
  /// The requested page of a list; nil for another action.
  var page: ConsumerListParameters?
}

extension API {
  /// Checks a request for a consumer. If the request has a body that is read, prepares to collect it.
  func accept(
    _ request: borrowing HTTPRequestHead, for target: ConsumerTarget, _ body: inout RequestBody?
  ) throws(Problem) -> PendingConsumerRequest {
    if target.readsBody {
      let limit = target.action == .put ? ConsumerDocument.limit : SettleDocument.limit
      try RequestDocument.check(request, limit: limit)
      body = RequestBody(request.framing, limit: limit)
    }
    var pending = PendingConsumerRequest(target: target)
    pending.target.longestWait = WaitParameter.left(
      of: WaitParameter.granted(target.longestWait, for: request), for: request)
    pending.target.storeWait = WaitParameter.storeWait(for: request)
    switch target.action {
    case .receive: pending.parameters = try ReceiveParameters(request, common.settings.delivery)
    case .list: pending.page = try ConsumerListParameters(request)
    default: break
    }
    return pending
  }

  func serve(
    _ request: PendingConsumerRequest, _ body: RequestBody?, for grant: Grant?, by client: UInt64,
    at now: MonotonicTime, into response: inout Response
  ) throws(Problem) -> Outcome {
    let (target, consumers) = (request.target, request.target.session.consumers)
    try target.check(grant)
    try target.checkIsOfClients()
    if let parameters = request.parameters {
      return try receive(target, parameters, for: grant, at: now, into: &response)
    }
    let result: ConsumerResult
    switch target.action {
    case .put: result = try put(target, body, for: grant, by: client, at: now)
    case .settle: result = try settle(target, body, at: now)
    default:
      do throws(ConsumerRefusal) {
        switch target.action {
        case .remove:
          try consumers.remove(target.name)
          result = .removed
        case .removeDeadLetters:
          result = .removedDeadLetters(
            try consumers.removeDeadLetters(of: target.name, allowing: { grant?.allows($0) ?? true }, now: now))
        case .retryDeadLetters:
          result = .retriedDeadLetters(
            try consumers.retryDeadLetters(of: target.name, allowing: { grant?.allows($0) ?? true }, now: now))
        case .list, .show, .deadLetters, .put, .settle, .receive:
          try read(request, for: grant, into: &response)
          return .respond
        }
      } catch {
        throw target.problem(error)
      }
    }
    return respond(with: result, of: target, at: now, into: &response)
  }

  private func read(
    _ request: PendingConsumerRequest, for grant: Grant?, into response: inout Response
  ) throws(ConsumerRefusal) {
    let (target, consumers) = (request.target, request.target.session.consumers)
    switch target.action {
    case .list:
      guard let page = request.page else { break }
      response.begin(.ok, "application/json")
      ConsumerJSON.write(
        list(page, of: consumers, for: grant), target.session.webhooks, common.clockOffset, into: &response.content.text
      )
    case .show:
      let status = try consumers.status(of: target.name)
      response.begin(.ok, "application/json")
      ConsumerJSON.write(status, target.session.webhooks, common.clockOffset, into: &response.content.text)
      response.content.text.append("\n" as StaticString)
    case .deadLetters:
      let dead = try consumers.deadLetters(of: target.name)
      response.begin(.ok, "application/json")
      let letters = dead.letters.filter { grant?.allows($0.message) ?? true }
      ConsumerJSON.write(letters, dropped: dead.dropped, into: &response.content)
    default: break
    }
  }

  /// Returns a page of the consumers that the grant allows. A session has at most a thousand consumers.
  private func list(_ page: ConsumerListParameters, of consumers: ConcurrentConsumers, for grant: Grant?)
    -> ConsumerPage
  {
    guard let grant, !grant.topics.isAll else { return consumers.statuses(after: page.after, limit: page.limit) }
    let visible = consumers.statuses.filter { $0.name > page.after && grant.allows($0) }
    return ConsumerPage(consumers: Array(visible.prefix(page.limit)), more: visible.count > page.limit)
  }

  private func put(
    _ target: ConsumerTarget, _ body: RequestBody?, for grant: Grant?, by client: UInt64, at now: MonotonicTime
  ) throws(Problem) -> ConsumerResult {
    let document = try ConsumerDocument(body)
    target.session.noteUse(at: now)
    try grant?.checkConsumer(topics: document.settings.topics)
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
    do throws(ConsumerRefusal) {
      let (isNew, status) = try target.session.consumers.put(
        target.name, document.settings, start: start, by: client, now: now)
      return .put(isNew: isNew, status)
    } catch {
      throw target.problem(error)
    }
  }

  private func settle(
    _ target: ConsumerTarget, _ body: RequestBody?, at now: MonotonicTime
  ) throws(Problem) -> ConsumerResult {
    let settlements = try SettleDocument(body).settlements
    // A settlement is a use of the session: a worker that extends its leases is still working, but receives no pushes
    // in that time.
    target.session.noteUse(at: now)
    let outcomes: [SettlementOutcome]
    do throws(ConsumerRefusal) {
      outcomes = try target.session.consumers.settle(settlements, of: target.name, now: now)
    } catch {
      throw target.problem(error)
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

extension ConsumerTarget {
  /// Throws 409 if the consumer is a webhook and the request is a request of a worker or would change the consumer.
  /// Only the gateway may act as the worker of a webhook, or change its consumer.
  func checkIsOfClients() throws(Problem) {
    switch action {
    case .list, .show, .deadLetters, .removeDeadLetters, .retryDeadLetters: return
    case .put, .remove, .receive, .settle:
      guard session.webhooks?.contains(name) == true else { return }
      throw Problem(
        .consumerConflict,
        "consumer '\(name)' is a webhook, whose worker is the gateway: change it in the configuration; GET \(path) shows its state, and its dead letters can be read, removed and retried"
      )
    }
  }

  /// Throws 403 if the consumer has topics that the grant does not allow. This is checked again at the end of a held
  /// receive, since the topics may have changed while it was held.
  func check(_ grant: Grant?) throws(Problem) {
    guard let grant, !grant.topics.isAll, let settings = session.consumers.settings(of: name) else { return }
    try grant.checkConsumer(topics: settings.topics)
  }

  /// The path of the consumer.
  var path: String {
    session.name == Session.defaultName ? "/v1/consumers/\(name)" : "/v1/sessions/\(session.name)/consumers/\(name)"
  }

  func problem(_ refusal: ConsumerRefusal) -> Problem {
    if session.inbox.isClosed { return .closed(session) }
    // Another gateway is now the holder of the consumers.
    if !session.isHere { return API.holderUnavailable }
    return switch refusal {
    case .unknown:
      Problem(.notFound, "consumer '\(name)' does not exist, or is removed: create it with PUT \(path)")
    case .differs(let settings):
      Problem(
        .consumerConflict,
        "consumer '\(name)' has share \(settings.isWorkSharing) and order_by \(settings.order?.text ?? "null"), which cannot be changed: use the same, another name, or delete it first"
      )
    case .tooMany:
      Problem(
        .tooManyConsumers,
        "this session has \(ConsumerTable.maximumConsumers) consumers, the maximum, and this client its share: delete one, or use a shorter 'idle' so that unused ones are removed"
      )
    case .outOfMemory:
      Problem(
        .tooManyConsumers,
        "the consumers of all sessions that clients create use all memory for them: delete some, or create this one with fewer or shorter topics"
      )
    case .isWorkSharing:
      Problem(
        .consumerConflict,
        "consumer '\(name)' is work-sharing, and 'ack' is for other consumers: acknowledge leases with POST \(path)/settle"
      )
    case .isExclusive:
      Problem(
        .consumerConflict,
        "consumer '\(name)' is not work-sharing, and has no leases and dead letters: acknowledge with POST \(path)/receive?ack=CURSOR"
      )
    case .notStored:
      Problem(
        .storeFailed,
        "the change of consumer '\(name)' cannot be stored now: repeat the request after the time in Retry-After. A lease that was settled nevertheless cannot be settled otherwise"
      )
    case .superseded:
      Problem(
        .superseded, "a later receive of consumer '\(name)' has taken over: only one reader may receive at a time")
    }
  }
}
