import ByteStreams
import Consumers
import Host
import Inbox
import Logging
import LoopbackSupport
import Metrics
import Outbox
import Profiles
import Reactor
import Testing
import TestSupport
import WebSocketCodec

@testable import Sessions
@testable import Upstream

/// Created sessions on loops of their own. Their upstream refuses connections.
@Suite struct CreatedSessionsTests {
  private struct Fixture {
    let directory: SessionDirectory
    let registry = MetricsRegistry()
    let loops: [EventLoop]
    let settings: PreparedSettings

    init(
      total: Int = 100, perOwner: Int = 10, idle: TimeSpan = .minutes(10), descriptors: Int = .max, loops: Int = 2,
      budget: RetentionBudget = RetentionBudget()
    ) throws {
      var limits = CreatedSessionSettings()
      limits.total = total
      limits.perOwner = perOwner
      limits.idleAfter = idle
      settings = try PreparedSettings(UpstreamSettings(urls: [try WebSocketURL("ws://127.0.0.1:1/")]))
      directory = SessionDirectory(
        [], creating: CreatedSessions.Limits(limits, descriptors: descriptors),
        logger: Logger(level: .error, format: .json), registry: registry, attemptLimiter: ConcurrentAttemptLimiter(),
        budget: budget)
      self.loops = try (0..<loops).map { try EventLoop(index: $0) }
      directory.start(on: self.loops)
    }

    func create(_ name: String, for owner: String = "a", retention: Retention = Retention()) throws -> Session {
      let creation = SessionCreation(
        profile: "p", variables: [:], owner: owner, time: ProcessInformation.monotonicTime(),
        idleLimit: directory.created.idleLimit)
      return try directory.created.create(name, creation, settings, retention: retention)
    }

    func refusal(_ name: String, for owner: String = "a") -> CreationRefusal? {
      do { _ = try create(name, for: owner) } catch { return error as? CreationRefusal }
      return nil
    }

    func end() {
      for loop in loops { loop.stop() }
      for loop in loops { loop.join() }
    }

    var metrics: String {
      var page = ByteQueue()
      registry.render(into: &page)
      return page.bytes.text()
    }
  }

  private static let push: [UInt8] = [1]

  @Test func aSessionIsFoundUntilItIsClosed() async throws {
    let fixture = try Fixture()
    defer { fixture.end() }
    let names = ["b", "a", String(repeating: "x", count: 64)]
    let sessions = try names.map { try fixture.create($0) }
    for (name, session) in zip(names, sessions) { #expect(fixture.directory.find(name) === session) }
    #expect(fixture.directory.find("c") == nil)
    #expect(fixture.directory.created.close(sessions[0], code: 3000))
    #expect(!fixture.directory.created.close(sessions[0]), "only once")
    #expect(fixture.directory.find("b") == nil)
    let again = try fixture.create("b")
    #expect(again.inbox.epoch != sessions[0].inbox.epoch)
    #expect(again.deliveryTerms.prefix != sessions[0].deliveryTerms.prefix)
    #expect(fixture.directory.find("b") === again)
  }

  @Test func aListIsInTheOrderOfNamesAndContinues() throws {
    let fixture = try Fixture(perOwner: 100)
    defer { fixture.end() }
    for name in ["d", "a", "c", "b"] { _ = try fixture.create(name, for: name < "c" ? "x" : "y") }
    let created = fixture.directory.created
    #expect(created.list(after: nil, limit: 3) { _ in true }.map(\.name) == ["a", "b", "c"])
    #expect(created.list(after: "b", limit: 3) { _ in true }.map(\.name) == ["c", "d"])
    #expect(created.list(after: "bb", limit: 1) { _ in true }.map(\.name) == ["c"])
    #expect(created.list(after: nil, limit: 9) { $0.creation?.owner == "y" }.map(\.name) == ["c", "d"])
  }

  @Test func limitsHoldUntilConnectionsHaveEnded() async throws {
    let fixture = try Fixture(total: 4, perOwner: 2)
    defer { fixture.end() }
    let first = try fixture.create("1")
    _ = try fixture.create("2")
    guard case .tooManyOfOwner(2)? = fixture.refusal("3") else { Issue.record("the owner has no limit"); return }
    for name in ["3", "4"] { _ = try fixture.create(name, for: "b") }
    guard case .tooMany(4)? = fixture.refusal("5", for: "c") else { Issue.record("there is no limit"); return }
    guard case .exists? = fixture.refusal("1", for: "c") else { Issue.record("a name is taken twice"); return }
    fixture.directory.created.close(first)
    try await until { fixture.refusal("6") == nil }
  }

  @Test func sessionsWithoutDescriptorsAreRefused() throws {
    let fixture = try Fixture(descriptors: 1)
    defer { fixture.end() }
    _ = try fixture.create("1")
    guard case .noDescriptors(1)? = fixture.refusal("2") else { Issue.record("there is no limit"); return }
  }

  @Test func noSessionIsCreatedDuringAShutdown() throws {
    let fixture = try Fixture()
    defer { fixture.end() }
    fixture.directory.shutDown(flushWithin: .zero) {}
    guard case .notRunning? = fixture.refusal("1") else { Issue.record("it was created"); return }
  }

  @Test func allHeldRequestsEndWithTheSession() async throws {
    let fixture = try Fixture()
    defer { fixture.end() }
    let session = try fixture.create("1")
    let now = ProcessInformation.monotonicTime()
    let receipt = session.upstream.post(
      PostedMessages(.one(ByteString([1])), kind: .binary, timeToLive: nil), now: now)
    guard case .queued(let sequence, _) = receipt.result else { Issue.record("it is not queued"); return }
    _ = try session.consumers.put("c", ConsumerSettings(), start: session.inbox.latest, now: now)
    var turn = try session.consumers.beginReceive("c", acknowledging: nil, now: now)
    let start = try session.inbox.resolve(.latest, now: now)
    #expect(!session.inbox.hasNewData(after: start) && !session.consumers.hasNews(&turn, of: "c"))
    fixture.directory.created.close(session)
    #expect(session.inbox.hasNewData(after: start) && session.inbox.isClosed)
    #expect(session.consumers.hasNews(&turn, of: "c"))
    #expect(throws: ConsumerRefusal.unknown) { try session.consumers.status(of: "c") }
    #expect(throws: ConsumerRefusal.unknown) {
      try session.consumers.put("d", ConsumerSettings(), start: session.inbox.latest, now: now)
    }
    #expect(session.upstream.deliveryState(sequence) == .rejected)
    let late = session.upstream.post(PostedMessages(.one(ByteString([1])), kind: .binary, timeToLive: nil), now: now)
    #expect(late.result == .closed)
    session.inbox.append(Self.push.span, kind: .binary, time: 0, now: now)
    #expect(session.inbox.summary.count == 0)
    try await until { session.upstream.hasEnded }
  }

  /// A running loop keeps its timers, signals and tasks alive. None of them may refer to a closed session.
  @Test func aClosedSessionLeavesNoState() async throws {
    let fixture = try Fixture()
    defer { fixture.end() }
    weak var session: Session?
    weak var inbox: ConcurrentInbox?
    do {
      let created = try fixture.create("1")
      (session, inbox) = (created, created.inbox)
      let now = ProcessInformation.monotonicTime()
      _ = try created.consumers.put("c", ConsumerSettings(), start: created.inbox.latest, now: now)
    }
    try await until { session?.upstream.snapshot().lastFailure != nil }
    if let session { fixture.directory.created.close(session) }
    try await until { session == nil && inbox == nil }
  }

  @Test func anIdleSessionIsClosedAndAUsedOneIsNot() async throws {
    let fixture = try Fixture(idle: .milliseconds(400))
    defer { fixture.end() }
    let (idle, used) = (try fixture.create("idle"), try fixture.create("used"))
    used.inbox.beginStream()
    try await until { fixture.directory.find("idle") == nil }
    #expect(idle.inbox.isClosed)
    #expect(fixture.directory.find("used") === used)
    used.inbox.endStream()
    try await until { fixture.directory.find("used") == nil }
    #expect(fixture.metrics.contains("drawbridge_sessions_closed_total{reason=\"idle\"} 2\n"))
  }

  @Test func sessionsAreSpreadOverTheLoops() throws {
    let fixture = try Fixture(loops: 3)
    defer { fixture.end() }
    let sessions = try (0..<6).map { try fixture.create("s\($0)") }
    #expect(Set(sessions.map(\.loop)) == [0, 1, 2])
    #expect(sessions.filter { $0.loop == 0 }.count == 2)
  }

  @Test func metricsAreSumsThatNeverDecrease() async throws {
    let fixture = try Fixture()
    defer { fixture.end() }
    let sessions = try ["a", "b"].map { try fixture.create($0) }
    let now = ProcessInformation.monotonicTime()
    for session in sessions { session.inbox.append(Self.push.span, kind: .binary, time: 0, now: now) }
    let pushes = "drawbridge_pushes_total{session=\"(created)\"} 2\n"
    #expect(fixture.metrics.contains(pushes))
    #expect(fixture.metrics.contains("drawbridge_created_sessions 2\n"))
    #expect(fixture.metrics.contains("drawbridge_buffer_messages{session=\"(created)\"} 2\n"))
    let series = fixture.metrics.split(separator: "\n").count
    fixture.directory.created.close(sessions[0])
    #expect(fixture.metrics.contains(pushes))
    try await until { sessions[0].upstream.hasEnded }
    #expect(fixture.metrics.contains(pushes))
    #expect(fixture.metrics.contains("drawbridge_created_sessions 1\n"))
    #expect(fixture.metrics.contains("drawbridge_buffer_messages{session=\"(created)\"} 1\n"))
    for index in 0..<5 { _ = try fixture.create("more\(index)") }
    #expect(fixture.metrics.split(separator: "\n").count == series, "names are no labels")
  }

  @Test func theLargestSessionsLosePushesAboveTheTotal() async throws {
    let fixture = try Fixture(budget: RetentionBudget(limit: 1 << 20))
    defer { fixture.end() }
    let (large, small) = (try fixture.create("large"), try fixture.create("small"))
    let payload = [UInt8](repeating: 0x61, count: 10_000)
    let now = ProcessInformation.monotonicTime()
    for _ in 0..<10 { small.inbox.append(payload.span, kind: .text, time: 0, now: now) }
    for _ in 0..<200 { large.inbox.append(payload.span, kind: .text, time: 0, now: now) }
    try await until { large.inbox.summary.bytes + small.inbox.summary.bytes <= 1 << 20 }
    #expect(small.inbox.summary.count == 10)
    let read = large.inbox.read(
      after: try large.inbox.resolve(.earliest, now: now), limit: 1, maxBytes: 1)
    #expect(read.messages.first?.sequence ?? 0 > 1)
  }

  /// Clients decide how many sessions there are, so the total must also limit many sessions with few pushes.
  @Test func theTotalAppliesToSessionsWithOnePushEach() async throws {
    let budget = RetentionBudget(limit: 1 << 20)
    let fixture = try Fixture(budget: budget)
    defer { fixture.end() }
    let payload = [UInt8](repeating: 0x61, count: 400_000)
    let now = ProcessInformation.monotonicTime()
    let sessions = try (0..<5).map { try fixture.create("s\($0)") }
    let start = try sessions[0].inbox.resolve(.latest, now: now)
    for session in sessions { session.inbox.append(payload.span, kind: .text, time: 0, now: now) }
    try await until { budget.bytes <= 1 << 20 }
    let read = sessions[0].inbox.read(after: start, limit: 1, maxBytes: 1)
    #expect(read.gap == Gap(missed: 1, reasons: [.retention]) && read.messages.isEmpty)
    for session in sessions { fixture.directory.created.close(session) }
    #expect(budget.bytes == 0)
  }

  /// A dead letter keeps its push, even after the inbox has dropped the push.
  @Test func deadLettersOfCreatedSessionsCountTowardsTheTotal() async throws {
    let budget = RetentionBudget(limit: 1 << 20)
    let fixture = try Fixture(budget: budget)
    defer { fixture.end() }
    // The payload is so small that a trim, which cuts all sessions to one level, leaves pushes in each session.
    let payload = [UInt8](repeating: 0x61, count: 50_000)
    let now = ProcessInformation.monotonicTime()
    var settings = ConsumerSettings()
    settings.isWorkSharing = true
    let sessions = try (0..<4).map { try fixture.create("s\($0)", retention: Retention(count: 1)) }
    for session in sessions {
      _ = try session.consumers.put("c", settings, start: session.inbox.latest, now: now)
      for _ in 0..<12 {
        session.inbox.append(payload.span, kind: .text, time: 0, now: now)
        let turn = try session.consumers.beginReceive("c", acknowledging: nil, now: now)
        let batch = try session.consumers.lease(turn, of: "c", limit: 1, maxBytes: 1, now: now)
        // The total may have dropped the push already.
        guard let lease = batch.messages.first?.lease else { continue }
        #expect(try session.consumers.settle([(lease, .reject)], of: "c", now: now) == [.dead])
      }
    }
    #expect(sessions.contains { $0.consumers.deadBytes > 0 })
    try await until {
      let kept = sessions.reduce(0) { $0 + $1.inbox.summary.bytes + $1.consumers.deadBytes }
      return kept <= 1 << 20 && kept == budget.bytes
    }
    #expect(try sessions[0].consumers.removeDeadLetters(of: "c", now: now) >= 0)
    for session in sessions { fixture.directory.created.close(session) }
    #expect(budget.bytes == 0)
  }

  /// The upstream of a configured session may push before the directory starts.
  @Test func aTrimThatWasRequestedBeforeTheStartBlocksNoOther() async throws {
    let budget = RetentionBudget(limit: 1_000)
    budget.add(2_000)
    budget.add(-2_000)
    let fixture = try Fixture(budget: budget)
    defer { fixture.end() }
    try await until { !budget.isTrimRequested }
  }

  @Test func aClosedPartMeansThatTheSessionIsClosed() async throws {
    let fixture = try Fixture(loops: 1)
    defer { fixture.end() }
    let now = ProcessInformation.monotonicTime()
    for index in 0..<200 {
      let session = try fixture.create("s\(index)")
      _ = try session.consumers.put("c", ConsumerSettings(), start: session.inbox.latest, now: now)
      let observer = Task.detached {
        while (try? session.consumers.status(of: "c")) != nil { await Task.yield() }
        return session.inbox.isClosed
      }
      await Task.yield()
      fixture.directory.created.close(session)
      #expect(await observer.value)
      // Until its connection has ended, the session counts towards the limit of its owner.
      try await until { session.upstream.hasEnded }
    }
  }
}

@Suite struct RetentionBudgetTests {
  private static let payload = [UInt8](repeating: 0x61, count: 10_000)

  private func inbox(_ budget: RetentionBudget) -> ConcurrentInbox {
    var generator = SystemRandomNumberGenerator()
    return ConcurrentInbox(epoch: Epoch(using: &generator), retention: Retention(), budget: budget)
  }

  @Test func countsPushesThatAReloadDrops() {
    let budget = RetentionBudget()
    let inbox = inbox(budget)
    let now = ProcessInformation.monotonicTime()
    for _ in 0..<10 { inbox.append(Self.payload.span, kind: .text, time: 0, now: now) }
    #expect(budget.bytes == inbox.summary.bytes)
    let revision = inbox.revision
    #expect(!inbox.change(Retention(count: 10), now: now) && inbox.revision == revision, "nothing was dropped")
    #expect(inbox.change(Retention(count: 2), now: now) && inbox.revision != revision)
    #expect(budget.bytes == inbox.summary.bytes && inbox.summary.count == 2)
    #expect(inbox.trim(toBytes: 0, keepsNewest: true) && inbox.summary.count == 1)
    #expect(inbox.trim(toBytes: 0, keepsNewest: false) && inbox.summary.count == 0)
    #expect(budget.bytes == 0)
  }

  @Test func aTrimThatFreesTooLittleIsNotRepeatedForEachPush() {
    let budget = RetentionBudget(limit: 6_400)
    budget.add(6_401)
    #expect(budget.isTrimRequested)
    budget.trimBegins()
    budget.trimEnds()
    budget.add(99)
    #expect(!budget.isTrimRequested)
    budget.add(2)
    #expect(budget.isTrimRequested, "as soon as it may free something")
    budget.trimBegins()
    budget.trimEnds()
    budget.add(-1_000)
    budget.add(899)
    #expect(budget.isTrimRequested, "the limit is valid again once it was kept")
  }

  @Test(
    arguments: [
      ([10, 20, 30], 60, nil), ([], 0, nil), ([100], 64, 63), ([10, 100, 100], 128, 58), ([50, 50, 50], 128, 42),
      ([1, 2, 200], 128, 123),
    ] as [([Int], Int, Int?)])
  func reducesTheLargestSessionsToOneSize(sizes: [Int], limit: Int, level: Int?) {
    #expect(RetentionBudget.level(of: sizes, limit: limit) == level)
    guard let level else { return }
    #expect(sizes.reduce(0) { $0 + min($1, level) } <= limit)
  }

  /// A reload can drop a million pushes. The bytes that it frees must not count any more.
  @Test func countsPushesThatOtherLimitsDrop() throws {
    let budget = RetentionBudget()
    var generator = SystemRandomNumberGenerator()
    let inbox = ConcurrentInbox(
      epoch: Epoch(using: &generator), retention: Retention(count: 10_000, bytes: 1 << 30, age: .hours(1)),
      budget: budget)
    let payload = [UInt8](repeating: 0x61, count: 100)
    let now = ProcessInformation.monotonicTime()
    for _ in 0..<5000 { inbox.append(payload.span, kind: .text, time: 0, now: now) }
    #expect(budget.bytes == inbox.summary.bytes)
    #expect(inbox.change(Retention(count: 10, bytes: 1 << 30, age: .hours(1)), now: now))
    #expect(inbox.summary.count == 10)
    #expect(budget.bytes == inbox.summary.bytes)
    #expect(!inbox.change(Retention(count: 10, bytes: 1 << 30, age: .hours(1)), now: now))
    inbox.close()
    #expect(budget.bytes == 0)
  }
}
