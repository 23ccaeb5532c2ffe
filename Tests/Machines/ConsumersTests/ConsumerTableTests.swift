import ByteStreams
import Inbox
import Testing

@testable import Consumers

/// The consumers by name, and consumers with one reader.
@Suite struct ConsumerTableTests {
  private let name = ConsumerFixture.name

  /// Returns the result for a reader that begins to receive now.
  private func read(
    _ fixture: inout ConsumerFixture, acknowledging cursor: Cursor? = nil
  ) throws -> (turn: ReceiveTurn, result: ReadResult) {
    let turn = try fixture.table.beginReceive(
      name, acknowledging: cursor.map { ReadStart($0) }, now: fixture.now, fixture.log)
    let start = try #require(turn.start)
    return (turn, fixture.log.read(after: start, limit: 100, maxBytes: 1 << 20, matching: turn.filter))
  }

  private func exclusive(retention: Retention = Retention()) throws -> ConsumerFixture {
    var fixture = ConsumerFixture(retention: retention)
    #expect(try fixture.put(ConsumerSettings()))
    return fixture
  }

  @Test func aReaderGetsEverythingAgainUntilItAcknowledges() throws {
    var fixture = try exclusive()
    fixture.push("1", "2")
    for _ in 0..<3 { #expect(try read(&fixture).result.messages.map(\.sequence) == [1, 2]) }
    let cursor = try read(&fixture).result.cursor
    fixture.push("3")
    #expect(try read(&fixture, acknowledging: cursor).result.messages.map(\.sequence) == [3])
    #expect(try read(&fixture).result.messages.map(\.sequence) == [3])
    #expect(try fixture.status.lag == 1 && fixture.status.position == cursor)
  }

  @Test func theConfigurationTakesAConsumerWithItsState() throws {
    var fixture = try ConsumerFixture { $0.order = .topic }
    fixture.push("1", "2", topic: "a")
    _ = try fixture.settle(.acknowledge, try fixture.lease())
    var settings = ConsumerSettings()
    settings.isWorkSharing = true
    settings.order = .all
    fixture.take(settings)
    #expect(try fixture.status.settings == settings && fixture.status.lag == 1)
    fixture.push("3", topic: "b")
    fixture.push("4", topic: "c")
    #expect(try fixture.take() == [2])
  }

  @Test(arguments: [false, true])
  func aChangeOfTheOrderAppliesToExaminedPushes(isRestarted: Bool) throws {
    var fixture = try ConsumerFixture(isStored: true) { _ in }
    var settings = try fixture.status.settings
    fixture.push("1", "2", "3", topic: "a")
    let (first, second) = (try fixture.lease(), try fixture.lease())
    #expect(try fixture.settle(.release(.seconds(5)), first, second) == [.released, .released])
    settings.order = .topic
    fixture.take(settings)
    fixture.push("4", topic: "a")
    if isRestarted {
      try fixture.store()
      try fixture.restart()
    }
    #expect(try fixture.take().isEmpty)
    fixture.wait(.seconds(5))
    for number in UInt64(1)...4 {
      let lease = try fixture.lease()
      #expect(lease.number == number && lease.attempt == (number < 3 ? 2 : 1))
      #expect(try fixture.take().isEmpty, "one after another")
      _ = try fixture.settle(.acknowledge, lease)
    }
  }

  @Test func leasedPushesStayLeasedWhenTheOrderChanges() throws {
    var fixture = try ConsumerFixture { _ in }
    fixture.push("1", "2", "3")
    let (first, second) = (try fixture.lease(), try fixture.lease())
    var settings = try fixture.status.settings
    settings.order = .all
    fixture.take(settings)
    #expect(try fixture.take() == [3])
    #expect(try fixture.settle(.acknowledge, second, first) == [.acknowledged, .acknowledged])
    #expect(try fixture.status.position.sequence == 2)
  }

  @Test func aPushThatIsLeasedWhenTheOrderEndsDelaysNoOtherPush() throws {
    var fixture = try ConsumerFixture { $0.order = .topic }
    fixture.push("1", "2", topic: "a")
    let first = try fixture.lease()
    var settings = try fixture.status.settings
    settings.order = nil
    fixture.take(settings)
    #expect(try fixture.take() == [2])
    #expect(try fixture.settle(.acknowledge, first) == [.acknowledged])
    #expect(try fixture.take().isEmpty, "the push is leased to one worker")
  }

  @Test func afterARestartOnlyTheFirstOfTheLeasesOfAKeyIsValid() throws {
    var fixture = try ConsumerFixture(isStored: true) { _ in }
    var settings = try fixture.status.settings
    fixture.push("1", "2", "3", topic: "a")
    let (first, second) = (try fixture.lease(), try fixture.lease())
    settings.order = .topic
    fixture.take(settings)
    try fixture.store()
    try fixture.restart()
    #expect(try fixture.settle(.acknowledge, second) == [.leaseLost])
    #expect(try fixture.take().isEmpty)
    #expect(try fixture.settle(.acknowledge, first) == [.acknowledged])
    #expect(try fixture.take() == [2])
  }

  @Test func aReceiveOfAClientEndsWhenTheConfigurationTakesTheConsumer() throws {
    var fixture = try ConsumerFixture { _ in }
    let turn = try fixture.table.beginReceive(ConsumerFixture.name, now: fixture.now, fixture.log)
    fixture.table.hold(turn, of: ConsumerFixture.name, 1, now: fixture.now)
    fixture.take(try fixture.status.settings, isNewWorker: true)
    #expect(throws: ConsumerRefusal.unknown) { try fixture.table.check(turn, of: ConsumerFixture.name) }
    fixture.wait(.hours(24 * 8))
    _ = fixture.table.expire(now: fixture.now, fixture.log)
    #expect(fixture.table.count == 0, "the receive is no longer held")
  }

  @Test func aDeadLetterThatIsRetriedIsAsOldAsTheRetry() throws {
    var fixture = try ConsumerFixture { _ in }
    fixture.push("1")
    _ = try fixture.settle(.reject, try fixture.lease())
    fixture.wait(.hours(30))
    _ = try fixture.table.retryDeadLetters(of: ConsumerFixture.name, now: fixture.now)
    #expect(try fixture.receive().messages.first?.message.arrival == fixture.now)
  }

  @Test func aNewWorkerOfTheConfigurationWaitsForNoLeaseOfThePreviousWorker() throws {
    var fixture = try ConsumerFixture { $0.order = .all }
    fixture.push("1", "2")
    let lease = try fixture.lease()
    let settings = try fixture.status.settings
    fixture.take(settings)
    #expect(try fixture.take().isEmpty, "the same worker continues")
    fixture.take(settings, isNewWorker: true)
    let again = try fixture.lease()
    #expect(again.number == 1 && again.attempt == 1)
    #expect(try fixture.settle(.acknowledge, lease) == [.leaseLost])
  }

  @Test func theConfigurationReplacesAReaderAtItsPosition() throws {
    var fixture = try exclusive()
    fixture.push("1", "2", "3")
    let (_, result) = try read(&fixture)
    _ = try read(&fixture, acknowledging: Cursor(epoch: result.cursor.epoch, sequence: 1))
    var settings = ConsumerSettings()
    settings.isWorkSharing = true
    fixture.take(settings)
    #expect(try fixture.take() == [2, 3])
  }

  @Test func thereIsAlwaysRoomForAConsumerOfTheConfiguration() throws {
    var fixture = try ConsumerFixture { _ in }
    for number in 1..<ConsumerTable.maximumConsumers { _ = try fixture.put(ConsumerSettings(), as: "c\(number)") }
    #expect(throws: ConsumerRefusal.tooMany) { try fixture.put(ConsumerSettings(), as: "d") }
    fixture.take(ConsumerSettings(), as: "d")
    #expect(fixture.table.count == ConsumerTable.maximumConsumers + 1)
  }

  @Test func oneClientCannotUseUpTheConsumers() throws {
    var fixture = ConsumerFixture()
    func put(_ name: String, by client: UInt64) throws -> Bool {
      try fixture.table.put(name, ConsumerSettings(), start: fixture.log.start, by: client, now: fixture.now)
    }
    for number in 0..<ConsumerTable.maximumConsumers { #expect(try put("a\(number)", by: 1)) }
    #expect(throws: ConsumerRefusal.tooMany) { try put("b", by: 1) }
    #expect(throws: ConsumerRefusal.tooMany) { try put("b", by: 0) }
    for number in 0..<15 { #expect(try put("c\(number)", by: 2)) }
    #expect(throws: ConsumerRefusal.tooMany) { try put("d", by: 2) }
    #expect(try put("d", by: 3) && !put("a1", by: 1))
    let isRemoved = fixture.table.remove("c0")
    #expect(try isRemoved && put("e", by: 2))
  }

  @Test func theMemoryOfConsumersIsTheSumOfTheirParts() throws {
    var fixture = ConsumerFixture()
    #expect(fixture.table.memory == 0)
    var settings = ConsumerSettings()
    for number in 0..<16 { _ = settings.add(topic: Array("\(number)".utf8) + Array(repeating: 0x61, count: 200)) }
    #expect(try fixture.put(settings, as: "a"))
    let memory = fixture.table.memory
    #expect(memory > 16 * 2 * 200 && memory < 16 * 2 * 300 + 1_024)
    #expect(throws: ConsumerRefusal.outOfMemory) {
      try fixture.table.put("b", settings, start: fixture.log.start, now: fixture.now) { $0 < 1_000 }
    }
    #expect(try !fixture.put(ConsumerSettings(), as: "a"))
    #expect(fixture.table.memory < memory - 16 * 2 * 200)
    #expect(throws: ConsumerRefusal.outOfMemory) {
      try fixture.table.put("a", settings, start: fixture.log.start, now: fixture.now) { $0 < 1_000 }
    }
    let isRemoved = fixture.table.remove("a")
    #expect(isRemoved && fixture.table.memory == 0)
  }

  @Test func anEarlierAcknowledgementChangesNothing() throws {
    var fixture = try exclusive()
    fixture.push("1", "2")
    let cursor = try read(&fixture).result.cursor
    _ = try read(&fixture, acknowledging: cursor)
    #expect(try read(&fixture, acknowledging: fixture.log.start).result.messages.isEmpty)
  }

  @Test func aCursorOfAnotherEpochIsAGap() throws {
    var fixture = try exclusive(retention: Retention(count: 1))
    fixture.push("1")
    let foreign = Cursor(epoch: Epoch(0xDEF), sequence: 50)
    let (_, result) = try read(&fixture, acknowledging: foreign)
    #expect(result.gap == Gap(missed: nil, reasons: [.restart]) && result.messages.map(\.sequence) == [1])
    fixture.push("2")
    #expect(
      try read(&fixture, acknowledging: foreign).result.gap == Gap(missed: 1, reasons: [.restart, .retention]))
    #expect(try read(&fixture).result.gap == Gap(missed: 1, reasons: [.retention]))
  }

  @Test func aLaterReceiveSupersedesTheEarlierReceive() throws {
    var fixture = try exclusive()
    let first = try read(&fixture).turn
    try fixture.table.check(first, of: name)
    let second = try read(&fixture).turn
    #expect(throws: ConsumerRefusal.superseded) { try fixture.table.check(first, of: name) }
    try fixture.table.check(second, of: name)
  }

  @Test func aReceiveOfARemovedConsumerEndsEvenIfItsNameIsUsedAgain() throws {
    var fixture = try exclusive()
    let turn = try read(&fixture).turn
    _ = fixture.table.remove(name)
    #expect(throws: ConsumerRefusal.unknown) { try fixture.table.check(turn, of: name) }
    #expect(try fixture.put(ConsumerSettings()))
    #expect(throws: ConsumerRefusal.unknown) { try fixture.table.check(turn, of: name) }
    let wasThere = fixture.table.remove("other")
    #expect(!wasThere)
  }

  @Test func puttingAConsumerAgainConfirmsItAndAppliesAllowedChanges() throws {
    var fixture = try ConsumerFixture { _ in }
    var settings = ConsumerSettings()
    settings.isWorkSharing = true
    settings.visibility = .seconds(1)
    #expect(try !fixture.put(settings))
    fixture.push("1")
    #expect(try fixture.receive().messages[0].expires == fixture.now + .seconds(1))
    var other = settings
    other.order = .topic
    #expect(throws: ConsumerRefusal.differs(settings)) { try fixture.put(other) }
    #expect(throws: ConsumerRefusal.differs(settings)) { try fixture.put(ConsumerSettings()) }
  }

  @Test func aSessionHasAtMostAThousandConsumers() throws {
    var fixture = ConsumerFixture()
    for index in 0..<1_000 { #expect(try fixture.put(ConsumerSettings(), as: "c\(index)")) }
    #expect(throws: ConsumerRefusal.tooMany) { try fixture.put(ConsumerSettings(), as: "other") }
    #expect(try !fixture.put(ConsumerSettings(), as: "c7"), "an existing consumer does not count again")
    #expect(fixture.table.statuses(fixture.log).count == 1_000)
    _ = fixture.table.remove("c8")
    #expect(try fixture.put(ConsumerSettings(), as: "other"))
  }

  @Test func eachKindOfConsumerRefusesTheRequestsOfTheOther() throws {
    var fixture = try exclusive()
    #expect(throws: ConsumerRefusal.isExclusive) { try fixture.settle(.acknowledge) }
    #expect(throws: ConsumerRefusal.isExclusive) { try fixture.receive() }
    #expect(throws: ConsumerRefusal.isExclusive) { try fixture.table.deadLetters(of: name) }
    #expect(throws: ConsumerRefusal.isExclusive) { try fixture.table.retryDeadLetters(of: name, now: fixture.now) }
    var shared = try ConsumerFixture { _ in }
    #expect(throws: ConsumerRefusal.isWorkSharing) { try read(&shared, acknowledging: shared.log.start) }
    #expect(throws: ConsumerRefusal.unknown) { try shared.table.status(of: "other", shared.log) }
    #expect(throws: ConsumerRefusal.unknown) {
      try shared.table.settle([], of: "other", now: shared.now, shared.log)
    }
  }

  @Test func theDeadLettersOfAllConsumersHaveALimit() throws {
    var fixture = ConsumerFixture()
    fixture.push(String(repeating: "x", count: 15 << 20))
    var settings = ConsumerSettings()
    settings.isWorkSharing = true
    for index in 0..<20 {
      let name = "c\(index)"
      _ = try fixture.put(settings, as: name)
      let turn = try fixture.table.beginReceive(name, now: fixture.now, fixture.log)
      let batch = try fixture.table.receive(
        turn, of: name, limit: 1, maxBytes: 1, now: fixture.now, from: fixture.log, using: &fixture.generator)
      _ = try fixture.table.settle(
        [(batch.messages[0].lease, .reject)], of: name, now: fixture.now, fixture.log)
    }
    let statuses = fixture.table.statuses(fixture.log)
    #expect(statuses.reduce(0) { $0 + $1.deadBytes } <= ConsumerTable.maximumDeadBytes)
    #expect(statuses.reduce(0) { $0 + $1.deadLetters } == 17)
    #expect(statuses.reduce(0) { $0 + $1.droppedDeadLetters } == 3)
    // The totals for metrics do not decrease when consumers and dead letters are removed.
    for index in 0..<10 { _ = fixture.table.remove("c\(index)") }
    _ = try fixture.table.removeDeadLetters(of: "c15", now: fixture.now)
    let summary = fixture.table.summary(fixture.log)
    #expect(summary.addedDeadLetters == 20 && summary.droppedDeadLetters == 3 && summary.deadLetters < 10)
  }

  @Test func theRecordsOfAllConsumersHaveALimit() throws {
    var fixture = ConsumerFixture()
    fixture.table = ConsumerTable(maximumRecords: 500)
    for _ in 0..<400 { fixture.push("1", topic: "a") }
    var settings = ConsumerSettings()
    settings.isWorkSharing = true
    settings.order = .topic
    var leases: [Lease] = []
    func receive(_ name: String, _ fixture: inout ConsumerFixture) throws -> LeasedBatch {
      let turn = try fixture.table.beginReceive(name, now: fixture.now, fixture.log)
      return try fixture.table.receive(
        turn, of: name, limit: 10, maxBytes: 1 << 20, now: fixture.now, from: fixture.log, using: &fixture.generator)
    }
    for name in ["a", "b", "c"] {
      _ = try fixture.put(settings, as: name)
      leases += try receive(name, &fixture).messages.map(\.lease)
    }
    #expect(leases.map(\.number) == [1, 1, 1], "each consumer has a part that other consumers cannot take")
    #expect(fixture.table.recordCount == 400 + 100 + LeaseQueue.guaranteedRecords)
    let blocked = try receive("c", &fixture)
    #expect(blocked.isBlocked && !blocked.more)
    _ = try fixture.table.settle([(leases[2], .acknowledge)], of: "c", now: fixture.now, fixture.log)
    #expect(try receive("c", &fixture).messages.map(\.lease.number) == [2])
    _ = fixture.table.remove("a")
    _ = try receive("c", &fixture)
    #expect(fixture.table.recordCount == 100 + 399)
    for name in ["b", "c"] { _ = fixture.table.remove(name) }
    #expect(fixture.table.recordCount == 0)
    #expect(ConsumerTable.maximumRecords == 1_000_000)
  }

  @Test func aReaderAcknowledgesAGapWithoutMessagesByTheCursorOfTheResponse() throws {
    var fixture = try exclusive()
    fixture.push("1")
    let first = try read(&fixture).result.cursor
    fixture.log.recordUpstreamGap()
    for _ in 0..<2 {
      let (turn, result) = try read(&fixture, acknowledging: first)
      #expect(result.messages.isEmpty && result.gap == Gap(missed: nil, reasons: [.upstream]))
      #expect(turn.start?.precedes(fixture.log.last) == true, "until it is acknowledged")
    }
    let cursor = try read(&fixture).result.cursor
    let (turn, result) = try read(&fixture, acknowledging: cursor)
    #expect(result.gap == nil && turn.start?.precedes(fixture.log.last) == false)
    #expect(try fixture.status.missed == nil, "only a work-sharing consumer counts missed pushes")
  }

  @Test func aConsumerWhoseReceiveEndsIsIdleAfterItsTime() throws {
    var fixture = try ConsumerFixture { $0.idle = .seconds(10) }
    let turn = try fixture.table.beginReceive(name, now: fixture.now, fixture.log)
    var end = fixture.table.hold(turn, of: name, 1, now: fixture.now)
    #expect(end == .distantFuture)
    end = fixture.table.hold(turn, of: name, 1, now: fixture.now)
    fixture.wait(.seconds(5))
    end = fixture.table.hold(turn, of: name, -1, now: fixture.now)
    #expect(end == .distantFuture, "another receive is held")
    end = fixture.table.hold(turn, of: name, -1, now: fixture.now)
    #expect(end == fixture.now + .seconds(10))
  }

  @Test func anUnusedConsumerIsRemoved() throws {
    var fixture = try ConsumerFixture { $0.idle = .minutes(1) }
    let next = fixture.table.nextDeadline()
    #expect(next == fixture.now + .minutes(1))
    fixture.wait(.seconds(59))
    _ = try fixture.receive()
    fixture.wait(.seconds(59))
    _ = fixture.table.expire(now: fixture.now, fixture.log)
    #expect(fixture.table.count == 1)
    fixture.wait(.seconds(1))
    _ = fixture.table.expire(now: fixture.now, fixture.log)
    let last = fixture.table.nextDeadline()
    #expect(fixture.table.count == 0 && last == nil)
  }

  @Test func aConsumerWithAHeldReceiveOrALeaseIsInUse() throws {
    var fixture = try ConsumerFixture { $0.idle = .seconds(10) }
    let turn = try fixture.table.beginReceive(name, now: fixture.now, fixture.log)
    fixture.table.hold(turn, of: name, 1, now: fixture.now)
    fixture.wait(.seconds(11))
    _ = fixture.table.expire(now: fixture.now, fixture.log)
    #expect(fixture.table.count == 1)
    fixture.table.hold(turn, of: name, -1, now: fixture.now)
    fixture.push("1")
    _ = try fixture.lease()
    fixture.wait(.seconds(29))
    _ = fixture.table.expire(now: fixture.now, fixture.log)
    #expect(fixture.table.count == 1)
    fixture.wait(.seconds(1))
    _ = fixture.table.expire(now: fixture.now, fixture.log)
    #expect(fixture.table.count == 0)
  }
}
