import Inbox
import Journal
import Threading

/// A journal that several gateways can continue, one after another, as they do with one in Redis. Everything is stored at once.
final class SharedJournal: SessionJournal {
  private struct State {
    var session = RestoredSession(epoch: 0xABC)
    var submitted: UInt64 = 0
    /// The last entry that is stored; nil: the last one.
    var stored: UInt64?
    var isLost = false
  }

  private let state = Locked(State())

  /// Begins another term.
  func open() -> OpenedJournal {
    let restored = state.withLock { state in
      let term = JournalTerm(
        term: (state.session.terms.last?.term ?? 0) + 1, firstPush: state.session.nextPush,
        firstDelivery: state.session.nextDelivery)
      _ = state.session.apply(.opened(term))
      return state.session
    }
    return OpenedJournal(journal: self, restored: restored)
  }

  func submit(_ entry: JournalEntry) -> JournalTicket { submit(contentsOf: [entry]) }

  func submit(contentsOf entries: [JournalEntry]) -> JournalTicket {
    state.withLock { state in
      for entry in entries { _ = state.session.apply(entry) }
      state.submitted += UInt64(entries.count)
      return JournalTicket(state.submitted)
    }
  }

  func note(contentsOf entries: [JournalEntry]) -> JournalTicket { submit(contentsOf: entries) }

  func outcome(of ticket: JournalTicket) -> JournalOutcome {
    state.withLock { state in
      if ticket.number <= state.stored ?? .max { return .stored }
      return state.isLost ? .failed : .pending
    }
  }

  /// From now on, it is not known whether entries are stored.
  func stall() { state.withLock { $0.stored = $0.submitted } }

  /// Nor will it ever be.
  func lose() { state.withLock { $0.isLost = true } }

  var storedPosition: UInt64 { 1 << 40 }
  var showsUnstored: Bool { false }
  var isFailed: Bool { false }
  var isFull: Bool { false }
  var isOverfull: Bool { false }
  var mustPauseReading: Bool { false }

  func observe(_ observer: any JournalObserver) {}
}
