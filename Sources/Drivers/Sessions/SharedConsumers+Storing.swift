import ByteStreams
import Consumers
import Host
import Journal
import JournalCoding
import Reactor
import Threading

/// Consumers of a session that is stored.
extension SharedConsumers {
  /// Submits what has changed: a machine returns changes and does not call the store. Within the lock, so that the entries have the order of the changes.
  func submit(_ state: inout State) {
    guard let journal else { return }
    let entries = state.table.takeChanges(at: .present).map { JournalEntry.consumer(name: $0.name, $0.change) }
    if !entries.isEmpty { state.lastTicket = journal.submit(contentsOf: entries) }
  }

  package var isStored: Bool { journal != nil }

  /// The ticket of the last change, as long as it is not stored. All changes before it are stored no later.
  package var unstored: JournalTicket? {
    guard let journal, let ticket = state.withLock({ $0.lastTicket }), journal.outcome(of: ticket) != .stored else {
      return nil
    }
    return ticket
  }

  /// Leases that are stored begin, since their response is written now.
  package func begin(_ messages: inout [LeasedMessage], of name: String, now: MonotonicTime) {
    guard journal != nil, !messages.isEmpty else { return }
    let leases = messages.map(\.lease)
    guard let end = state.withLock({ $0.table.begin(leases, of: name, now: now) }) else { return }
    for index in messages.indices { messages[index].expires = end }
    schedule(end)
  }

  package func outcome(of ticket: JournalTicket) -> JournalOutcome { journal?.outcome(of: ticket) ?? .stored }

  /// From now on, `notifier` also notifies when something is stored. Ends with `endWaitingForStore()`.
  package func beginWaitingForStore() { storeWaiters.withLock { $0 += 1 } }

  package func endWaitingForStore() { storeWaiters.withLock { $0 -= 1 } }

  /// More is stored, and visible, or the state of the store has changed. Called on the thread of the store.
  func journalChanged() {
    // The lock orders this with those who begin to wait: either they find what is stored, or they are counted.
    if storeWaiters.withLock({ $0 > 0 }) { notifier.notify() } else { pushed() }
  }
}

extension JournalClock {
  static var present: JournalClock {
    JournalClock(now: ProcessInformation.monotonicTime(), wallClock: ProcessInformation.wallClockMilliseconds())
  }
}
