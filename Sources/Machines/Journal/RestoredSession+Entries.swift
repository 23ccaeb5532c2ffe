import ByteStreams
import Idempotency

/// The entries that lead to a state: what the store keeps in place of all that were ever submitted.
extension RestoredSession {
  /// What is known of the pushes that were dropped.
  package var retention: JournalRetention {
    let dropped = gaps.first.flatMap { $0.after + 1 < firstRetained ? $0 : nil }
    return JournalRetention(
      first: firstRetained, firstArrival: firstArrival, newestTrimmedArrival: newestTrimmedArrival,
      newestTrimmedGap: dropped)
  }

  /// The entries of the retained pushes and the gaps between them, in order.
  package var pushEntries: [JournalEntry] {
    var result: [JournalEntry] = []
    result.reserveCapacity(pushes.count + gaps.count)
    var gap = gaps.startIndex
    for index in pushes.front..<pushes.end {
      let push = pushes[index]
      while gap < gaps.endIndex, gaps[gap].after < push.number {
        if gaps[gap].after + 1 >= firstRetained { result.append(.gap(gaps[gap].reasons)) }
        gap += 1
      }
      result.append(.push(push))
    }
    for gap in gaps[gap...] where gap.after + 1 >= firstRetained { result.append(.gap(gap.reasons)) }
    return result
  }

  /// All other entries. They and `pushEntries` are independent of each other, except that `retained`, the first of these, comes before both.
  package var stateEntries: [JournalEntry] {
    var result: [JournalEntry] = [.retained(retention)]
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
    for name in consumers.keys.sorted() {
      result += (consumers[name]?.changes ?? []).map { .consumer(name: name, $0) }
    }
    return result
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

extension RestoredConsumer {
  /// The changes that lead from nothing to this.
  fileprivate var changes: [ConsumerChange] {
    var result: [ConsumerChange] = [.put(settings, position: start), .moved(progress)]
    result += settled.ranges.map { .settled(first: $0.lowerBound, last: $0.upperBound) }
    if !retried.isEmpty {
      result += retried.map { .buried(JournalDeadLetter(push: $0, isRejected: false, deliveries: 0)) }
      result.append(.deadRetried)
    }
    result += dead.map { .buried($0) }
    for number in pushes.keys.sorted() {
      guard let push = pushes[number] else { continue }
      if let bits = push.bits {
        result.append(.leased(JournalLease(number: number, attempt: push.attempts, bits: bits, end: push.end)))
      } else {
        result.append(.released(JournalRelease(number: number, attempts: push.attempts, end: push.end)))
      }
    }
    return result
  }
}
