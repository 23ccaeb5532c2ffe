import Journal
import Synchronization
import Threading

/// How much of a session's journal is stored. The store writes it, and any thread reads it.
package final class JournalProgress: Sendable {
  private let position: Atomic<UInt64>
  /// All entries of the session up to this ticket are stored.
  private let stored = Atomic<UInt64>(0)
  /// The first ticket that will never be stored.
  private let firstLost = Atomic<UInt64>(.max)

  package init(position: UInt64) { self.position = Atomic(position) }

  /// - Parameters:
  ///   - ticket: at least the ticket of the last call.
  ///   - position: the position of the last push or gap that is stored, as `Cursor.position`.
  package func setStored(through ticket: UInt64, position: UInt64) {
    self.position.store(position, ordering: .sequentiallyConsistent)
    stored.store(ticket, ordering: .releasing)
  }

  /// Entries with this ticket or later tickets will never be stored.
  package func lose(from ticket: UInt64) { firstLost.store(ticket, ordering: .releasing) }

  /// Entries that are not stored by now will never be stored.
  package func loseUnstored() {
    firstLost.store(
      min(firstLost.load(ordering: .relaxed), stored.load(ordering: .relaxed) + 1), ordering: .releasing)
  }

  var storedPosition: UInt64 { position.load(ordering: .sequentiallyConsistent) }
  var isLost: Bool { firstLost.load(ordering: .relaxed) < .max }

  /// Returns nil if the entry is neither stored nor lost.
  func outcome(of ticket: JournalTicket) -> JournalOutcome? {
    // `stored` is read first, since a ticket is marked as lost before later tickets are marked as stored.
    let isStored = ticket.number <= stored.load(ordering: .acquiring)
    guard ticket.number < firstLost.load(ordering: .acquiring) else { return .failed }
    return isStored ? .stored : nil
  }
}

/// The journal of one session in a store that has a `SubmissionQueue`.
package final class QueuedJournal: SessionJournal {
  private let queue: SubmissionQueue
  private let session: Int32
  let progress: JournalProgress
  private let isShared: Bool
  /// Weak: the session owns its journal, and not the reverse.
  private struct Observation: Sendable {
    weak var observer: (any JournalObserver)?
  }

  private let observation = Locked(Observation())

  /// - Parameters:
  ///   - session: the number of the session in the store.
  ///   - isShared: whether the session is shared, so that another gateway may continue this journal.
  package init(_ queue: SubmissionQueue, session: Int32, _ progress: JournalProgress, isShared: Bool) {
    self.queue = queue
    self.session = session
    self.progress = progress
    self.isShared = isShared
  }

  package func submit(_ entry: JournalEntry) -> JournalTicket { queue.submit(entry, of: session) }

  package func submit(contentsOf entries: [JournalEntry]) -> JournalTicket {
    queue.submit(contentsOf: entries, of: session, isAwaited: true)
  }

  package func note(contentsOf entries: [JournalEntry]) -> JournalTicket {
    queue.submit(contentsOf: entries, of: session, isAwaited: false)
  }

  package func outcome(of ticket: JournalTicket) -> JournalOutcome {
    progress.outcome(of: ticket) ?? queue.outcomeOfUnstored
  }

  package var storedPosition: UInt64 { progress.storedPosition }
  package var isFailed: Bool { queue.isFailed || progress.isLost }
  package var hasEnded: Bool { isShared && progress.isLost }
  package var showsUnstored: Bool { !isShared && isFailed }
  package var isFull: Bool { queue.isFull }
  package var isOverfull: Bool { queue.isOverfull }
  package var mustPauseReading: Bool { queue.mustPauseReading }

  package func observe(_ observer: any JournalObserver) { observation.withLock { $0.observer = observer } }

  /// Called by the store.
  package func notify() { observation.withLock { $0.observer }?.journalChanged() }
}
