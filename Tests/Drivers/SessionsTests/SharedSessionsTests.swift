import ByteStreams
import Configuration
import DemoUpstream
import Inbox
import Journal
import Logging
import Metrics
import Outbox
import Reactor
import RedisStore
import Replication
import Testing
import Threading
import UpstreamSession
import WebSocketCodec

@testable import Sessions
@testable import Upstream

/// A configured session that comes to this gateway and leaves it, with a journal in memory in the place of Redis.
@Suite struct SharedSessionsTests {
  /// The journal of a session, which gateways continue one after another.
  private final class StoredSession: Sendable {
    private struct State {
      var session = RestoredSession(epoch: 0xABC)
      var terms = ShareTerms()
      var journal: TermJournal?
    }

    private let state = Locked(State())

    var session: RestoredSession { state.withLock { $0.session } }
    var terms: ShareTerms { state.withLock { $0.terms } }

    /// Another gateway or this one begins a term.
    func open() -> OpenedJournal {
      let journal = TermJournal(self)
      return state.withLock { state in
        let term = ShareTerm(counter: UInt32(state.terms.begins.count + 1), random: 7)
        let next = state.session.nextPush
        _ = state.session.apply(
          .opened(JournalTerm(term: term.value, firstPush: next, firstDelivery: state.session.nextDelivery)))
        state.terms.append(ShareTerms.Begin(term, firstPush: next))
        state.journal = journal
        return OpenedJournal(journal: journal, restored: state.session)
      }
    }

    /// The term ends.
    func end() { state.withLock { $0.journal = nil } }

    /// Returns false if the term has ended.
    func apply(_ entries: [JournalEntry], of journal: TermJournal) -> Bool {
      state.withLock { state in
        guard state.journal === journal else { return false }
        for entry in entries { _ = state.session.apply(entry) }
        return true
      }
    }

    /// What was submitted is stored.
    func publish() { state.withLock { $0.journal }?.publish() }
  }

  private final class TermJournal: SessionJournal {
    private let store: StoredSession
    private let state = Locked<(submitted: UInt64, stored: UInt64, observer: (any JournalObserver)?)>((0, 0, nil))

    init(_ store: StoredSession) { self.store = store }

    func submit(_ entry: JournalEntry) -> JournalTicket { submit(contentsOf: [entry]) }

    func submit(contentsOf entries: [JournalEntry]) -> JournalTicket {
      let isStored = store.apply(entries, of: self)
      return state.withLock { state in
        state.submitted += 1
        if isStored { state.stored = state.submitted }
        return JournalTicket(state.submitted)
      }
    }

    func note(contentsOf entries: [JournalEntry]) -> JournalTicket { submit(contentsOf: entries) }

    func outcome(of ticket: JournalTicket) -> JournalOutcome {
      state.withLock { ticket.number <= $0.stored ? .stored : .failed }
    }

    func publish() { state.withLock { $0.observer }?.journalChanged() }

    var storedPosition: UInt64 { store.session.lastPosition }
    var showsUnstored: Bool { false }
    var isFailed: Bool { false }
    var isFull: Bool { false }
    var isOverfull: Bool { false }
    var mustPauseReading: Bool { false }

    func observe(_ observer: any JournalObserver) { state.withLock { $0.observer = observer } }
  }

  private final class Preparations: Sendable {
    let list = Locked<[Bool]>([])
  }

  /// A gateway with one session.
  private final class Fixture {
    let store = StoredSession()
    let slot: SharedSlot
    let directory: SessionDirectory
    let shared: SharedSessions
    /// Whether each restored session was here before it was prepared.
    let prepared = Preparations()
    /// nil: it responds to nothing any more.
    private var upstream: DemoUpstream?
    private let loop: EventLoop
    private let registry = MetricsRegistry()
    private var totals: [String: Double] = [:]

    init(_ change: (inout UpstreamSettings) -> Void = { _ in }) throws {
      let upstream = try DemoUpstream(tickEvery: .hours(1))
      self.upstream = upstream
      loop = try EventLoop(index: 0)
      let logger = Logger(level: .error, format: .text)
      var settings = UpstreamSettings(urls: [try WebSocketURL("ws://\(upstream.address)/")])
      change(&settings)
      slot = SharedSlot(
        SharedSlot.Plan(
          "default", try SharedSettings(settings), retention: Retention(), logger: logger,
          attemptLimiter: SharedAttemptLimiter()), metrics: registry)
      directory = SessionDirectory(
        configured: [.shared(slot)], logger: logger, registry: registry, attemptLimiter: SharedAttemptLimiter())
      shared = SharedSessions(
        [slot],
        SharedSessions.Observer(willHold: { [prepared] session in
          prepared.list.withLock { $0.append(session.isHere) }
        }))
      directory.start(on: [loop])
    }

    func end() {
      loop.stop()
      loop.join()
      stopUpstream()
    }

    func stopUpstream() { upstream.take()?.stop() }

    var session: Session {
      get throws { try #require(directory.find("default")) }
    }

    func hold() { shared.hold("default", store.open()) }

    func lose() {
      store.end()
      shared.lose("default")
    }

    /// Reports everything that is stored.
    func report() {
      shared.follow("default", .restarted(epoch: store.session.epoch, store.terms))
      shared.follow("default", .entries(store.session.pushEntries))
      shared.follow("default", .isCurrent)
    }

    func post(_ text: String, to session: Session) -> Bool {
      let receipt = session.upstream.post(
        SharedBytes(Array(text.utf8)), kind: .text, timeToLive: nil, now: ProcessInformation.monotonicTime())
      if case .queued = receipt.result { return true } else { return false }
    }

    /// Waits for a fact.
    func eventually(_ what: Comment, _ fact: () throws -> Bool) async throws {
      let deadline = ProcessInformation.monotonicTime() + .seconds(20)
      while try !fact() {
        try #require(ProcessInformation.monotonicTime() < deadline, what)
        store.publish()
        try await Task.sleep(for: .milliseconds(2))
      }
    }

    func metric(_ name: String) -> Double? { figures["\(name){session=\"default\"}"] }

    private var figures: [String: Double] {
      var page = ByteQueue()
      registry.render(into: &page)
      var result: [String: Double] = [:]
      for line in page.bytes.text().split(separator: "\n") where !line.hasPrefix("#") {
        let parts = line.split(separator: " ")
        result[String(parts[0])] = Double(parts[1])
      }
      return result
    }

    /// No counter of the session has decreased since the last call.
    func checkCounters() {
      let now = figures.filter { $0.key.contains("_total") }
      for (name, value) in totals { #expect(now[name] ?? 0 >= value, "\(name)") }
      totals = now
    }
  }

  private static func texts(_ inbox: SharedInbox, after cursor: Cursor? = nil) throws -> [String] {
    let start = try inbox.resolve(cursor.map { .cursor($0) } ?? .earliest, now: ProcessInformation.monotonicTime())
    return inbox.read(after: start, limit: 100, maxBytes: .max).messages.map {
      String(decoding: [UInt8](copying: $0.rendered.bytes), as: UTF8.self)
    }
  }

  @Test func aSessionIsHeldThenFollowedThenHeldAgain() async throws {
    let fixture = try Fixture()
    defer { fixture.end() }
    fixture.hold()
    let first = try fixture.session
    #expect(first.isHere && fixture.slot.placement.place == .here)
    #expect(fixture.prepared.list.withLock { $0 } == [false], "it is prepared before it executes requests")
    #expect(fixture.post("one", to: first))
    try await fixture.eventually("the push") { first.inbox.latest.sequence == 1 }
    fixture.checkCounters()
    let cursor = first.inbox.latest
    let waiting = ReadStart(cursor)
    #expect(!first.inbox.hasNewData(after: waiting))

    fixture.lose()
    let followed = try fixture.session
    #expect(followed !== first && !followed.isHere && !first.isHere && fixture.slot.placement.place == .nowhere)
    #expect(!fixture.post("lost", to: first) && !fixture.post("lost", to: followed))
    #expect(first.inbox.hasNewData(after: waiting) && first.inbox.hasEnded && !first.inbox.isClosed)
    #expect(first.inbox.read(after: waiting, limit: 9, maxBytes: .max).cursor == cursor)
    try await fixture.eventually("the upstream is closed") { first.upstream.hasEnded }
    #expect(try Self.texts(followed.inbox).count == 1, "what it had is still there")
    let again = try followed.inbox.resolve(.cursor(cursor), now: ProcessInformation.monotonicTime())
    #expect(!followed.inbox.hasNewData(after: again))
    fixture.checkCounters()

    fixture.hold()
    let second = try fixture.session
    #expect(second.isHere && !first.isHere && !followed.isHere, "a session that was replaced executes nothing")
    #expect(followed.inbox.hasNewData(after: again))
    #expect(fixture.post("two", to: second))
    try await fixture.eventually("the push") { second.inbox.latest.sequence == 2 }
    let news = try Self.texts(second.inbox, after: cursor)
    #expect(news.count == 1 && news[0].contains("two"))
    fixture.checkCounters()
    #expect(fixture.metric("drawbridge_pushes_total") == 2)
    #expect(fixture.metric("drawbridge_buffer_messages") == 2)
  }

  @Test func aReaderWaitsUntilTheSessionIsKnown() async throws {
    let fixture = try Fixture()
    defer { fixture.end() }
    _ = fixture.store.open()
    let unknown = try fixture.session
    let now = ProcessInformation.monotonicTime()
    let term = try #require(fixture.store.terms.last).term.value
    let cursor = Cursor(epoch: Epoch(0xABC), term: term, sequence: 0)
    let start = try unknown.inbox.resolve(.cursor(cursor), now: now)
    #expect(unknown.inbox.isUnknown && !unknown.inbox.hasNewData(after: start))
    fixture.report()
    #expect(unknown.inbox.hasNewData(after: start))
    #expect(unknown.inbox.read(after: start, limit: 9, maxBytes: .max).cursor == cursor, "it comes back with the same")
    let followed = try fixture.session
    #expect(!followed.inbox.isUnknown && followed.inbox.epoch == Epoch(0xABC) && !followed.isHere)
    #expect(!followed.inbox.hasNewData(after: try followed.inbox.resolve(.cursor(cursor), now: now)))
  }

  @Test func pushesOfAnotherGatewayAreReadInTheSameInbox() async throws {
    let fixture = try Fixture()
    defer { fixture.end() }
    let other = fixture.store.open()
    let push = { (number: UInt64) in
      var renderer = MessageRenderer()
      let id = Cursor(epoch: Epoch(0xABC), term: other.restored.terms[0].term, sequence: number)
      let message = renderer.render([0x31].span, kind: .text, topic: Span(), id: id, time: 0, arrival: .zero)
      return JournalEntry.push(
        JournalPush(
          number: number, time: ProcessInformation.wallClockMilliseconds(), layout: message.layout,
          rendered: message.rendered))
    }
    // What continues a copy that this gateway does not have is not used.
    fixture.shared.follow("default", .entries([push(7)]))
    fixture.shared.follow("default", .isCurrent)
    #expect(try fixture.session.inbox.isUnknown)
    other.journal.submit(push(1))
    fixture.report()
    let followed = try fixture.session
    let waiting = ReadStart(followed.inbox.latest)
    fixture.shared.follow("default", .entries([push(2)]))
    fixture.shared.follow("default", .isCurrent)
    #expect(try fixture.session === followed && followed.inbox.hasNewData(after: waiting))
    // Read anew: readers have the last copy until it is complete.
    fixture.shared.follow("default", .restarted(epoch: 0xABC, fixture.store.terms))
    #expect(try Self.texts(followed.inbox).count == 2)
    fixture.shared.follow("default", .entries([push(1), push(2), push(3)]))
    fixture.shared.follow("default", .isCurrent)
    #expect(try fixture.session === followed && Self.texts(followed.inbox).count == 3)
    // Everything was lost, and the session begins anew.
    fixture.shared.follow("default", .restarted(epoch: 0xDEF, fixture.store.terms))
    fixture.shared.follow("default", .isCurrent)
    #expect(try fixture.session !== followed && followed.inbox.hasEnded)
    let read = try fixture.session.inbox.read(after: waiting, limit: 9, maxBytes: .max)
    #expect(read.gap?.reasons == [.restart])
    // The copy ends when the session is held, and what continues it is not used after that.
    fixture.hold()
    fixture.shared.follow("default", .entries([push(2)]))
    fixture.lose()
    fixture.shared.follow("default", .entries([push(2)]))
    fixture.shared.follow("default", .continued(after: 0, fixture.store.terms))
    #expect(try Self.texts(fixture.session.inbox).count == 1)
  }

  @Test func theSocketOfALostSessionIsClosedWithoutAHandshake() async throws {
    let fixture = try Fixture { $0.session.limits.closing = .minutes(5) }
    defer { fixture.end() }
    fixture.hold()
    let session = try fixture.session
    try await fixture.eventually("it is connected") { session.upstream.isReady }
    fixture.stopUpstream()
    fixture.lose()
    try await fixture.eventually("the connection has ended") { session.upstream.hasEnded }
  }

  @Test func aShutdownDoesNotWaitForASessionOfAnotherGateway() async throws {
    let fixture = try Fixture()
    defer { fixture.end() }
    fixture.directory.shutDown(flushWithin: .seconds(1)) {}
    #expect(fixture.directory.haveEnded)
  }
}
