import ByteStreams
import Consumers
import HTTPServer
import Inbox
import JSONCodec
import Sessions

/// Consumers, leases and dead letters in responses.
enum ConsumerJSON {
  // MARK: Consumers

  /// - Parameter webhooks: the webhooks of the session; nil if the consumer is not the consumer of a webhook.
  static func write(
    _ status: ConsumerStatus, _ webhooks: SessionWebhooks?, _ clock: ClockOffset, into output: inout ByteQueue
  ) {
    let settings = status.settings
    output.append("{\"name\":\"" as StaticString)
    output.append(status.name)
    output.append(
      settings.isWorkSharing
        ? "\",\"share\":true,\"visibility\":\"" : "\",\"share\":false,\"visibility\":" as StaticString)
    if settings.isWorkSharing {
      output.append(settings.visibility.text)
      output.append("\",\"max_deliveries\":" as StaticString)
      output.append(decimal: Int(settings.maximumDeliveries))
    } else {
      output.append("null,\"max_deliveries\":null" as StaticString)
    }
    output.append(",\"order_by\":" as StaticString)
    if let order = settings.order {
      output.append(jsonString: order.text)
    } else {
      output.append("null" as StaticString)
    }
    output.append(",\"topics\":[" as StaticString)
    for (index, topic) in settings.topics.enumerated() {
      if index > 0 { output.append("," as StaticString) }
      output.append(jsonString: topic)
    }
    output.append("],\"idle\":\"" as StaticString)
    output.append(settings.idle.text)
    output.append("\",\"position\":\"" as StaticString)
    status.position.write(into: &output)
    output.append("\",\"lag\":" as StaticString)
    output.append(decimal: status.lag)
    output.append(",\"leases\":" as StaticString)
    output.append(decimal: status.leases)
    output.append(",\"missed\":" as StaticString)
    if let missed = status.missed {
      output.append(decimal: missed)
    } else {
      output.append("null" as StaticString)
    }
    output.append(",\"dead\":{\"messages\":" as StaticString)
    output.append(decimal: status.deadLetters)
    output.append(",\"bytes\":" as StaticString)
    output.append(decimal: status.deadBytes)
    output.append(",\"dropped\":" as StaticString)
    output.append(decimal: status.droppedDeadLetters)
    output.append("},\"webhook\":" as StaticString)
    if let webhook = webhooks?.status(of: status.name) {
      WebhookJSON.write(webhook, nextAttempt: status.nextDelivery, clock, into: &output)
    } else {
      output.append("null" as StaticString)
    }
    output.append("}" as StaticString)
  }

  static func write(
    _ page: ConsumerPage, _ webhooks: SessionWebhooks?, _ clock: ClockOffset, into output: inout ByteQueue
  ) {
    output.append("{\"consumers\":[" as StaticString)
    for (index, status) in page.consumers.enumerated() {
      if index > 0 { output.append("," as StaticString) }
      write(status, webhooks, clock, into: &output)
    }
    output.append(page.more ? "],\"more\":true}\n" : "],\"more\":false}\n" as StaticString)
  }

  /// `{"name":count}`
  static func write(_ name: StaticString, _ count: Int, into output: inout ByteQueue) {
    output.append("{\"" as StaticString)
    output.append(name)
    output.append("\":" as StaticString)
    output.append(decimal: count)
    output.append("}\n" as StaticString)
  }

  // MARK: Messages

  /// Writes leased messages. Each has the members of its lease, followed by the members of a message in a poll.
  ///
  /// - Parameter messages: the messages of the batch that the client may receive.
  static func write(
    _ messages: [LeasedMessage], of batch: LeasedBatch, _ clock: ClockOffset, into content: inout ResponseContent
  ) {
    var times = ResponseTimes(clock)
    content.text.append("{\"messages\":[" as StaticString)
    for (index, message) in messages.enumerated() {
      content.text.append(index == 0 ? "{\"lease\":\"" : ",{\"lease\":\"" as StaticString)
      message.lease.write(into: &content.text)
      content.text.append("\",\"deliveries\":" as StaticString)
      content.text.append(decimal: Int(message.lease.attempt))
      content.text.append(",\"expires\":" as StaticString)
      times.write(message.expires, into: &content.text)
      content.text.append("," as StaticString)
      writeMembers(of: message.message, into: &content)
    }
    content.text.append(batch.more ? "],\"more\":true" : "],\"more\":false" as StaticString)
    content.text.append(
      batch.isBlocked ? ",\"blocked\":\"leases\",\"gap\":" : ",\"blocked\":null,\"gap\":" as StaticString)
    MessagesJSON.write(batch.gap, into: &content.text)
    content.text.append("}\n" as StaticString)
  }

  static func write(_ letters: [DeadLetter], dropped: UInt64, into content: inout ResponseContent) {
    content.text.append("{\"messages\":[" as StaticString)
    for (index, letter) in letters.enumerated() {
      content.text.append(index == 0 ? "{\"reason\":\"" : ",{\"reason\":\"" as StaticString)
      content.text.append(letter.reason == .rejected ? "rejected" : "deliveries" as StaticString)
      content.text.append("\",\"deliveries\":" as StaticString)
      content.text.append(decimal: Int(letter.deliveries))
      content.text.append("," as StaticString)
      writeMembers(of: letter.message, into: &content)
    }
    content.text.append("],\"dropped\":" as StaticString)
    content.text.append(decimal: dropped)
    content.text.append("}\n" as StaticString)
  }

  /// Writes the members of a rendered message and the final brace, without a copy.
  private static func writeMembers(of message: RetainedMessage, into content: inout ResponseContent) {
    content.append(ByteSlice(message.rendered, range: 1..<message.rendered.count))
  }

  // MARK: Settling

  static func write(
    _ results: some Sequence<(Lease, SettlementOutcome)>, _ clock: ClockOffset, into output: inout ByteQueue
  ) {
    var times = ResponseTimes(clock)
    var isFirst = true
    output.append("{\"results\":[" as StaticString)
    for (lease, outcome) in results {
      output.append(isFirst ? "{\"lease\":\"" : ",{\"lease\":\"" as StaticString)
      isFirst = false
      lease.write(into: &output)
      switch outcome {
      case .acknowledged: output.append("\",\"status\":200,\"state\":\"acknowledged\"}" as StaticString)
      case .released: output.append("\",\"status\":200,\"state\":\"released\"}" as StaticString)
      case .dead: output.append("\",\"status\":200,\"state\":\"dead\"}" as StaticString)
      case .extended(let end):
        output.append("\",\"status\":200,\"state\":\"extended\",\"expires\":" as StaticString)
        times.write(end, into: &output)
        output.append("}" as StaticString)
      case .leaseLost: output.append("\",\"status\":409,\"type\":\"/errors/lease-lost\"}" as StaticString)
      }
    }
    output.append("]}\n" as StaticString)
  }
}
