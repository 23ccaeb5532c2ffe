import ByteStreams
import Inbox
import TestSupport

@testable import Consumers

/// A table with one consumer and a push log of its own.
struct ConsumerFixture {
  static let name = "workers"

  var log: PushLog
  var table = ConsumerTable()
  var generator: SeededGenerator
  var now = MonotonicTime(nanoseconds: 1_000_000_000)

  init(retention: Retention = Retention(), seed: UInt64 = 1) {
    log = PushLog(epoch: Epoch(0xABC), retention: retention)
    generator = SeededGenerator(seed: seed)
  }

  /// With a shared consumer that starts at the earliest push.
  init(retention: Retention = Retention(), _ change: (inout ConsumerSettings) -> Void) throws {
    self.init(retention: retention)
    var settings = ConsumerSettings()
    settings.isShared = true
    change(&settings)
    _ = try put(settings)
  }

  mutating func put(_ settings: ConsumerSettings, as name: String = name) throws -> Bool {
    try table.put(name, settings, start: log.start, now: now)
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

  mutating func wait(_ span: TimeSpan) { now = now + span }

  struct NothingToReceive: Error {}
}
