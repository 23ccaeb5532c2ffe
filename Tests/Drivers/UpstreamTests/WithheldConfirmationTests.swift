import ByteStreams
import JSONCodec
import Journal
import Outbox
import Testing
import Threading
import UpstreamProtocol
import UpstreamSession

@testable import Upstream

/// A sent message may change the stored subscriptions. Clients see the confirmation of the message only when the change
/// is stored.
@Suite(.serialized) struct WithheldConfirmationTests {
  /// Runs a test with a session that is ready.
  private func run(
    confirms: Bool = true, _ body: (SessionFixture, SubscriptionJournal) async throws -> Void
  ) async throws {
    let (upstream, journal) = (try ScriptedUpstream(.listen), SubscriptionJournal())
    let match = try #require(JSONPointer("/op"))
    let key = try #require(JSONPointer("/ch"))
    let session = try SessionFixture(upstream.url, opened: journal.opened) { settings in
      settings.conventions.subscriptions.add.match = Matcher([.value(match, "sub")])
      settings.conventions.subscriptions.add.key = key
      settings.conventions.subscriptions.remove.match = Matcher([.value(match, "unsub")])
      settings.conventions.subscriptions.remove.key = key
      settings.outbox.barrierMessages = 1
      settings.outbox.confirms = confirms
    }
    journal.handle = session.handle
    // This journal does not report that messages are stored, so no message may be posted before the session is ready.
    try await session.until("it is ready") { session.handle.isReady }
    try await body(session, journal)
    try await session.finish()
    upstream.stop()
  }

  @Test(arguments: [#"{"op":"sub","ch":"a"}"#, #"{"op":"unsub","ch":"kept"}"#])
  func aSubscriptionIsConfirmedWhenItIsStored(text: String) async throws {
    try await run { session, journal in
      session.post(#"{"op":"sub","ch":"kept"}"#)
      try await session.until("the first is sent") { journal.waiting == 1 }
      journal.store()
      session.post(text)
      session.post("other")
      // The pong for a later message confirms both messages.
      try await session.until("the other is confirmed") { session.handle.deliveryState(3) == .confirmed }
      #expect(session.handle.deliveryState(1) == .confirmed)
      #expect(session.handle.deliveryState(2) == .written && !session.handle.isSettled(2))
      #expect(journal.waiting == 1)
      journal.store()
      #expect(session.handle.deliveryState(2) == .confirmed)
    }
  }

  /// Without pings, nothing confirms the message.
  @Test func aSubscriptionThatIsFinallyWrittenIsSettledWhenItIsStored() async throws {
    try await run(confirms: false) { session, journal in
      session.post(#"{"op":"sub","ch":"a"}"#)
      session.post("other")
      try await session.until("the other is written") { session.handle.isSettled(2) }
      #expect(session.handle.deliveryState(1) == .written && !session.handle.isSettled(1))
      journal.store()
      #expect(session.handle.isSettled(1))
    }
  }

  @Test func confirmationsAreWithheldForRememberedMessagesOnly() async throws {
    try await run { session, journal in
      let ticket = journal.submit(.memory(.unsubscribed(key: [])))
      let limit = session.handle.rememberedDeliveries
      for number in 1...UInt64(limit) + 2 { session.handle.withholdConfirmation(of: number, until: ticket) }
      session.handle.guarded.withLock { guarded in
        #expect(guarded.withheldConfirmations.count == limit)
        #expect(guarded.withheldConfirmations.capacity == limit)
        #expect(!guarded.outbox.isConfirmationWithheld(of: 2) && guarded.outbox.isConfirmationWithheld(of: 3))
      }
    }
  }

  /// A session whose store has failed still sends messages that are not stored (`TTL: 0`). When the store works again,
  /// it reports the entries that it has stored.
  @Test(arguments: [false, true])
  func aSubscriptionIsNotConfirmedWhileTheStoreHasFailed(isSentBefore: Bool) async throws {
    try await run { session, journal in
      if !isSentBefore { journal.fail(true) }
      for text in [#"{"op":"sub","ch":"a"}"#, "other"] { session.post(text, ttl: isSentBefore ? .seconds(30) : .zero) }
      try await session.until("the other is confirmed") { session.handle.deliveryState(2) == .confirmed }
      journal.fail(true)
      #expect(session.handle.deliveryState(1) == .written)
      journal.fail(false)
      journal.store()
      #expect(session.handle.deliveryState(1) == .confirmed)
    }
  }
}

/// Stores every entry at once, except for changes of the subscriptions and the entries after them.
private final class SubscriptionJournal: SessionJournal {
  private struct State {
    var submitted: UInt64 = 0
    var subscriptions: [UInt64] = []
    var hasFailed = false
    weak var handle: SessionHandle?
  }

  private let state = Locked(State())

  var opened: OpenedJournal {
    var restored = RestoredSession(epoch: 0xABC)
    _ = restored.apply(.opened(JournalTerm(term: 1, firstPush: 1, firstDelivery: 1)))
    return OpenedJournal(journal: self, restored: restored)
  }

  var handle: SessionHandle? {
    get { state.withLock { $0.handle } }
    set { state.withLock { $0.handle = newValue } }
  }

  /// Number of changes that are not stored yet.
  var waiting: Int { state.withLock { $0.subscriptions.count } }

  func store() {
    state.withLock { $0.subscriptions = [] }
    handle?.journalChanged()
  }

  func fail(_ hasFailed: Bool) {
    state.withLock { $0.hasFailed = hasFailed }
    handle?.journalChanged()
  }

  func submit(_ entry: JournalEntry) -> JournalTicket { submit(contentsOf: [entry]) }

  func submit(contentsOf entries: [JournalEntry]) -> JournalTicket {
    state.withLock { state in
      for entry in entries {
        state.submitted += 1
        switch entry {
        case .memory(.subscribed), .memory(.unsubscribed): state.subscriptions.append(state.submitted)
        default: break
        }
      }
      return JournalTicket(state.submitted)
    }
  }

  func note(contentsOf entries: [JournalEntry]) -> JournalTicket { submit(contentsOf: entries) }

  func outcome(of ticket: JournalTicket) -> JournalOutcome {
    state.withLock { state in
      guard state.subscriptions.contains(ticket.number) else { return .stored }
      return state.hasFailed ? .failed : .pending
    }
  }

  var storedPosition: UInt64 { 1 << 40 }
  var isFailed: Bool { state.withLock { $0.hasFailed } }
  var showsUnstored: Bool { false }
  var isFull: Bool { false }
  var isOverfull: Bool { false }
  var mustPauseReading: Bool { false }

  func observe(_ observer: any JournalObserver) {}
}
