import ByteStreams
import Configuration
import HTTPCodec
import JSONCodec
import Metrics
import Reactor
import Outbox
import Sessions
import Upstream
import UpstreamSession

extension HTTPConnection {
  /// `POST /v1/messages`: queues, and answers with the ids under which the messages can be asked for.
  func send(_ message: IncomingMessage) {
    do throws(ProblemError) {
      if message.isBatch { sendBatch(try message.items(), message) } else { sendOne(try message.item(), message) }
    } catch {
      answer(error.problem)
    }
  }

  /// A message that is queued: the number of its delivery, and when the session connects next, where it has to.
  private struct Accepted {
    let sequence: UInt64
    let nextAttempt: MonotonicTime?
  }

  private func queue(_ item: IncomingMessage.Item, _ message: IncomingMessage) -> Result<Accepted, ProblemOutcome> {
    let options = message.options
    let receipt = shared.session.upstream.post(
      item.payload, isText: item.kind.isText, timeToLive: options.timeToLive ?? shared.settings.upstream.queue.ttl,
      topic: options.topic, now: worker.loop.now)
    switch receipt.result {
    case .queued(let sequence, _):
      shared.acceptedMessages.add()
      return .success(Accepted(sequence: sequence, nextAttempt: receipt.nextAttempt))
    case .full(let limit):
      return refused(
        Problem(.queueFull, detail: queueFullDetail(limit), retryAfter: retryAfter(receipt.nextAttempt)))
    case .notReady(let hindrance):
      let (reason, next): (StaticString, MonotonicTime?) =
        switch hindrance {
        case .notConnected: ("the upstream is not connected", receipt.nextAttempt)
        case .blocked: ("the upstream does not read what was sent before", nil)
        case .pace(let until): ("upstream.queue.rate does not allow it yet", until)
        }
      return refused(
        Problem(
          .upstreamDown, detail: "the message cannot be sent now and has TTL: 0, which forbids it to wait: \(reason)",
          retryAfter: retryAfter(next)))
    case .closed:
      return refused(Problem(.sessionClosed, detail: "the gateway is shutting down; the message was not taken"))
    }
  }

  /// Which limit was reached, and why the queue does not drain.
  private func queueFullDetail(_ limit: QueueLimit) -> String {
    let queue = shared.settings.upstream.queue
    let held =
      switch limit {
      case .messages: "\(queue.messages) messages (the setting upstream.queue.messages)"
      case .bytes: "\(ValueText.size(queue.bytes)) (the setting upstream.queue.bytes)"
      }
    let session = shared.session.upstream.snapshot()
    let reason =
      session.state == .ready
      ? "the upstream is connected and takes messages more slowly than they are posted"
      : "the upstream is not connected (state \(session.state.name))"
    return
      "the queue to the upstream is full, \(held): \(reason). Try again after the time in Retry-After"
  }

  /// Seconds for `Retry-After`: until that moment, or one where it is not known.
  private func retryAfter(_ moment: MonotonicTime?) -> Int {
    guard let moment else { return 1 }
    let seconds = ((moment - worker.loop.now).millisecondsRoundedUp + 999) / 1_000
    return Int(min(max(seconds, 1), Self.longestRetryAfter))
  }

  /// An hour, which is also the longest that an upstream's own `Retry-After` counts for.
  private static var longestRetryAfter: Int64 { 3_600 }

  private func refused(_ problem: Problem) -> Result<Accepted, ProblemOutcome> {
    shared.refusedMessages.add()
    return .failure(ProblemOutcome(problem: problem))
  }

  private func sendOne(_ item: IncomingMessage.Item, _ message: IncomingMessage) {
    switch queue(item, message) {
    case .failure(let refusal): answer(refusal.problem)
    case .success(let accepted):
      answer(.accepted, "application/json", location: accepted.sequence) { output in
        write(accepted, into: &output)
        output.append("\n" as StaticString)
      }
    }
  }

  private func sendBatch(_ items: [IncomingMessage.Item], _ message: IncomingMessage) {
    let results = items.map { queue($0, message) }
    let refusals = results.count { if case .failure = $0 { true } else { false } }
    if refusals == results.count, case .failure(let first)? = results.first {
      answer(first.problem)
      return
    }
    answer(refusals == 0 ? .accepted : .multiStatus, "application/json") { output in
      output.append("{\"results\":[" as StaticString)
      for (index, result) in results.enumerated() {
        if index > 0 { output.append("," as StaticString) }
        switch result {
        case .success(let accepted): write(accepted, into: &output)
        case .failure(let refusal):
          output.append("{\"status\":" as StaticString)
          output.append(decimal: Int(refusal.problem.status.rawValue))
          output.append(",\"type\":\"docs/errors.md#" as StaticString)
          output.append(refusal.problem.kind.name)
          output.append("\"}" as StaticString)
        }
      }
      output.append("]}\n" as StaticString)
    }
  }

  private func write(_ accepted: Accepted, into output: inout ByteQueue) {
    output.append("{\"id\":\"" as StaticString)
    output.append(shared.session.deliveryPrefix)
    output.append(decimal: accepted.sequence)
    output.append("\",\"state\":\"queued\",\"session\":\"default\"" as StaticString)
    if let next = accepted.nextAttempt {
      output.append(",\"next_attempt_in_seconds\":" as StaticString)
      output.append(seconds: max(.zero, next - worker.loop.now))
    }
    output.append("}" as StaticString)
  }

  /// `GET /v1/deliveries/{id}`: what became of a message.
  func answerDelivery(_ sequence: UInt64) {
    guard let state = shared.session.upstream.deliveryState(sequence) else {
      answer(
        Problem(
          .notFound,
          detail:
            "this delivery is not known any more, or never was; the last \(shared.session.upstream.rememberedDeliveries) are"
        ))
      return
    }
    answer(.ok, "application/json") { output in
      output.append(
        "{\"id\":\"\(shared.session.deliveryPrefix)\(sequence)\",\"state\":\"\(state.name)\",\"session\":\"default\"}\n"
      )
    }
  }
}

struct ProblemOutcome: Error {
  let problem: Problem
}
