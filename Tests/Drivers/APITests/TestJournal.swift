import Inbox
import Journal
import Threading

/// A journal that stores entries when the test calls `store`.
final class TestJournal: SessionJournal {
  private struct State {
    var submitted: UInt64 = 0
    var stored: UInt64 = 0
    var failed: UInt64 = 0
    var hasEnded = false
    var observer: (any JournalObserver)?
  }

  private let state = Locked(State())

  var opened: OpenedJournal {
    var restored = RestoredSession(epoch: 0xABC)
    _ = restored.apply(.opened(JournalTerm(term: 1, firstPush: 1, firstDelivery: 1)))
    return OpenedJournal(journal: self, restored: restored)
  }

  func submit(_ entry: JournalEntry) -> JournalTicket { submit(contentsOf: [entry]) }

  func submit(contentsOf entries: [JournalEntry]) -> JournalTicket {
    state.withLock { state in
      state.submitted += UInt64(entries.count)
      return JournalTicket(state.submitted)
    }
  }

  func note(contentsOf entries: [JournalEntry]) -> JournalTicket { submit(contentsOf: entries) }

  /// Stores everything that was submitted.
  func store() {
    let observer = state.withLock { state in
      state.stored = state.submitted
      return state.observer
    }
    observer?.journalChanged()
  }

  /// Fails everything that was submitted and is not stored.
  func fail() {
    let observer = state.withLock { state in
      state.failed = state.submitted
      return state.observer
    }
    observer?.journalChanged()
  }

  /// Ends the journal, because this gateway has lost the session. Submitted entries may be stored, but this gateway
  /// never learns whether they are.
  func end() {
    state.withLock { $0.hasEnded = true }
    fail()
  }

  var hasEnded: Bool { state.withLock { $0.hasEnded } }

  func outcome(of ticket: JournalTicket) -> JournalOutcome {
    state.withLock { state in
      if ticket.number <= state.stored { return .stored }
      return ticket.number <= state.failed ? .failed : .pending
    }
  }

  var storedPosition: UInt64 { state.withLock { $0.stored == $0.submitted ? 1 << 40 : 0 } }
  var isFailed: Bool { false }
  var showsUnstored: Bool { false }
  var isFull: Bool { false }
  var isOverfull: Bool { false }
  var mustPauseReading: Bool { false }

  func observe(_ observer: any JournalObserver) { state.withLock { $0.observer = observer } }
}
