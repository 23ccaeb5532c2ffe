import Access
import ByteStreams
import Consumers
import Forwarding
import HTTPCodec
import HTTPServer
import Inbox
import Sessions
import Upstream

/// `POST /v1/consumers/{consumer}/receive`
enum ReceiveFromConsumer: Endpoint {
  static let parameters: QueryParameter.Names = [.ack, .wait, .limit, .maxBytes]

  static var route: Route {
    .consumer(
      .post, "/v1/consumers/{consumer}/receive", "/v1/sessions/{name}/consumers/{consumer}/receive",
      parameters: parameters,
      // A second execution would lease further pushes. If the connection ends, the holder takes back the leases, so
      // only an acknowledgement has a lasting effect.
      HolderRules(
        repetition: .harmful, effect: .changeAndData, effectParameter: .ack, movesOn: true, wait: .always))
  }

  static func read(
    _ head: borrowing HTTPRequestHead, _ consumer: Span<UInt8>, of request: ReceivedRequest, _ api: API
  ) throws(Problem) -> (target: ConsumerTarget, parameters: ReceiveParameters) {
    (ConsumerTarget(consumer, of: request.session, head), try ReceiveParameters(head, api.common.settings.delivery))
  }

  static func mayWait(_ input: Input) -> Bool { input.parameters.wait > .zero }

  static func execute(
    _ input: Input, of request: ReceivedRequest, _ body: RequestBody?, _ turn: Turn, into response: inout Response
  ) throws(Problem) -> Outcome {
    let ((target, parameters), api, now) = (input, turn.api, turn.now)
    try target.check(request.grant)
    try target.checkIsOfClients()
    let consumers = target.session.consumers
    target.session.upstream.noteReader()
    target.session.noteUse(at: now)
    var acknowledged: ReadStart?
    if let cursor = parameters.acknowledged {
      do throws(CursorAheadError) {
        acknowledged = try target.session.inbox.resolveShown(.cursor(cursor), now: now)
      } catch {
        throw Problem(
          .invalidParameter, "ack is ahead of the newest push: use the cursor of an earlier response to a receive")
      }
    }
    var receive: PendingReceive
    do throws(ConsumerRefusal) {
      let turn = try consumers.beginReceive(target.name, acknowledging: acknowledged, now: now)
      receive = PendingReceive(
        target: target, grant: request.grant, turn: turn, limit: parameters.limit, maxBytes: parameters.maxBytes,
        deadline: api.deadline(after: parameters.wait, for: request.grant, at: now), acknowledges: acknowledged != nil,
        acknowledgement: acknowledged == nil ? nil : SubmittedChange(ofConsumersIn: target.session))
    } catch {
      throw target.problem(error)
    }
    let pending: PendingConsumerRequest
    if parameters.wait > .zero, !receive.hasNews() {
      consumers.beginHolding(receive.turn, of: target.name, now: now)
      pending = PendingConsumerRequest(receive, at: now)
    } else {
      pending = PendingConsumerRequest(try receive.take(at: now), of: target, at: now)
    }
    return try api.respond(to: pending, as: HeldConsumerRequest.self, at: now, into: &response)
  }
}

/// A receive that is executed.
struct PendingReceive {
  let target: ConsumerTarget
  let grant: Grant?
  /// If the consumer is not work-sharing, `turn.start` advances past pushes that do not match the consumer's topics.
  var turn: ReceiveTurn
  let limit: Int
  let maxBytes: Int
  /// The deadline of the wait for pushes.
  let deadline: MonotonicTime
  /// Whether the request acknowledges pushes of an earlier receive.
  let acknowledges: Bool
  /// The acknowledgement; nil if the request acknowledges nothing, or if its acknowledgement is stored.
  var acknowledgement: SubmittedChange?

  mutating func hasNews() -> Bool { target.session.consumers.hasNews(&turn, of: target.name) }

  /// Takes the available pushes. A work-sharing consumer leases them now.
  ///
  /// - Parameter most: the maximum number of pushes; nil for the limit of the request.
  func take(atMost most: Int? = nil, at now: MonotonicTime) throws(Problem) -> ConsumerResult {
    let (name, consumers) = (target.name, target.session.consumers)
    try target.check(grant)
    do throws(ConsumerRefusal) {
      guard turn.start == nil else {
        let result = try consumers.read(turn, of: name, limit: limit, maxBytes: maxBytes)
        return .read(result, acknowledgement: acknowledgement)
      }
      let batch = try consumers.lease(
        turn, of: name, limit: most ?? limit, maxBytes: maxBytes, now: now, isSentLater: true)
      var messages = batch.messages
      if let grant, !grant.topics.isAll {
        // The consumer examined these pushes before its topics were narrowed. These pushes become dead letters, so that
        // clients with sufficient rights can read them.
        let others = messages.filter { !grant.allows($0.message) }
        if !others.isEmpty {
          do throws(ConsumerRefusal) {
            _ = try consumers.settle(others.map { ($0.lease, .reject) }, of: name, now: now)
          } catch {
            consumers.withdraw(batch, of: name, now: now)
            throw error
          }
          messages.removeAll { !grant.allows($0.message) }
        }
      }
      return .leased(batch, allowed: messages)
    } catch {
      throw target.problem(error)
    }
  }
}
