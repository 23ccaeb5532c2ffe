import Access
import ByteStreams
import Consumers
import HTTPCodec
import HTTPServer
import Inbox
import Journal
import Sessions
import Upstream

/// A `POST /v1/consumers/{name}/receive`.
struct PendingReceive {
  let target: ConsumerTarget
  let grant: Grant?
  /// If the consumer is not work-sharing, the position of the receive advances past pushes that do not match.
  var turn: ReceiveTurn
  let limit: Int
  let maxBytes: Int
  /// The deadline of the wait for pushes.
  let deadline: MonotonicTime
  /// Whether the request acknowledges pushes of an earlier receive.
  let acknowledges: Bool
  /// The ticket of the acknowledgement; nil if there is no acknowledgement that may still be unstored.
  var acknowledgement: JournalTicket?

  mutating func hasNews() -> Bool { target.session.consumers.hasNews(&turn, of: target.name) }
}

extension API {
  func receive(
    _ target: ConsumerTarget, _ parameters: ReceiveParameters, for grant: Grant?, at now: MonotonicTime,
    into response: inout Response
  ) throws(Problem) -> Outcome {
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
        target: target, grant: grant, turn: turn, limit: parameters.limit, maxBytes: parameters.maxBytes,
        deadline: deadline(after: parameters.wait, for: grant, at: now), acknowledges: acknowledged != nil,
        acknowledgement: acknowledged == nil ? nil : consumers.unstored)
    } catch {
      throw target.problem(error)
    }
    if parameters.wait > .zero, !receive.hasNews() {
      consumers.beginHolding(receive.turn, of: target.name, now: now)
      return hold(HeldConsumerRequest.Pending(receive, at: now))
    }
    return respond(with: try take(receive, at: now), of: target, at: now, into: &response)
  }

  /// Takes the available pushes. The consumer of a worker leases them now.
  ///
  /// - Parameter limit: the maximum number of pushes; nil for the limit of the request.
  func take(
    _ receive: PendingReceive, limit: Int? = nil, at now: MonotonicTime
  ) throws(Problem) -> ConsumerResult {
    let (name, consumers) = (receive.target.name, receive.target.session.consumers)
    try receive.target.check(receive.grant)
    do throws(ConsumerRefusal) {
      guard receive.turn.start == nil else {
        let result = try consumers.read(receive.turn, of: name, limit: receive.limit, maxBytes: receive.maxBytes)
        return .read(result, acknowledgement: receive.acknowledgement)
      }
      let batch = try consumers.lease(
        receive.turn, of: name, limit: limit ?? receive.limit, maxBytes: receive.maxBytes, now: now,
        isSentLater: true)
      var messages = batch.messages
      if let grant = receive.grant, !grant.topics.isAll {
        // The consumer examined these pushes before its topics were narrowed. They become dead letters, so that clients
        // that may receive them can read them.
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
      throw receive.target.problem(error)
    }
  }
}
