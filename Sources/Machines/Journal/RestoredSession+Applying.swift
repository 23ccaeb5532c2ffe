import ByteStreams
import Consumers
import Idempotency
import Inbox

/// The meaning of the entries.
extension RestoredSession {
  /// Applies the next entry. Returns false, without a change, if it cannot follow those before: the file is damaged.
  package mutating func apply(_ entry: JournalEntry) -> Bool {
    switch entry {
    case .opened(let term): return open(term)
    case .log(let change): return log.apply(change)
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
    case .consumer(let name, let change): return consumers.apply(change, to: name)
    case .closed: self = RestoredSession(epoch: epoch)
    }
    return true
  }

  private mutating func open(_ term: JournalTerm) -> Bool {
    guard term.term > terms.last?.term ?? 0, log.beginTerm(at: term.firstPush) else { return false }
    terms.append(term)
    if terms.count > Self.maximumTerms { terms.removeFirst() }
    if term.firstDelivery > nextDelivery { extendDeliveries(to: term.firstDelivery) }
    return true
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
}
