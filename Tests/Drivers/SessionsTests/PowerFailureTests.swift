import ByteStreams
import CFaults
import DemoUpstream
import Foundation
import Host
import Inbox
import Journal
import Logging
import LoopbackSupport
import Metrics
import Outbox
import Reactor
import TestSupport
import Testing
import Upstream
import UpstreamSession
import WebSocketCodec

@testable import Sessions
@testable import Store

/// Complete sessions, with a store whose disk loses data that was not synchronised, and an upstream that echoes every
/// message.
@Suite struct PowerFailureTests {
  private static let resolver = Resolver()

  /// A session from the start of a process to its end.
  private final class Life {
    let session: Session
    let restored: RestoredSession
    /// The JSON of the pushes that clients have read so far, by id, and the ids in order.
    private(set) var pushes: [String: String] = [:]
    private(set) var pushIDs: [String] = []
    private var position: ReadStart?
    private let store: Store
    private let loop: EventLoop

    init(_ path: String, _ sync: StoreSettings.Sync, _ environment: StoreFile.Environment, _ upstream: DemoUpstream)
      throws
    {
      let logger = Logger(level: .error, format: .text)
      var settings = StoreSettings()
      (settings.engine, settings.path, settings.sync) = (.sqlite, path, sync)
      let store = try Store.start(settings, environment, logger: logger, metrics: StoreMetrics(MetricsRegistry()))
      let opened = try #require(store.open(["default"])["default"])
      restored = opened.restored
      self.store = store
      var upstreamSettings = UpstreamSettings(urls: [try WebSocketURL("ws://\(upstream.address)/")])
      upstreamSettings.session.backoff.strategy = .fixed(.milliseconds(5))
      upstreamSettings.session.backoff.quickReconnect = .milliseconds(5)
      upstreamSettings.outbox.barrierDelay = .milliseconds(1)
      upstreamSettings.outbox.barrierInterval = .milliseconds(1)
      session = Session(
        "default", try PreparedSettings(upstreamSettings), retention: PowerFailureTests.everything, logger: logger,
        metrics: MetricsRegistry(), attemptLimiter: ConcurrentAttemptLimiter(), opened: opened)
      loop = try EventLoop(index: 0)
      session.start(on: loop, resolver: PowerFailureTests.resolver)
    }

    /// Posts a message that does not expire. Returns its number and its ticket.
    func post(_ text: String) throws -> (number: UInt64, ticket: JournalTicket) {
      let now = ProcessInformation.monotonicTime()
      let receipt = session.upstream.post(
        PostedMessages(.one(ByteString(Array(text.utf8))), kind: .text, timeToLive: nil), now: now)
      guard case .queued(let number, _) = receipt.result else { throw Problem("\(text): \(receipt.result)") }
      return (number, try #require(receipt.ticket))
    }

    /// Reads all pushes that clients can read now.
    func readPushes() throws {
      while true {
        let start = try position ?? session.inbox.resolve(.earliest, now: ProcessInformation.monotonicTime())
        let read = session.inbox.read(after: start, limit: 1_000, maxBytes: .max)
        for message in read.messages {
          let text = String(decoding: [UInt8](copying: message.rendered.bytes), as: UTF8.self)
          let id = String(text.split(separator: "\"")[3])
          pushIDs.append(id)
          pushes[id] = text
        }
        position = ReadStart(read.cursor)
        guard read.hasContent else { return }
      }
    }

    func end() async throws {
      session.shutDown(flushWithin: .seconds(30)) {}
      try await until("the session has ended") { session.upstream.hasEnded }
      loop.stop()
      loop.join()
      guard store.close(within: .seconds(30)) else { throw Problem("the store does not close") }
    }
  }

  private struct Problem: Error, CustomStringConvertible {
    let description: String
    init(_ description: String) { self.description = description }
  }

  /// The retention is so large that no push is dropped, however long a slow machine takes.
  private static let everything = Retention(count: 1_000_000, bytes: 1 << 30)

  /// The acknowledgements and pushes that clients had received when the disk had executed this many operations.
  private struct Knowledge {
    var operations: Int64 = 0
    /// The numbers of the acknowledged messages.
    var acknowledged: [UInt64] = []
    /// The number of pushes that they had read.
    var pushes = 0
  }

  /// Posts messages and breaks connections, until the disk has synchronised several times.
  private func use(_ life: Life, _ faults: OpaquePointer, seed: UInt64) async throws -> [Knowledge] {
    var random = SeededGenerator(seed: seed)
    var knowledge = Knowledge()
    var history: [Knowledge] = []
    var lastSteps = 15
    while lastSteps > 0 {
      let posted = try (0..<Int.random(in: 1...4, using: &random)).map {
        try life.post("message \(knowledge.acknowledged.count + $0)")
      }
      if Int.random(in: 0..<6, using: &random) == 0 { life.session.upstream.close() }
      try await until("the messages are stored") {
        posted.allSatisfy { life.session.upstream.outcome(of: $0.ticket) == .stored }
      }
      knowledge.acknowledged += posted.map(\.number)
      try life.readPushes()
      knowledge.pushes = life.pushes.count
      // Read last, so that everything above was stored by then.
      knowledge.operations = faults_recorded(faults)
      history.append(knowledge)
      life.session.upstream.open()
      // Sets the pace of the load, so that commits have one message or several.
      try await Task.sleep(for: .milliseconds(Int.random(in: 0...20, using: &random)))
      let synchronised = faults_synchronised(faults, faults_recorded(faults), "-wal")
      if history.count > 20, synchronised > history[10].operations { lastSteps -= 1 }
    }
    return history
  }

  /// The number of seeds (`make powerloss`), and of power failures for each seed.
  private static let seeds =
    ProcessInfo.processInfo.environment["DRAWBRIDGE_POWER_FAILURES"].flatMap { UInt64($0) } ?? 1
  private static var cuts: Int { seeds == 1 ? 4 : 10 }

  @Test(arguments: [StoreSettings.Sync.always, .interval], 1...seeds)
  func entriesThatASessionHasAcknowledgedSurviveAPowerFailure(sync: StoreSettings.Sync, seed: UInt64) async throws {
    let upstream = try DemoUpstream(tickEvery: .milliseconds(7))
    defer { upstream.stop() }
    let folder = try Folder()
    var environment = StoreFile.Environment()
    environment.fileSystem = "power-\(sync)-\(seed)"
    let faults = try #require(faults_register("power-\(sync)-\(seed)"))
    faults_record(faults)
    let life = try Life(folder.file, sync, environment, upstream)
    let history = try await use(life, faults, seed: seed)
    let end = faults_recorded(faults)
    try life.readPushes()
    let all = life.pushes

    var random = SeededGenerator(seed: seed)
    for _ in 0..<Self.cuts {
      let cut = Int64.random(in: history[0].operations...end, using: &random)
      let loss = Bool.random(using: &random) ? 0 : random.next()
      let lost = try Folder()
      #expect(faults_replay(faults, cut, loss, folder.path, lost.path) == 0)
      var rebooted = StoreFile.Environment()
      rebooted.boot = "after the power failure"
      let next = try Life(lost.file, sync, rebooted, upstream)
      // With `always`, everything is durable. With `interval`, only acknowledgements before the last synchronisation
      // are.
      let durable = sync == .always ? cut : faults_synchronised(faults, cut, "-wal")
      let known = history.last { $0.operations <= durable } ?? Knowledge()
      let comment: Comment = "cut at \(cut) of \(end), loss \(loss)"
      let gap: GapMarks = sync == .always ? .upstream : [.upstream, .store]
      #expect(next.restored.log.gaps.last?.marks == gap, comment)
      try await until("everything has a final state") { !next.session.upstream.hasWork }
      try next.readPushes()
      let pushes = next.pushes
      for id in life.pushIDs[..<known.pushes] { #expect(pushes[id] == all[id], comment) }
      // No number has two contents, in any term.
      for (id, content) in pushes { #expect(all[id] == nil || all[id] == content, comment) }
      for number in known.acknowledged {
        let state = next.session.upstream.deliveryState(number)
        #expect(state == .confirmed || state == .unknown, "\(number) is \(String(describing: state)), \(comment)")
      }
      // A message that has arrived was not sent again.
      let echoes = pushes.values.compactMap { $0.split(separator: "message ").dropFirst().first }
      #expect(Set(echoes).count == echoes.count, comment)
      try await next.end()
    }
    try await life.end()
  }

  /// A folder that is removed at the end.
  private final class Folder {
    let path = NSTemporaryDirectory() + "drawbridge-power-\(UUID().uuidString)"
    var file: String { path + "/store.db" }
    init() throws { try FileManager.default.createDirectory(atPath: path, withIntermediateDirectories: true) }
    deinit { try? FileManager.default.removeItem(atPath: path) }
  }
}
