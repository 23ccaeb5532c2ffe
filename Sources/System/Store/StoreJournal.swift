import Journal
import Synchronization
import Threading

/// The journal of one session in a `Store`.
final class StoreJournal: SessionJournal {
  private let store: Store
  private let session: Int
  private let position: Atomic<UInt64>
  /// The first ticket that will never be stored, since an entry did not follow those before.
  private let firstLost = Atomic<UInt64>(.max)
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

  func outcome(of ticket: JournalTicket) -> JournalOutcome {
    // In this order: a ticket is lost before the store says of later ones that they are stored.
    let outcome = store.outcome(of: ticket)
    return ticket.number < firstLost.load(ordering: .acquiring) ? outcome : .failed
  }

  var storedPosition: UInt64 { position.load(ordering: .sequentiallyConsistent) }
  var isFailed: Bool {
    store.failed.load(ordering: .acquiring) || firstLost.load(ordering: .relaxed) < .max
  }
  var isFull: Bool { store.isFull }
  var isOverfull: Bool { store.isOverfull }
  var mustPauseReading: Bool { store.mustPauseReading }

  func observe(_ observer: any JournalObserver) { observation.withLock { $0.observer = observer } }

  // MARK: The writer

  func setStored(_ position: UInt64) { self.position.store(position, ordering: .sequentiallyConsistent) }

  func lose(from number: UInt64) { firstLost.store(number, ordering: .releasing) }

  func notify() { observation.withLock { $0.observer }?.journalChanged() }
}
