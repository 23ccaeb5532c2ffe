import ByteStreams
import Inbox
import Journal
import JournalCoding
import TestSupport

@testable import Consumers

/// A table with one consumer and a push log of its own.
struct ConsumerFixture {
  static let name = "workers"

  var log: PushLog
  var table = ConsumerTable()
  var stored = RestoredSession(epoch: 0)
  var clockError: Int64 = 0
  var generator: SeededGenerator
  var now = MonotonicTime(nanoseconds: 1_000_000_000)

  init(retention: Retention = Retention(), seed: UInt64 = 1) {
    log = PushLog(epoch: Epoch(0xABC), retention: retention)
    generator = SeededGenerator(seed: seed)
  }

  /// With a shared consumer that starts at the earliest push.
  init(
    retention: Retention = Retention(), isStored: Bool = false, _ change: (inout ConsumerSettings) -> Void
  ) throws {
    self.init(retention: retention)
    if isStored { startStoring() }
    var settings = ConsumerSettings()
    settings.isShared = true
    change(&settings)
    _ = try put(settings)
  }

  mutating func put(_ settings: ConsumerSettings, as name: String = name) throws -> Bool {
    try table.put(name, settings, start: log.start, now: now)
  }

  mutating func take(_ settings: ConsumerSettings, as name: String = name, isNewWorker: Bool = false) {
    table.take(name, settings, start: log.latest, isNewWorker: isNewWorker, now: now, log)
  }

  mutating func push(_ texts: String..., topic: String = "") {
    for text in texts {
      var renderer = MessageRenderer()
      var dropped: [RetainedMessage] = []
      let message = renderer.render(
        Array(text.utf8).span, kind: .text, topic: Array(topic.utf8).span, id: log.nextID, time: 0, arrival: now)
      log.append(message, dropping: &dropped)
    }
  }

  mutating func receive(_ limit: Int = 100, maxBytes: Int = 1 << 20) throws -> LeasedBatch {
    let turn = try table.beginReceive(Self.name, now: now, log)
    return try table.receive(
      turn, of: Self.name, limit: limit, maxBytes: maxBytes, now: now, from: log, using: &generator)
  }

  /// The numbers of the next pushes.
  mutating func take(_ limit: Int = 100) throws -> [UInt64] { try receive(limit).messages.map(\.lease.number) }

  /// The lease of the next push.
  mutating func lease() throws -> Lease {
    guard let lease = try receive(1).messages.first?.lease else { throw NothingToReceive() }
    return lease
  }

  mutating func settle(_ settlement: Settlement, _ leases: Lease...) throws -> [SettlementOutcome] {
    try table.settle(leases.map { ($0, settlement) }, of: Self.name, now: now, log)
  }

  mutating func hasNews() throws -> Bool {
    let turn = try table.beginReceive(Self.name, now: now, log)
    return table.hasNews(turn, of: Self.name, log)
  }

  var status: ConsumerStatus {
    get throws { try table.status(of: Self.name, log) }
  }

  // MARK: Storing

  /// The clock of the wall, which is set back by `clockError`.
  var clock: JournalClock {
    JournalClock(now: now, wallClock: 1_700_000_000_000 + Int64(now.nanoseconds / 1_000_000) - clockError)
  }

  /// From now on, consumers are stored.
  mutating func startStoring() {
    table = ConsumerTable(restoring: [:], from: log, at: clock)
    stored = RestoredSession(epoch: log.epoch.value)
  }

  /// Stores what has changed.
  mutating func store() throws {
    for entry in table.takeEntries(at: clock) {
      var bytes = ByteQueue()
      entry.append(to: &bytes)
      guard JournalEntry.read(bytes.bytes, { $0 == entry && stored.apply($0) }) else { throw NotStored(entry: entry) }
    }
  }

  /// Continues with what is stored, as another process would.
  ///
  /// - Parameter isCompacted: whether the store has replaced the entries by the state.
  mutating func restart(isCompacted: Bool = false) throws {
    if isCompacted {
      let before = stored
      stored = RestoredSession(epoch: before.epoch)
      for entry in before.stateEntries where !stored.apply(entry) { throw NotStored(entry: entry) }
      guard stored.consumers == before.consumers else { throw NotStored(entry: .closed) }
    }
    table = ConsumerTable(restoring: stored.consumers, from: log, at: clock)
  }

  struct NotStored: Error { let entry: JournalEntry }

  mutating func wait(_ span: TimeSpan) { now = now + span }

  struct NothingToReceive: Error {}
}
