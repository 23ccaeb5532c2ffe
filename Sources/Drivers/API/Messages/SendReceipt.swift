import ByteStreams
import HTTPCodec
import HTTPServer
import Idempotency
import Inbox
import Outbox
import Sessions
import Upstream

/// The result of a `POST /v1/messages`: the outcome of each message, and its representation.
struct SendReceipt {
  /// A queued message: its sequence number, and the time of the next connection attempt if there is one.
  struct Accepted {
    let sequence: UInt64
    var nextAttempt: MonotonicTime?
  }

  enum Results {
    case single(Accepted, MessageKind)
    case batch(BatchResults)
  }

  let session: Session
  /// The position after the newest push, read before the messages were queued. A poll from this position cannot miss a
  /// reply.
  let cursor: Cursor
  let results: Results
  /// The messages, if they must be stored before they are accepted.
  let submitted: SubmittedChange?

  /// Number of messages that were not refused.
  var acceptedCount: Int {
    guard case .batch(let results) = results else { return 1 }
    return results.acceptedCount
  }

  /// Whether some messages of a batch were refused.
  var hasRefusals: Bool {
    guard case .batch(let results) = results else { return false }
    return results.hasRefusals
  }

  init(session: Session, cursor: Cursor, results: Results, submitted: SubmittedChange?) {
    self.submitted = submitted
    self.session = session
    self.cursor = cursor
    self.results = results
  }

  /// Restores the receipt of an earlier request, for its repetition.
  init(_ acceptance: IdempotencyTable.Acceptance, in session: Session) {
    self.session = session
    cursor = session.inbox.cursor(at: acceptance.position)
    // The messages of the first request may not be stored yet, if its client did not wait for the store. So the
    // repetition waits for the store, too.
    submitted = SubmittedChange(of: acceptance.last, in: session)
    if let count = acceptance.batchCount {
      results = .batch(BatchResults(Accepted(sequence: acceptance.first), count: Int(count)))
    } else {
      results = .single(Accepted(sequence: acceptance.first), acceptance.kind)
    }
  }

  /// The part that is remembered under an idempotency key. A batch with a key is accepted as a whole, with consecutive
  /// numbers.
  var acceptance: IdempotencyTable.Acceptance {
    switch results {
    case .single(let accepted, let kind):
      return IdempotencyTable.Acceptance(
        first: accepted.sequence, batchCount: nil, kind: kind, position: cursor.position)
    case .batch(let results):
      guard case .accepted(let first, let count)? = results.runs.first, results.runs.count == 1 else {
        preconditionFailure("a keyed batch is accepted as a whole")
      }
      return IdempotencyTable.Acceptance(
        first: first.sequence, batchCount: Int32(count), kind: .text, position: cursor.position)
    }
  }

  // MARK: States

  /// Moves `position` to the first message that has reached neither the milestone nor a final state. Returns whether
  /// there is no such message. Skips refused messages. A message that was skipped stays skipped, even if it is sent
  /// again later.
  func advance(_ position: inout BatchResults.Position, to milestone: SendParameters.Milestone) -> Bool {
    session.upstream.readDeliveries { deliveries in
      switch results {
      case .single(let accepted, _):
        if position.run == 0, milestone.isReached(by: accepted.sequence, in: deliveries) { position.run = 1 }
        return position.run == 1
      case .batch(let results):
        return results.advance(&position) { milestone.isReached(by: $0, in: deliveries) }
      }
    }
  }

  // MARK: Representation

  /// Writes a response.
  ///
  /// - Parameters:
  ///   - isComplete: whether every message has reached the state that the client waits for, or a final state.
  ///   - showsStates: whether to show the current states. If false, all messages are shown as `queued`, the state in
  ///     which they were accepted. They are also shown as `queued` if this gateway has lost the session, since only the
  ///     next holder knows their states.
  func write(isComplete: Bool, showsStates: Bool, at now: MonotonicTime, into response: inout Response) {
    guard showsStates || isComplete else {
      return append(isComplete: false, showsStates: false, at: now, to: &response)
    }
    session.writeAsHolder(into: &response) { isHolder, response in
      append(isComplete: isHolder && isComplete, showsStates: isHolder && showsStates, at: now, to: &response)
    }
  }

  private func append(isComplete: Bool, showsStates: Bool, at now: MonotonicTime, to response: inout Response) {
    response.begin(hasRefusals ? .multiStatus : isComplete ? .ok : .accepted, "application/json")
    switch results {
    case .single(let accepted, let kind):
      DeliveryJSON.writeLocation(of: accepted.sequence, in: session, into: &response.fields)
      if showsStates {
        // The response does not contain the time of the record, so the clock is not read.
        let record = session.upstream.deliveryRecord(accepted.sequence, now: .zero)
        begin(accepted.sequence, record, into: &response.content.text)
      } else {
        beginQueued(accepted.sequence, into: &response.content.text)
      }
      response.content.text.append(
        session.upstream.hasEvents
          ? ",\"type\":\"event\"" as StaticString
          : kind == .text ? ",\"type\":\"text\"" as StaticString : ",\"type\":\"binary\"")
      writeCursor(into: &response.content.text)
      writeNextAttempt(of: accepted, at: now, into: &response.content.text)
    case .batch(let results):
      response.content.text.append("{\"results\":[" as StaticString)
      for (index, run) in results.runs.enumerated() {
        if index > 0 { response.content.text.append("," as StaticString) }
        switch run {
        case .accepted(let first, let count):
          if showsStates {
            writeStates(count, from: first, at: now, into: &response.content.text)
          } else {
            writeQueued(count, from: first, at: now, into: &response.content.text)
          }
        case .refused(let kind, let detail, let count):
          kind.writeInBatch(detail: detail, into: &response.content.text)
          for _ in 1..<count {
            response.content.text.append("," as StaticString)
            kind.writeInBatch(detail: nil, into: &response.content.text)
          }
        }
      }
      response.content.text.append("]" as StaticString)
      writeCursor(into: &response.content.text)
    }
    response.content.text.append("}\n" as StaticString)
  }

  private func beginQueued(_ sequence: UInt64, into output: inout ByteQueue) {
    DeliveryJSON.begin(of: session, sequence, into: &output)
    output.append(decimal: sequence)
    DeliveryJSON.end(with: .queued, of: session, into: &output)
  }

  /// - Parameter record: the state of the message; nil if the message was dropped, so that its outcome is unknown.
  private func begin(_ sequence: UInt64, _ record: DeliveryRecord?, into output: inout ByteQueue) {
    DeliveryJSON.begin(of: session, sequence, into: &output)
    output.append(decimal: sequence)
    DeliveryJSON.end(with: record?.state ?? .unknown, of: session, into: &output)
    if let record {
      if let reason = record.reason { DeliveryJSON.write(reason, into: &output) }
    } else {
      output.append(",\"reason\":\"forgotten\"" as StaticString)
    }
  }

  /// Writes `count` messages that were queued one after another, from `first`, with their current states.
  private func writeStates(
    _ count: Int, from first: Accepted, at now: MonotonicTime, into output: inout ByteQueue
  ) {
    let records = session.upstream.deliveryRecords(from: first.sequence, count: count, now: .zero)
    for (index, record) in records.enumerated() {
      if index > 0 { output.append("," as StaticString) }
      begin(first.sequence + UInt64(index), record, into: &output)
      writeNextAttempt(of: first, at: now, into: &output)
      output.append("}" as StaticString)
    }
  }

  /// Writes `count` messages that were queued one after another, from `first`, as `queued`. Their texts differ only in
  /// the numbers, so the text between two numbers is rendered once.
  private func writeQueued(
    _ count: Int, from first: Accepted, at now: MonotonicTime, into output: inout ByteQueue
  ) {
    beginQueued(first.sequence, into: &output)
    writeNextAttempt(of: first, at: now, into: &output)
    output.append("}" as StaticString)
    guard count > 1 else { return }
    var before = ByteQueue()
    before.append("," as StaticString)
    DeliveryJSON.begin(of: session, first.sequence, into: &before)
    var after = ByteQueue()
    DeliveryJSON.end(with: .queued, of: session, into: &after)
    writeNextAttempt(of: first, at: now, into: &after)
    after.append("}" as StaticString)
    for number in 1..<UInt64(count) {
      output.append(before.bytes)
      output.append(decimal: first.sequence + number)
      output.append(after.bytes)
    }
  }

  private func writeCursor(into output: inout ByteQueue) {
    output.append(",\"cursor\":\"" as StaticString)
    cursor.write(into: &output)
    output.append("\"" as StaticString)
  }

  private func writeNextAttempt(of accepted: Accepted, at now: MonotonicTime, into output: inout ByteQueue) {
    guard let next = accepted.nextAttempt else { return }
    output.append(",\"next_attempt_in_seconds\":" as StaticString)
    output.append(seconds: max(.zero, next - now))
  }
}
