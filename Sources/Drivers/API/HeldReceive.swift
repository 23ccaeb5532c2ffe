import Access
import ByteStreams
import Consumers
import HTTPCodec
import HTTPServer
import Inbox
import Metrics
import Reactor
import Sessions
import Upstream

/// A `POST /v1/consumers/{name}/receive`.
struct PendingReceive {
  let target: ConsumerTarget
  let grant: Grant?
  /// If the consumer is not shared, its start advances past the pushes that do not match.
  var turn: ReceiveTurn
  let limit: Int
  let maxBytes: Int

  mutating func hasNews() -> Bool { target.session.consumers.hasNews(&turn, of: target.name) }
}

extension API {
  func receive(
    _ target: ConsumerTarget, _ parameters: ReceiveParameters, for grant: Grant?, at now: MonotonicTime,
    into response: inout Response
  ) throws(ProblemError) -> Outcome {
    target.session.upstream.noteReader()
    target.session.noteUse(at: now)
    if let cursor = parameters.acknowledged {
      do throws(CursorAheadError) {
        _ = try target.session.inbox.resolve(.cursor(cursor), now: now)
      } catch {
        throw ProblemError(
          .invalidParameter, "ack is ahead of the newest push: use the cursor of an earlier response to a receive")
      }
    }
    var receive: PendingReceive
    do throws(ConsumerRefusal) {
      let turn = try target.session.consumers.beginReceive(
        target.name, acknowledging: parameters.acknowledged, now: now)
      receive = PendingReceive(
        target: target, grant: grant, turn: turn, limit: parameters.limit, maxBytes: parameters.maxBytes)
    } catch {
      throw target.problem(error)
    }
    if parameters.wait > .zero, !receive.hasNews() {
      target.session.consumers.beginHolding(receive.turn, of: target.name, now: now)
      let slot = receives.insert(receive)
      let deadline = deadline(after: parameters.wait, for: grant, at: now)
      return .wait(HeldReceive(api: self, slot: Int32(slot), deadline: deadline))
    }
    try respond(to: receive, at: now, into: &response)
    return .respond
  }

  /// Responds with the pushes available now. Leases begin here, when the response is written.
  fileprivate func respond(
    to receive: PendingReceive, at now: MonotonicTime, into response: inout Response
  ) throws(ProblemError) {
    let (name, consumers) = (receive.target.name, receive.target.session.consumers)
    try receive.target.check(receive.grant)
    do throws(ConsumerRefusal) {
      if receive.turn.start == nil {
        let batch = try consumers.lease(
          receive.turn, of: name, limit: receive.limit, maxBytes: receive.maxBytes, now: now)
        var messages = batch.messages
        if let grant = receive.grant, !grant.topics.isAll {
          // Examined before the topics of the consumer were narrowed. They are kept for clients that may read them.
          let others = messages.filter { !grant.allows($0.message) }
          if !others.isEmpty {
            _ = try consumers.settle(others.map { ($0.lease, .reject) }, of: name, now: now)
            messages.removeAll { !grant.allows($0.message) }
          }
        }
        respond(with: messages, of: batch, at: now, into: &response)
      } else {
        respond(
          with: try consumers.read(receive.turn, of: name, limit: receive.limit, maxBytes: receive.maxBytes),
          into: &response)
      }
    } catch {
      throw receive.target.problem(error)
    }
  }

  private func respond(
    with messages: [LeasedMessage], of batch: LeasedBatch, at now: MonotonicTime, into response: inout Response
  ) {
    shared.metrics.deliveredMessages.add(messages.count)
    response.begin(.ok, "application/json")
    if let gap = batch.gap { PollFields.write(gap, into: &response.fields) }
    ConsumerJSON.write(messages, of: batch, shared.clockOffset, into: &response.content)
  }

  private func respond(with result: ReadResult, into response: inout Response) {
    shared.metrics.deliveredMessages.add(result.messages.count)
    var cursor = ByteQueue()
    result.cursor.write(into: &cursor)
    response.begin(.ok, "application/json")
    response.fields.append("Gateway-Cursor: " as StaticString)
    response.fields.append(cursor.bytes)
    response.fields.append("\r\n" as StaticString)
    if let gap = result.gap { PollFields.write(gap, into: &response.fields) }
    MessagesJSON.write(result, cursor.bytes, into: &response.content)
  }
}

/// A held receive. Its `PendingReceive` is in a table of the loop, so that this struct fits inline in the connection.
private struct HeldReceive: WaitingRequest {
  let api: API
  let slot: Int32
  let deadline: MonotonicTime

  private var receive: PendingReceive {
    guard let receive = api.receives[Int(slot)] else { preconditionFailure("a receive waits that has ended") }
    return receive
  }

  var heldCount: Gauge? { api.shared.metrics.heldReceives }
  var notifier: Notifier { receive.target.session.consumers.notifier }
  /// Rung for all consumers of the session, and most often another worker takes the push.
  var sharesNotifier: Bool { true }

  var hasNewData: Bool {
    var receive = receive
    defer { api.receives[Int(slot)] = receive }
    return receive.hasNews()
  }

  func finish(at now: MonotonicTime, into response: inout Response) {
    let receive = receive
    end(receive, at: now)
    do throws(ProblemError) {
      try api.respond(to: receive, at: now, into: &response)
    } catch {
      api.respond(with: error.problem, into: &response)
    }
  }

  /// The client is gone, and takes no lease.
  func abandon() { end(receive, at: ProcessInformation.monotonicTime()) }

  private func end(_ receive: PendingReceive, at now: MonotonicTime) {
    receive.target.session.consumers.endHolding(receive.turn, of: receive.target.name, now: now)
    api.receives.remove(Int(slot))
  }
}
