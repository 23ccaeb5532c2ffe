import ByteStreams
import Consumers
import Idempotency
import Inbox

/// The entries that lead to a state: what the store keeps in place of all that were ever submitted.
extension RestoredSession {
  /// The retained pushes and the gaps between them, in order.
  package var pushEntries: [JournalEntry] { log.changes.map { .log($0) } }

  /// All other entries. They and `pushEntries` are independent of each other, except that `retained`, the first of these, comes before both.
  package var stateEntries: [JournalEntry] {
    var result: [JournalEntry] = [.log(.retained(log.retention))]
    // Before what it would forget.
    if spoken != .webSocket { result.append(.speaks(spoken)) }
    for number in messages.keys.sorted() { result += messages[number].map { [.accepted($0)] } ?? [] }
    appendDeliveries(to: &result)
    result += terms.map { .opened($0) }
    if intended > 0 { result.append(.intended(through: intended)) }
    result += keys.changes.map { .keyed($0) }
    result += subscriptions.map { .subscribed($0) }
    for value in ResumeValue.allCases { if let bytes = resume[value] { result.append(.resume(value, bytes)) } }
    result += continuations.sorted { $0.key < $1.key }.map { .continued(namespace: $0.key, $0.value) }
    if !isOpenDesired { result.append(.desired(isOpen: false)) }
    return result + consumers.changes.map { .consumer(name: $0.name, $0.change) }
  }

  /// Consecutive messages with equal states are one entry.
  private func appendDeliveries(to entries: inout [JournalEntry]) {
    var index = deliveries.front
    while index < deliveries.end {
      let delivery = deliveries[index]
      let start = index
      repeat { index += 1 } while index < deliveries.end && deliveries[index] == delivery
      guard delivery.state != 0 else { continue }
      let first = nextDelivery - UInt64(deliveries.end - start)
      entries.append(
        .settled(
          JournalSettlement(
            first: first, last: first + UInt64(index - start) - 1, state: delivery.state, reason: delivery.reason,
            time: delivery.time * 10, releasesPayloads: false)))
    }
  }
}
