import ByteStreams
import Consumers
import Journal
import JournalCoding
import Reactor
import Threading
import Upstream

/// The consumers of a session that is stored.
extension ConcurrentConsumers {
  /// Submits the changes of the table to the store, since the table itself does not call the store. Called while the
  /// lock is held, so that the entries have the order of the changes.
  func submit(_ state: inout State) {
    guard let journal else { return }
    let entries = state.table.takeChanges(at: .present).map { JournalEntry.consumer(name: $0.name, $0.change) }
    if !entries.isEmpty { state.lastTicket = journal.submit(contentsOf: entries) }
  }

  package var isStored: Bool { journal != nil }

  /// The ticket of the last change; nil if that change and all earlier changes are stored.
  package var unstored: JournalTicket? {
    guard let journal, let ticket = state.withLock({ $0.lastTicket }), journal.outcome(of: ticket) != .stored else {
      return nil
    }
    return ticket
  }

  /// Starts the time of leases that were waiting for the store. Called when their response is written.
  package func begin(_ messages: inout [LeasedMessage], of name: String, now: MonotonicTime) {
    guard !messages.isEmpty else { return }
    let leases = messages.map(\.lease)
    guard let end = state.withLock({ $0.table.begin(leases, of: name, now: now) }) else { return }
    for index in messages.indices { messages[index].expires = end }
    schedule(end)
  }

  package func outcome(of ticket: JournalTicket) -> JournalOutcome { journal?.outcome(of: ticket) ?? .stored }

  /// From now on, `notifier` is also notified when entries were stored, until `endWaitingForStore()` is called.
  package func beginWaitingForStore() { storeWaiters.withLock { $0 += 1 } }

  package func endWaitingForStore() { storeWaiters.withLock { $0 -= 1 } }

  /// Called on the thread of the store, when entries were stored and pushes have become visible, or when the state of
  /// the store has changed.
  func journalChanged() {
    // The lock orders this call with requests that begin to wait. Such a request either finds its change stored, or is
    // counted here and notified.
    if storeWaiters.withLock({ $0 > 0 }) { notifier.notify() } else { pushed() }
  }
}
