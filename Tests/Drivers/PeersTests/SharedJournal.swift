import Idempotency
import Inbox
import Journal
import Outbox
import Threading

/// A journal that several gateways can continue, one after another, like a session in Redis. It stores every entry at
/// once.
final class SharedJournal: Sendable {
  private struct State {
    var session = RestoredSession(epoch: 0xABC)
    var submitted: UInt64 = 0
    /// The number of the last stored entry. nil if the journal stores every entry at once.
    var stored: UInt64?
    var isLost = false
    /// The current term. The journal does not store entries of other terms.
    var term: UInt64 = 0
  }

  private let state = Locked(State())

  /// Begins another term.
  func open() -> OpenedJournal {
    state.withLock { state in
      let term = JournalTerm(
        term: (state.session.terms.last?.term ?? 0) + 1, firstPush: state.session.log.nextPush,
        firstDelivery: state.session.outbox.nextDelivery)
      _ = state.session.apply(.opened(term))
      state.term = term.term
      return OpenedJournal(journal: Term(self, term.term), restored: state.session)
    }
  }

  /// The stored idempotency keys.
  var keys: [StoredKey] { state.withLock { $0.session.keys.changes } }

  /// Ends the term.
  func end() { state.withLock { $0.term = 0 } }

  /// From now on, the gateways do not learn whether entries are stored.
  func stall() { state.withLock { $0.stored = $0.submitted } }

  /// Ends the effect of `stall`.
  func resume() { state.withLock { $0.stored = nil } }

  /// From now on, the gateways can never learn whether entries are stored.
  func lose() { state.withLock { $0.isLost = true } }

  private final class Term: SessionJournal {
    private let journal: SharedJournal
    private let term: UInt64

    init(_ journal: SharedJournal, _ term: UInt64) {
      self.journal = journal
      self.term = term
    }

    func submit(_ entry: JournalEntry) -> JournalTicket { submit(contentsOf: [entry]) }

    func submit(contentsOf entries: [JournalEntry]) -> JournalTicket {
      journal.state.withLock { state in
        guard state.term == term else { return JournalTicket(.max) }
        for entry in entries { _ = state.session.apply(entry) }
        state.submitted += UInt64(entries.count)
        return JournalTicket(state.submitted)
      }
    }

    func note(contentsOf entries: [JournalEntry]) -> JournalTicket { submit(contentsOf: entries) }

    func outcome(of ticket: JournalTicket) -> JournalOutcome {
      journal.state.withLock { state in
        if ticket.number == .max { return .failed }
        if ticket.number <= state.stored ?? .max { return .stored }
        return state.isLost ? .failed : .pending
      }
    }

    var storedPosition: UInt64 { 1 << 40 }
    var hasEnded: Bool { journal.state.withLock { $0.isLost || $0.term != term } }
    var showsUnstored: Bool { false }
    var isFailed: Bool { hasEnded }
    var isFull: Bool { false }
    var isOverfull: Bool { false }
    var mustPauseReading: Bool { false }

    func observe(_ observer: any JournalObserver) {}
  }
}
