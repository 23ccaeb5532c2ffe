import ByteStreams
import JournalCoding

/// The number of an entry among all that were submitted to a store in this process, counted from 1.
package struct JournalTicket: Hashable, Comparable, Sendable {
  package let number: UInt64

  package init(_ number: UInt64) { self.number = number }

  package static func < (left: JournalTicket, right: JournalTicket) -> Bool { left.number < right.number }
}

/// What became of a submitted entry.
package enum JournalOutcome: Equatable, Sendable {
  case pending
  /// It survives what the store promises. This is final.
  case stored
  /// The store does not work. The entry is kept in memory, and may be stored when the store works again.
  case failed
}

/// Where the changes of one session are stored. nil in place of it: nowhere (`store.engine: memory`).
///
/// Safe for use from any thread. Nothing in here blocks: the store has a thread of its own, and a slow disk delays only the outcomes.
package protocol SessionJournal: AnyObject, Sendable {
  /// Submits one entry. Allocates nothing in the long run.
  @discardableResult
  func submit(_ entry: JournalEntry) -> JournalTicket

  /// Submits entries that are stored together or not at all. The ticket is that of the last; that of none is stored.
  @discardableResult
  func submit(contentsOf entries: [JournalEntry]) -> JournalTicket

  /// As above, for entries that are not awaited. They are stored with the next ones, or after a moment, so that they need no commit of their own.
  @discardableResult
  func note(contentsOf entries: [JournalEntry]) -> JournalTicket

  /// The outcome of an entry that was submitted to this journal.
  func outcome(of ticket: JournalTicket) -> JournalOutcome

  /// The position after the last push or gap of this session that is stored, as `Cursor.position`.
  var storedPosition: UInt64 { get }

  /// Whether the store does not work: what is submitted now is kept in memory only, and messages are refused.
  var isFailed: Bool { get }

  /// Whether this gateway has lost the session: nothing more is stored by this journal, and what is not stored yet may be, or not. Final.
  var hasEnded: Bool { get }

  /// Whether pushes are shown that are not stored, since the store does not work. A store that several gateways share never shows them: another
  /// gateway may store other pushes in their place.
  var showsUnstored: Bool { get }

  /// Whether more than `store.pending_bytes` wait to be stored, by all sessions: messages are refused.
  var isFull: Bool { get }

  /// Whether half as much again waits: changes of consumers are refused too. They are small, and workers that cannot settle their leases would
  /// receive the same messages again.
  var isOverfull: Bool { get }

  /// Whether more than half of `store.pending_bytes` wait to be stored, by all sessions: nothing more may be read from the upstream. So an
  /// upstream that is faster than the disk leaves room for messages.
  var mustPauseReading: Bool { get }

  /// Sets who is called from now on. One observer: the session, which the journal does not keep alive.
  func observe(_ observer: any JournalObserver)
}

extension SessionJournal {
  /// Only a session that several gateways share can be lost.
  package var hasEnded: Bool { false }
}

/// Called on the thread of the store, so it must not block. A method that is called may submit entries.
package protocol JournalObserver: AnyObject, Sendable {
  /// Entries of this session were stored, `isFailed` has changed, or `mustPauseReading` has become false. At most once per commit.
  func journalChanged()
}

/// The store of a process, as the status output sees it.
package protocol Journal: AnyObject, Sendable {
  var state: StoreState { get }
}

/// The journal of a session, and what it was when the session ended.
package struct OpenedJournal: Sendable {
  package let journal: any SessionJournal
  package let restored: RestoredSession
  /// A wall clock that was not set since the machine has started; nil if the store has none.
  package let clock: JournalClock?

  package init(journal: any SessionJournal, restored: RestoredSession, clock: JournalClock? = nil) {
    self.journal = journal
    self.restored = restored
    self.clock = clock
  }
}
