import ByteStreams
import Idempotency

/// The meaning of the entries.
extension RestoredSession {
  /// Applies the next entry. Returns false, without a change, if it cannot follow those before: the file is damaged.
  package mutating func apply(_ entry: JournalEntry) -> Bool {
    switch entry {
    case .opened(let term): return open(term)
    case .push(let push): return append(push)
    case .gap(let reasons): record(reasons)
    case .trimmed(let number): trim(before: number)
    case .retained(let retention): apply(retention)
    case .accepted(let message): return accept(message)
    case .keyed(let key): keys.apply(key)
    case .intended(let number): intended = number
    case .settled(let settlement): return settle(settlement)
    case .subscribed(let subscription): storedSubscriptions.add(subscription)
    case .unsubscribed(let key): storedSubscriptions.remove(key)
    case .resume(let value, let bytes): resume[value] = bytes
    case .continued(let namespace, let continuation): continuations[namespace] = continuation
    case .discontinued: continuations = [:]
    case .speaks(let spoken): speak(spoken)
    case .desired(let isOpen): isOpenDesired = isOpen
    case .consumer(let name, let change): return apply(change, to: name)
    case .closed: self = RestoredSession(epoch: epoch)
    }
    return true
  }

  private mutating func open(_ term: JournalTerm) -> Bool {
    guard term.term > terms.last?.term ?? 0, term.firstPush <= nextPush || pushes.isEmpty else { return false }
    terms.append(term)
    if terms.count > Self.maximumTerms { terms.removeFirst() }
    nextPush = max(nextPush, term.firstPush)
    if term.firstDelivery > nextDelivery { extendDeliveries(to: term.firstDelivery) }
    return true
  }

  // MARK: Pushes

  private mutating func append(_ push: JournalPush) -> Bool {
    guard push.number == nextPush else { return false }
    if push.number == 1 { firstArrival = push.time }
    pushes.append(push)
    nextPush += 1
    return true
  }

  private mutating func record(_ reasons: JournalGaps) {
    if let last = gaps.last, last.after == nextPush - 1 {
      gaps[gaps.count - 1].reasons.formUnion(reasons)
    } else {
      gaps.append(Gap(after: nextPush - 1, reasons: reasons))
    }
  }

  private mutating func trim(before number: UInt64) {
    while !pushes.isEmpty, firstRetained < number {
      newestTrimmedArrival = pushes[pushes.front].time
      pushes.removeFirst()
    }
    trimGaps()
  }

  private mutating func apply(_ retention: JournalRetention) {
    guard retention.first >= firstRetained else { return }
    trim(before: retention.first)
    // Its pushes were deleted.
    if pushes.isEmpty { nextPush = max(nextPush, retention.first) }
    firstArrival = retention.firstArrival
    newestTrimmedArrival = retention.newestTrimmedArrival
    if let gap = retention.newestTrimmedGap {
      gaps.removeAll { $0.after <= gap.after }
      gaps.insert(gap, at: 0)
    }
    trimGaps()
  }

  /// A gap belongs to the push after it. Only the newest of those that were dropped with their pushes matters to readers.
  private mutating func trimGaps() {
    let first = firstRetained
    let dropped = gaps.prefix { $0.after + 1 < first }.count
    if dropped > 1 { gaps.removeFirst(dropped - 1) }
  }

  // MARK: Deliveries

  private mutating func accept(_ message: JournalMessage) -> Bool {
    guard message.number >= nextDelivery, message.number < .max else { return false }
    extendDeliveries(to: message.number + 1)
    set(message.number, Delivery(state: Self.queued, time: message.time / 10))
    messages[message.number] = message
    return true
  }

  /// Makes room for the states of the messages before `next`. Those without an entry have none.
  private mutating func extendDeliveries(to next: UInt64) {
    let skipped = min(next - nextDelivery, UInt64(Self.maximumDeliveries))
    for _ in 0..<skipped {
      // Before the next one, which would double the ring.
      if deliveries.count == Self.maximumDeliveries { deliveries.removeFirst() }
      deliveries.append(Delivery())
    }
    nextDelivery = next
  }

  private mutating func set(_ number: UInt64, _ delivery: Delivery) {
    guard let index = deliveryIndex(number) else { return }
    deliveries[index] = delivery
  }

  private mutating func settle(_ settlement: JournalSettlement) -> Bool {
    guard settlement.first <= settlement.last, settlement.last < .max, settlement.state != 0 else { return false }
    // A message with time to live 0 has a state without having been stored.
    if settlement.last >= nextDelivery { extendDeliveries(to: settlement.last + 1) }
    let delivery = Delivery(state: settlement.state, reason: settlement.reason, time: settlement.time / 10)
    let oldest = nextDelivery - UInt64(deliveries.count)
    if settlement.last >= oldest {
      for number in max(settlement.first, oldest)...settlement.last { set(number, delivery) }
    }
    guard settlement.releasesPayloads, !messages.isEmpty else { return true }
    if settlement.last - settlement.first < UInt64(messages.count) {
      for number in settlement.first...settlement.last { messages[number] = nil }
    } else {
      messages = messages.filter { $0.key < settlement.first || $0.key > settlement.last }
    }
    return true
  }

  /// Messages that another protocol understands have ended before.
  private mutating func speak(_ spoken: StoredProtocol) {
    guard spoken != self.spoken else { return }
    self.spoken = spoken
    storedSubscriptions = StoredSubscriptions()
    resume = [:]
    continuations = [:]
  }

  // MARK: Consumers

  private mutating func apply(_ change: ConsumerChange, to name: String) -> Bool {
    if case .removed = change {
      consumers[name] = nil
      return true
    }
    if case .put(let settings, let position) = change, consumers[name] == nil {
      consumers[name] = RestoredConsumer(settings, start: position)
      return true
    }
    return consumers[name]?.apply(change) ?? false
  }
}

extension RestoredConsumer {
  fileprivate mutating func apply(_ change: ConsumerChange) -> Bool {
    switch change {
    case .put(let settings, _): self.settings = settings
    case .moved(let progress): move(progress)
    case .leased(let lease):
      pushes[lease.number] = Push(attempts: lease.attempt, bits: lease.bits, end: lease.end)
    case .released(let release):
      pushes[release.number] =
        release.attempts == 0 ? nil : Push(attempts: release.attempts, bits: nil, end: release.end)
    case .settled(let first, let last): settle(first...max(first, last))
    case .buried(let letter):
      settle(letter.push.number...letter.push.number)
      dead.append(letter)
    case .deadDropped(let number):
      if let index = dead.firstIndex(where: { $0.push.number == number }) { dead.remove(at: index) }
    case .deadRemoved: dead = []
    case .deadRetried:
      retried += dead.map(\.push)
      dead = []
    case .used(let time): progress.time = time
    case .removed: return false
    }
    return true
  }

  private mutating func settle(_ numbers: ClosedRange<UInt64>) {
    if numbers.upperBound - numbers.lowerBound < UInt64(pushes.count) {
      for number in numbers { pushes[number] = nil }
    } else if !pushes.isEmpty {
      pushes = pushes.filter { !numbers.contains($0.key) }
    }
    let last = progress.position >> 1
    if numbers.upperBound > last { settled.insert(max(numbers.lowerBound, last + 1)...numbers.upperBound) }
    if !retried.isEmpty { retried.removeAll { numbers.contains($0.number) } }
  }

  /// Positions only move forward. What is before the position is settled, except dead letters that are handed out again.
  private mutating func move(_ moved: JournalConsumerProgress) {
    let before = progress
    progress = moved
    progress.position = max(before.position, moved.position)
    progress.frontier = max(before.frontier, moved.frontier)
    settled.removeAll(through: progress.position >> 1)
  }
}
