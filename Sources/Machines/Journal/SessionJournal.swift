import ByteStreams

/// The number of an entry among all entries that were submitted to a store in this process, counted from 1.
package struct JournalTicket: Hashable, Comparable, Sendable {
  package let number: UInt64

  package init(_ number: UInt64) { self.number = number }

  package static func < (left: JournalTicket, right: JournalTicket) -> Bool { left.number < right.number }
}

/// The outcome of a submitted entry.
package enum JournalOutcome: Equatable, Sendable {
  case pending
  /// The entry survives all failures that the store promises to survive. Final.
  case stored
  /// The store does not work. The entry is kept in memory, and may be stored once the store works again.
  case failed
}

/// The journal of one session. A session without a store has no journal (`store.engine: memory`).
///
/// Thread-safe. No method blocks: the store has a thread of its own, and a slow disk delays only the outcomes.
package protocol SessionJournal: AnyObject, Sendable {
  /// Submits one entry. Allocates nothing in the steady state.
  @discardableResult
  func submit(_ entry: JournalEntry) -> JournalTicket

  /// Submits entries that are stored together or not at all. Returns the ticket of the last entry. If there are no
  /// entries, the ticket counts as stored.
  @discardableResult
  func submit(contentsOf entries: [JournalEntry]) -> JournalTicket

  /// Submits notes: entries that no request awaits. They are stored with later entries or after a short delay, so that
  /// they need no commit of their own.
  @discardableResult
  func note(contentsOf entries: [JournalEntry]) -> JournalTicket

  /// The outcome of an entry that was submitted to this journal.
  func outcome(of ticket: JournalTicket) -> JournalOutcome

  /// The position after the last stored push or gap of this session, as `Cursor.position`.
  var storedPosition: UInt64 { get }

  /// Whether the store does not work. In this time, entries are kept in memory only, and messages are refused.
  var isFailed: Bool { get }

  /// Whether this gateway has lost the session. If so, the journal stores nothing more, and the outcome of pending
  /// entries is unknown. This is final.
  var hasEnded: Bool { get }

  /// Whether pushes are shown before they are stored, because the store does not work. Never true for a store that
  /// several gateways share, since another gateway may store other pushes in their place.
  var showsUnstored: Bool { get }

  /// Whether more than `store.pending_bytes` are pending, for all sessions together. If so, messages are refused.
  var isFull: Bool { get }

  /// Whether more than one and a half times `store.pending_bytes` are pending. If so, changes of consumers are refused,
  /// too. Their limit is higher because they are small, and because a worker that cannot settle its leases receives the
  /// same messages again.
  var isOverfull: Bool { get }

  /// Whether more than half of `store.pending_bytes` are pending, for all sessions together (in Redis, more than 16 MiB
  /// if that is less). If so, upstreams are not read, so that an upstream that is faster than the disk leaves room for
  /// messages.
  var mustPauseReading: Bool { get }

  /// Sets the observer, which is the session. The journal refers to it weakly.
  func observe(_ observer: any JournalObserver)
}

extension SessionJournal {
  /// Only a session that several gateways share can be lost.
  package var hasEnded: Bool { false }
}

/// The observer is called on the thread of the store, so it must not block. It may submit entries.
package protocol JournalObserver: AnyObject, Sendable {
  /// Entries of this session were stored, `isFailed` has changed, or `mustPauseReading` has become false. Called at
  /// most once per commit.
  func journalChanged()
}

/// The journal of a session, and the session's restored state.
package struct OpenedJournal: Sendable {
  package let journal: any SessionJournal
  package let restored: RestoredSession

  package init(journal: any SessionJournal, restored: RestoredSession) {
    self.journal = journal
    self.restored = restored
  }
}
