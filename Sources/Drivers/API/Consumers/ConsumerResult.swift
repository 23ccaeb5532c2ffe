import ByteStreams
import Consumers
import HTTPCodec
import HTTPServer
import Host
import Inbox
import Journal
import Metrics
import Sessions

/// The result of a request for a consumer, kept until its response is written.
enum ConsumerResult {
  case put(isNew: Bool, ConsumerStatus)
  case removed
  case removedDeadLetters(Int)
  case retriedDeadLetters(Int)
  case settled([(lease: Lease, settlement: Settlement)], [SettlementOutcome])
  /// - Parameter allowed: the messages that the client may receive.
  case leased(LeasedBatch, allowed: [LeasedMessage])
  /// - Parameter acknowledgement: the ticket of the request's acknowledgement; nil if the request acknowledges nothing,
  ///   or if its acknowledgement is stored.
  case read(ReadResult, acknowledgement: JournalTicket?)

  var isOfReceive: Bool {
    switch self {
    case .leased, .read: true
    case .put, .removed, .removedDeadLetters, .retriedDeadLetters, .settled: false
    }
  }

  /// Whether this is the result of a receive from a consumer that is not work-sharing.
  var isRead: Bool { if case .read = self { true } else { false } }

  /// When the leases end according to the store; nil if there are no leases. The leases get a later end when the
  /// response is sent.
  var leaseEnd: MonotonicTime? { if case .leased(_, let messages) = self { messages.first?.expires } else { nil } }

  /// When the first push in the result arrived.
  var arrival: MonotonicTime? {
    switch self {
    case .leased(_, let messages): messages.first?.message.arrival
    case .read(let result, _): result.messages.first?.arrival
    case .put, .removed, .removedDeadLetters, .retriedDeadLetters, .settled: nil
    }
  }

  /// The ticket that must be stored before the response is sent; nil if there is none.
  ///
  /// A receive that leases no pushes does not wait for the store. It changes only the time of the last use and the gap
  /// that it reports, and if these changes are lost, the gap is reported again. A receive from a consumer that is not
  /// work-sharing waits only if it acknowledges pushes.
  func ticket(in consumers: ConcurrentConsumers) -> JournalTicket? {
    switch self {
    case .read(_, let acknowledgement):
      acknowledgement.flatMap { consumers.outcome(of: $0) == .stored ? nil : $0 }
    case .leased(let batch, _): batch.messages.isEmpty ? nil : consumers.unstored
    case .put, .removed, .removedDeadLetters, .retriedDeadLetters, .settled: consumers.unstored
    }
  }
}

extension API {
  /// Responds with the result. Called when the result is stored.
  func respond(
    with result: ConsumerResult, of target: ConsumerTarget, at now: MonotonicTime, into response: inout Response
  ) -> Outcome {
    guard let ticket = result.ticket(in: target.session.consumers) else {
      write(result, of: target, into: &response)
      return .respond
    }
    return hold(HeldConsumerRequest.Pending(result, ticket, of: target, at: now))
  }

  func write(_ result: ConsumerResult, of target: ConsumerTarget, into response: inout Response) {
    switch result {
    case .put(let isNew, let status):
      response.begin(isNew ? .created : .ok, "application/json")
      if isNew {
        response.fields.append("Location: " as StaticString)
        response.fields.append(target.path)
        response.fields.append("\r\n" as StaticString)
      }
      // The consumer has no webhook, since a client cannot put the consumer of a webhook.
      ConsumerJSON.write(status, nil, common.clockOffset, into: &response.content.text)
      response.content.text.append("\n" as StaticString)
    case .removed: response.begin(.noContent, nil)
    case .removedDeadLetters(let count):
      response.begin(.ok, "application/json")
      ConsumerJSON.write("removed", count, into: &response.content.text)
    case .retriedDeadLetters(let count):
      response.begin(.ok, "application/json")
      ConsumerJSON.write("retried", count, into: &response.content.text)
    case .settled(let settlements, let outcomes):
      response.begin(outcomes.contains(.leaseLost) ? .multiStatus : .ok, "application/json")
      ConsumerJSON.write(
        zip(settlements.lazy.map(\.lease), outcomes), common.clockOffset, into: &response.content.text)
    case .leased(let batch, let stored):
      var messages = stored
      target.session.consumers.begin(&messages, of: target.name, now: ProcessInformation.monotonicTime())
      // At the next holder, the leases have the ends that are stored, so the response must state these.
      if !target.session.hasShownTruth { messages = stored }
      common.metrics.deliveredMessages.add(messages.count)
      response.begin(.ok, "application/json")
      if let gap = batch.gap { PollFields.write(gap, into: &response.fields) }
      ConsumerJSON.write(messages, of: batch, common.clockOffset, into: &response.content)
    case .read(let result, _): write(result, into: &response)
    }
  }

  private func write(_ result: ReadResult, into response: inout Response) {
    common.metrics.deliveredMessages.add(result.messages.count)
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
