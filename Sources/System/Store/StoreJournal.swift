import Journal
import Synchronization
import Threading

/// The journal of one session in a `Store`.
final class StoreJournal: SessionJournal {
  private let store: Store
  private let session: Int
  private let position: Atomic<UInt64>
  /// The session owns its journal, and not the reverse.
  private struct Observation: Sendable {
    weak var observer: (any JournalObserver)?
  }

  private let observation = Locked(Observation())

  /// - Parameter session: its position in the writer.
  init(_ store: Store, session: Int, position: UInt64) {
    self.store = store
    self.session = session
    self.position = Atomic(position)
  }

  func submit(_ entry: JournalEntry) -> JournalTicket { store.submit(entry, of: session) }

  func submit(contentsOf entries: [JournalEntry]) -> JournalTicket {
    store.submit(contentsOf: entries, of: session, isAwaited: true)
  }

  func note(contentsOf entries: [JournalEntry]) -> JournalTicket {
    store.submit(contentsOf: entries, of: session, isAwaited: false)
  }

  func outcome(of ticket: JournalTicket) -> JournalOutcome { store.outcome(of: ticket) }

  var storedPosition: UInt64 { position.load(ordering: .sequentiallyConsistent) }
  var isFailed: Bool { store.failed.load(ordering: .acquiring) }
  var isFull: Bool { store.isFull }
  var mustPauseReading: Bool { store.mustPauseReading }

  func observe(_ observer: any JournalObserver) { observation.withLock { $0.observer = observer } }

  // MARK: The writer

  func setStored(_ position: UInt64) { self.position.store(position, ordering: .sequentiallyConsistent) }

  func notify() { observation.withLock { $0.observer }?.journalChanged() }
}
