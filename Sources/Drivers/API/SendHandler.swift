import ByteStreams
import Configuration
import HTTPCodec
import HTTPServer
import Inbox
import JSONCodec
import Metrics
import Outbox
import Sessions
import Upstream
import UpstreamSession

extension API {
  /// `POST /v1/messages`: queues the messages and responds with their delivery ids, at once or when they have reached the state that the
  /// client waits for.
  func send(
    _ message: IncomingMessage, _ body: RequestBody?, to session: Session, at now: MonotonicTime,
    into response: inout Response
  ) throws(ProblemError) -> Outcome {
    let receipt = try accept(message, body?.bytes ?? [], for: session, at: now)
    return respond(
      with: PendingSend(receipt: receipt, parameters: message.parameters, isReplayed: false), at: now, into: &response)
  }

  /// Responds, or waits for the state that the client wants.
  private func respond(
    with pending: PendingSend, at now: MonotonicTime, into response: inout Response
  ) -> Outcome {
    let parameters = pending.parameters
    guard parameters.until != .queued else {
      pending.write(isComplete: true, at: now, into: &response)
      return .respond
    }
    let upstream = pending.receipt.session.upstream
    // Before the states are read, so that no change between the two goes unnoticed.
    if parameters.until == .written { upstream.beginWaitingForWrites() }
    let held = HeldSend(api: self, slot: sends.insert(pending), deadline: now + parameters.wait)
    if parameters.wait > .zero, !held.hasNewData { return .wait(held) }
    held.finish(at: now, into: &response)
    return .respond
  }

  private func accept(
    _ message: IncomingMessage, _ bytes: [UInt8], for session: Session, at now: MonotonicTime
  ) throws(ProblemError) -> SendReceipt {
    if message.parameters.until == .confirmed, !session.upstream.queueSettings.confirms {
      throw ProblemError(
        .invalidParameter,
        "until=confirmed is not possible: \(Self.settingPrefix(of: session))upstream.queue.confirm is off; use until=written"
      )
    }
    // Before a message is queued.
    let cursor = session.inbox.latest
    let results: SendReceipt.Results
    if message.isBatch {
      results = .batch(try queueBatch(try message.items(in: bytes), message, to: session, at: now))
    } else {
      let item = try message.item(in: bytes)
      results = .single(try queue(item, message, to: session, at: now), item.kind)
    }
    return SendReceipt(session: session, cursor: cursor, results: results)
  }

  /// Throws the first problem if every message is refused.
  private func queueBatch(
    _ items: [IncomingMessage.Item], _ message: IncomingMessage, to session: Session, at now: MonotonicTime
  ) throws(ProblemError) -> [SendReceipt.BatchItem] {
    var results: [SendReceipt.BatchItem] = []
    results.reserveCapacity(items.count)
    var refusals = 0
    var firstRefusal: ProblemError?
    var kinds: Set<Problem.Kind> = []
    for item in items {
      do throws(ProblemError) {
        results.append(.accepted(try queue(item, message, to: session, at: now)))
      } catch {
        refusals += 1
        if firstRefusal == nil { firstRefusal = error }
        let problem = error.problem
        results.append(.refused(problem.kind, detail: kinds.insert(problem.kind).inserted ? problem.detail : nil))
      }
    }
    if refusals == items.count, let firstRefusal { throw firstRefusal }
    return results
  }

  private func queue(
    _ item: IncomingMessage.Item, _ message: IncomingMessage, to session: Session, at now: MonotonicTime
  ) throws(ProblemError) -> SendReceipt.Accepted {
    let receipt = session.upstream.post(
      item.payload, kind: item.kind, timeToLive: message.parameters.timeToLive ?? session.upstream.defaultTimeToLive,
      topic: message.parameters.topic, now: now)
    let problem: Problem
    switch receipt.result {
    case .queued(let sequence, _):
      shared.metrics.acceptedMessages.add()
      return SendReceipt.Accepted(sequence: sequence, nextAttempt: receipt.nextAttempt)
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
}
