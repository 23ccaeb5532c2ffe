import ByteStreams
import Consumers
import HTTPCodec
import HTTPServer
import Host
import Inbox
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
  /// - Parameter acknowledgement: the acknowledgement of the request; nil if there is none, or if it is stored.
  case read(ReadResult, acknowledgement: SubmittedChange?)

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

  /// The change that must be stored before the response is sent; nil if there is none.
  ///
  /// A receive that leases no pushes does not wait for the store. It changes only the time of the last use and the gap
  /// that it reports, and if these changes are lost, the gap is reported again. A receive from a consumer that is not
  /// work-sharing waits only if it acknowledges pushes.
  func submitted(in session: Session) -> SubmittedChange? {
    switch self {
    case .read(_, let acknowledgement): acknowledgement
    case .leased(let batch, _): batch.messages.isEmpty ? nil : SubmittedChange(ofConsumersIn: session)
    case .put, .removed, .removedDeadLetters, .retriedDeadLetters, .settled: SubmittedChange(ofConsumersIn: session)
    }
  }

  func write(_ target: ConsumerTarget, _ api: API, into response: inout Response) {
    let common = api.common
    switch self {
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
      var begun = stored
      target.session.consumers.begin(&begun, of: target.name, now: ProcessInformation.monotonicTime())
      common.metrics.deliveredMessages.add(stored.count)
      target.session.writeAsHolder(into: &response) { isHolder, response in
        response.begin(.ok, "application/json")
        if let gap = batch.gap { PollFields.write(gap, into: &response.fields) }
        // At the next holder, the leases have the ends that are stored, so the response must state these.
        ConsumerJSON.write(isHolder ? begun : stored, of: batch, common.clockOffset, into: &response.content)
      }
    case .read(let result, _):
      common.metrics.deliveredMessages.add(result.messages.count)
      Self.write(result, into: &response)
    }
  }

  private static func write(_ result: ReadResult, into response: inout Response) {
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
