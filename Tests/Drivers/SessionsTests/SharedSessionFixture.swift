import ByteStreams
import DemoUpstream
import Host
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

/// The journal of a session, which one gateway after another continues.
final class StoredSession: Sendable {
  private struct State {
    var session = RestoredSession(epoch: 0xABC)
    var terms = HolderTerms()
    var journal: TermJournal?
  }

  private let state = Locked(State())

  var session: RestoredSession { state.withLock { $0.session } }
  var terms: HolderTerms { state.withLock { $0.terms } }

  /// Begins a term, for this gateway or another.
  func open() -> OpenedJournal {
    let journal = TermJournal(self)
    return state.withLock { state in
      let term = HolderTerm(counter: UInt32(state.terms.begins.count + 1), random: 7)
      let next = state.session.log.nextPush
      _ = state.session.apply(
        .opened(JournalTerm(term: term.value, firstPush: next, firstDelivery: state.session.outbox.nextDelivery)))
      state.terms.append(HolderTerms.Begin(term, firstPush: next))
      state.journal = journal
      return OpenedJournal(journal: journal, restored: state.session)
    }
  }

  /// Ends the term.
  func end() { state.withLock { $0.journal = nil } }

  /// Returns false if the term has ended.
  func apply(_ entries: [JournalEntry], of journal: TermJournal) -> Bool {
    state.withLock { state in
      guard state.journal === journal else { return false }
      for entry in entries { _ = state.session.apply(entry) }
      return true
    }
  }

  /// Marks the submitted entries as stored.
  func publish() { state.withLock { $0.journal }?.publish() }
}

final class TermJournal: SessionJournal {
  private let store: StoredSession
  private struct State {
    var submitted: UInt64 = 0
    var stored: UInt64 = 0
    weak var observer: (any JournalObserver)?
  }

  private let state = Locked(State())

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

  var storedPosition: UInt64 { store.session.log.lastPosition }
  var showsUnstored: Bool { false }
  var isFailed: Bool { false }
  var isFull: Bool { false }
  var isOverfull: Bool { false }
  var mustPauseReading: Bool { false }

  func observe(_ observer: any JournalObserver) { state.withLock { $0.observer = observer } }
}

final class Preparations: Sendable {
  let list = Locked<[Bool]>([])
}

/// A gateway with one session.
final class SharedSessionFixture {
  let store = StoredSession()
  let slot: SharedSlot
  let directory: SessionDirectory
  let shared: SharedSessions
  /// Whether each restored session was local before it was prepared.
  let prepared = Preparations()
  /// nil after the test has stopped the upstream.
  private var upstream: DemoUpstream?
  private let loop: EventLoop
  private let registry = MetricsRegistry()
  private var totals: [String: Double] = [:]

  /// - Parameter upstream: the address of an upstream; nil for an upstream that echoes.
  init(
    upstream: SocketAddress? = nil, webhooks: [WebhookPlan] = [],
    _ change: (inout UpstreamSettings) -> Void = { _ in }
  ) throws {
    let own = try DemoUpstream(tickEvery: .hours(1))
    self.upstream = own
    loop = try EventLoop(index: 0)
    let logger = Logger(level: .error, format: .text)
    var settings = UpstreamSettings(urls: [try WebSocketURL("ws://\(upstream ?? own.address)/")])
    change(&settings)
    slot = SharedSlot(
      SharedSlot.Plan(
        "default", try PreparedSettings(settings), retention: Retention(), logger: logger,
        attemptLimiter: ConcurrentAttemptLimiter(), webhooks: webhooks), metrics: registry)
    directory = SessionDirectory(
      configured: [.shared(slot)], logger: logger, registry: registry, attemptLimiter: ConcurrentAttemptLimiter())
    shared = SharedSessions(
      [slot], willBeLocal: { [prepared] session in prepared.list.withLock { $0.append(session.isHere) } })
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

  func becomeHolder() { shared.becomeHolder(of: "default", store.open()) }

  func lose() {
    store.end()
    shared.lose("default")
  }

  /// Reports all stored entries.
  func report() {
    shared.follow("default", .restarted(epoch: store.session.epoch, store.terms))
    shared.follow("default", .entries(store.session.log.changes))
    shared.follow("default", .isCurrent)
  }

  func post(_ text: String, to session: Session) -> Bool {
    let receipt = session.upstream.post(
      PostedMessages(.one(ByteString(Array(text.utf8))), kind: .text, timeToLive: nil),
      now: ProcessInformation.monotonicTime())
    if case .queued = receipt.result { return true } else { return false }
  }

  /// Appends a push as if the upstream had sent it, with or without a connection.
  func append(_ text: String, to session: Session) {
    session.inbox.append(
      Array(text.utf8).span, kind: .text, time: ProcessInformation.wallClockMilliseconds(),
      now: ProcessInformation.monotonicTime())
  }

  /// Waits until `fact` is true.
  ///
  /// Each round marks entries as stored. Other tests may delay this test beyond any deadline, so a number of rounds
  /// must pass, too.
  func eventually(_ what: Comment, _ fact: () throws -> Bool) async throws {
    let deadline = ProcessInformation.monotonicTime() + .seconds(60)
    var rounds = 0
    while true {
      store.publish()
      if try fact() { return }
      rounds += 1
      try #require(rounds < 10_000 || ProcessInformation.monotonicTime() < deadline, what)
      try await Task.sleep(for: .milliseconds(2))
    }
  }

  func metric(_ name: String, _ labels: String = "") -> Double? { figures["\(name){session=\"default\"\(labels)}"] }

  /// The number of ended attempts of all webhooks.
  var webhookAttempts: Double {
    figures.filter { $0.key.hasPrefix("drawbridge_webhook_attempts_total") }.values.reduce(0, +)
  }

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

  /// Checks that no counter of the session has decreased since the last call.
  func checkCounters() {
    let now = figures.filter { $0.key.contains("_total") }
    for (name, value) in totals { #expect(now[name] ?? 0 >= value, "\(name)") }
    totals = now
  }
}
