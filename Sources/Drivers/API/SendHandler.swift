import ByteStreams
import Configuration
import HTTPCodec
import HTTPServer
import JSONCodec
import Metrics
import Outbox
import Sessions
import Upstream
import UpstreamSession

extension API {
  /// `POST /v1/messages`: queues the messages and responds with their delivery ids.
  func send(
    _ message: IncomingMessage, _ body: RequestBody?, to session: Session, at now: MonotonicTime,
    into response: inout Response
  ) throws(ProblemError) {
    let bytes = body?.bytes ?? []
    if message.isBatch {
      try sendBatch(try message.items(in: bytes), message, to: session, at: now, into: &response)
    } else {
      let accepted = try queue(try message.item(in: bytes), message, to: session, at: now)
      response.begin(.accepted, "application/json")
      writeLocation(of: accepted.sequence, in: session, into: &response.fields)
      write(accepted, of: session, at: now, into: &response.content.text)
      response.content.text.append("\n" as StaticString)
    }
  }

  private func sendBatch(
    _ items: [IncomingMessage.Item], _ message: IncomingMessage, to session: Session, at now: MonotonicTime,
    into response: inout Response
  ) throws(ProblemError) {
    var refusals = 0
    var firstRefusal: ProblemError?
    response.content.text.append("{\"results\":[" as StaticString)
    for (index, item) in items.enumerated() {
      if index > 0 { response.content.text.append("," as StaticString) }
      do throws(ProblemError) {
        let accepted = try queue(item, message, to: session, at: now)
        write(accepted, of: session, at: now, into: &response.content.text)
      } catch {
        refusals += 1
        if firstRefusal == nil { firstRefusal = error }
        error.problem.writeInBatch(into: &response.content.text)
      }
    }
    response.content.text.append("]}\n" as StaticString)
    if refusals == items.count, let firstRefusal {
      response.reset()
      throw firstRefusal
    }
    response.begin(refusals == 0 ? .accepted : .multiStatus, "application/json")
  }

  /// A queued message: its sequence number, and the time of the next connection attempt if there is one.
  private struct Accepted {
    let sequence: UInt64
    let nextAttempt: MonotonicTime?
  }

  private func queue(
    _ item: IncomingMessage.Item, _ message: IncomingMessage, to session: Session, at now: MonotonicTime
  ) throws(ProblemError) -> Accepted {
    let receipt = session.upstream.post(
      item.payload, kind: item.kind, timeToLive: message.timeToLive ?? session.upstream.defaultTimeToLive,
      topic: message.topic, now: now)
    let problem: Problem
    switch receipt.result {
    case .queued(let sequence, _):
      shared.metrics.acceptedMessages.add()
      return Accepted(sequence: sequence, nextAttempt: receipt.nextAttempt)
    case .full(let limit):
      problem = Problem(
        .queueFull, detail: queueFullDetail(limit, session), retryAfter: Self.retryAfter(receipt.nextAttempt, now))
    case .notReady(let hindrance):
      let (reason, next): (String, MonotonicTime?) =
        switch hindrance {
        case .notConnected: ("the upstream is not connected", receipt.nextAttempt)
        case .blocked: ("the upstream has not read what was sent before", nil)
        case .pace(let until): ("the limit of \(Self.settingPrefix(of: session))upstream.queue.rate is reached", until)
        }
      problem = Problem(
        .upstreamDown, detail: "the message has TTL: 0 and cannot be sent now: \(reason)",
        retryAfter: Self.retryAfter(next, now))
    case .closed:
      problem = Problem(.sessionClosed, detail: "the gateway is shutting down: the message was not accepted")
    }
    shared.metrics.refusedMessages.add()
    throw ProblemError(problem)
  }

  /// The prefix of this session's setting paths.
  private static func settingPrefix(of session: Session) -> String {
    session.name == Session.defaultName ? "" : "sessions.\(session.name)."
  }

  /// Describes which limit was reached, and why the queue does not drain.
  private func queueFullDetail(_ limit: QueueLimit, _ session: Session) -> String {
    let queue = session.upstream.queueSettings
    let prefix = Self.settingPrefix(of: session)
    let held =
      switch limit {
      case .messages: "\(queue.maximumMessages) messages, the setting \(prefix)upstream.queue.messages"
      case .bytes: "\(ByteSize.format(queue.maximumBytes)), the setting \(prefix)upstream.queue.bytes"
      }
    let state = session.upstream.snapshot().state
    let reason =
      state == .ready
      ? "the upstream is connected and reads messages more slowly than clients send them"
      : "the upstream is not connected (state \(state.name))"
    return
      "the queue to the upstream is full (\(held)): \(reason). Try again after the time in Retry-After"
  }

  /// Returns the value of `Retry-After` in seconds: the time until `moment`, or 1 if it is not known.
  private static func retryAfter(_ moment: MonotonicTime?, _ now: MonotonicTime) -> Int {
    guard let moment else { return 1 }
    let seconds = ((moment - now).millisecondsRoundedUp + 999) / 1_000
    return Int(min(max(seconds, 1), longestRetryAfter))
  }

  /// One hour, also the longest that an upstream's own `Retry-After` can have (`ReconnectPolicy`).
  private static var longestRetryAfter: Int64 { 3_600 }

  private func write(
    _ accepted: Accepted, of session: Session, at now: MonotonicTime, into output: inout ByteQueue
  ) {
    DeliveryJSON.begin(accepted.sequence, of: session, .queued, into: &output)
    if let next = accepted.nextAttempt {
      output.append(",\"next_attempt_in_seconds\":" as StaticString)
      output.append(seconds: max(.zero, next - now))
    }
    output.append("}" as StaticString)
  }

  private func writeLocation(of sequence: UInt64, in session: Session, into fields: inout ByteQueue) {
    fields.append("Location: /v1/" as StaticString)
    if session.name != Session.defaultName {
      fields.append("sessions/" as StaticString)
      fields.append(session.name)
      fields.append("/" as StaticString)
    }
    fields.append("deliveries/" as StaticString)
    fields.append(session.deliveryPrefix)
    fields.append(decimal: sequence)
    fields.append("\r\n" as StaticString)
  }
}
