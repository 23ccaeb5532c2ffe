import ByteStreams
import Inbox
import JournalCoding
import TestSupport

@testable import Consumers

/// A table with one consumer and a push log of its own.
struct ConsumerFixture {
  static let name = "workers"

  var log: PushLog
  var table = ConsumerTable()
  var stored = StoredConsumers()
  var clockError: Int64 = 0
  var generator: SeededGenerator
  var now = MonotonicTime(nanoseconds: 1_000_000_000)

  init(retention: Retention = Retention(), seed: UInt64 = 1) {
    log = PushLog(epoch: Epoch(0xABC), retention: retention)
    generator = SeededGenerator(seed: seed)
  }

  /// Returns a fixture whose work-sharing consumer starts at the earliest push.
  init(
    retention: Retention = Retention(), isStored: Bool = false, _ change: (inout ConsumerSettings) -> Void
  ) throws {
    self.init(retention: retention)
    if isStored { startStoring() }
    var settings = ConsumerSettings()
    settings.isWorkSharing = true
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

  /// Leases the next pushes. Returns their numbers.
  mutating func take(_ limit: Int = 100) throws -> [UInt64] { try receive(limit).messages.map(\.lease.number) }

  /// Leases the next push.
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

  /// The wall clock, which is set back by `clockError`.
  var clock: JournalClock {
    JournalClock(now: now, wallClock: 1_700_000_000_000 + Int64(now.nanoseconds / 1_000_000) - clockError)
  }

  /// From now on, changes of consumers are stored.
  mutating func startStoring() {
    table = ConsumerTable(restoring: StoredConsumers(), from: log, at: clock)
    stored = StoredConsumers()
  }

  /// Stores the changes since the last call.
  mutating func store() throws {
    for (name, change) in table.takeChanges(at: clock) {
      var coder = JournalCoder(appendingTo: ByteQueue())
      change.write(&coder)
      let bytes = coder.finish()
      var reader = JournalCoder(reading: bytes.bytes)
      guard let read = ConsumerChange(&reader), read == change, reader.rest == 0, stored.apply(read, to: name) else {
        throw NotStored(change: change)
      }
    }
    try checkStored()
  }

  /// Checks that the stored changes lead to the state of the table.
  private func checkStored() throws {
    guard Set(stored.byName.keys) == Set(table.consumers.keys) else { throw NotLive(part: "names") }
    for (name, consumer) in table.consumers {
      guard let stored = stored.byName[name] else { continue }
      func check<Value: Equatable>(_ part: String, _ left: Value, _ right: Value) throws {
        if left != right { throw NotLive(part: "\(part): \(left), \(right)") }
      }
      func bits(_ record: LeaseQueue.Record) -> UInt64? {
        if case .leased(let bits) = record.state { bits } else { nil }
      }
      var settings = consumer.settings
      settings.isWebhook = false
      try check("settings", stored.settings, settings)
      guard let queue = consumer.queue else { continue }
      let handedOut = queue.records.filter { $0.value.attempts > 0 && $0.value.state != .missing }
      try check("attempts", stored.pushes.mapValues(\.attempts), handedOut.mapValues(\.attempts))
      try check("leases", stored.pushes.mapValues(\.bits), handedOut.mapValues(bits))
      try check("dead", stored.dead.map(\.push.number), queue.dead.letters.map(\.message.sequence))
      try check("retried", Set(stored.retried.map(\.number)), Set(queue.copies.keys))
      // After a restart, the stored position may still be before pushes that the queue has passed.
      let (first, last) = (stored.progress.position >> 1, queue.position.sequence)
      try check("position", first <= last && (first..<last).allSatisfy { stored.settled.contains($0 + 1) }, true)
      try check("frontier", stored.progress.frontier, queue.frontier.position)
      try check("reasons", stored.progress.reasons, queue.gapReasons)
      try check("missed", stored.progress.missedTotal, queue.missedTotal)
    }
  }

  struct NotLive: Error { let part: String }

  /// Continues with the stored state, like another process.
  ///
  /// - Parameter isCompacted: whether the store has replaced the changes by fewer changes that lead to the same state.
  mutating func restart(isCompacted: Bool = false) throws {
    if isCompacted {
      let before = stored
      stored = StoredConsumers()
      for (name, change) in before.changes where !stored.apply(change, to: name) { throw NotStored(change: change) }
      guard stored == before else { throw NotStored(change: nil) }
    }
    table = ConsumerTable(restoring: stored, from: log, at: clock)
  }

  struct NotStored: Error { let change: ConsumerChange? }

  mutating func wait(_ span: TimeSpan) { now = now + span }

  struct NothingToReceive: Error {}
}
