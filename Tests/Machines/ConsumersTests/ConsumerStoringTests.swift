import ByteStreams
import Inbox
import Testing

@testable import Consumers

/// The state of consumers that survives the process.
@Suite struct ConsumerStoringTests {
  @Test func settingsSurvive() throws {
    var fixture = try ConsumerFixture(isStored: true) { settings in
      settings.visibility = .seconds(7)
      settings.maximumDeliveries = 9
      settings.order = ConsumerOrder("/a")
      settings.idle = .hours(1)
      _ = settings.add(topic: Array("x.*".utf8))
    }
    let before = try fixture.status.settings
    try fixture.store()
    try fixture.restart()
    #expect(try fixture.status.settings == before)
  }

  @Test func consumersTakenByTheConfigurationSurvive() throws {
    var fixture = try ConsumerFixture(isStored: true) { $0.order = .topic }
    var settings = ConsumerSettings()
    settings.isWorkSharing = true
    settings.order = .all
    fixture.take(settings)
    fixture.take(settings, as: "new")
    fixture.push("a", "b")
    _ = try fixture.settle(.acknowledge, try fixture.lease())
    _ = try fixture.lease()
    try fixture.store()
    try fixture.restart()
    #expect(try fixture.status.settings == settings)
    #expect(try fixture.table.status(of: "new", fixture.log).lag == 2)
    settings.isWebhook = true
    // The lease of the previous process does not prevent the delivery, and does not count as an attempt.
    fixture.take(settings, isNewWorker: true)
    try fixture.store()
    try fixture.restart()
    let again = try fixture.lease()
    #expect(again.number == 2 && again.attempt == 1)
  }

  @Test func aPushThatAnEarlierProcessHasBegunToDeliverOutlastsRetentionAsADeadLetter() throws {
    var retention = Retention()
    retention.count = 2
    var fixture = ConsumerFixture(retention: retention)
    fixture.startStoring()
    var settings = ConsumerSettings()
    settings.isWorkSharing = true
    settings.isWebhook = true
    fixture.take(settings)
    fixture.push("1", "2")
    #expect(try fixture.settle(.release(.seconds(60)), try fixture.lease()) == [.released])
    try fixture.store()
    try fixture.restart()
    fixture.take(settings, isNewWorker: true)
    fixture.push("3", "4", "5")
    #expect(try fixture.take() == [4, 5])
    #expect(try fixture.table.deadLetters(of: ConsumerFixture.name).letters.map(\.message.sequence) == [1])
    #expect(try fixture.status.missed == 2)
  }

  @Test func aReaderReplacedByTheConfigurationIsWorkSharingAfterARestart() throws {
    var fixture = try ConsumerFixture(isStored: true) { $0.isWorkSharing = false }
    var settings = ConsumerSettings()
    settings.isWorkSharing = true
    fixture.push("a")
    fixture.take(settings)
    _ = try fixture.settle(.reject, try fixture.lease())
    try fixture.store()
    try fixture.restart()
    #expect(try fixture.status.settings == settings && fixture.status.deadLetters == 1)
  }

  @Test func consumersOfTheConfigurationSurviveBesideTheMaximumOfClients() throws {
    var fixture = try ConsumerFixture(isStored: true) { _ in }
    for number in 1..<ConsumerTable.maximumConsumers { _ = try fixture.put(ConsumerSettings(), as: "c\(number)") }
    fixture.take(ConsumerSettings(), as: "z")
    try fixture.store()
    try fixture.restart()
    #expect(try fixture.table.status(of: "z", fixture.log).lag == 0)
  }

  @Test func aRemovedConsumerStaysRemoved() throws {
    var fixture = try ConsumerFixture(isStored: true) { _ in }
    try fixture.store()
    let isRemoved = fixture.table.remove(ConsumerFixture.name)
    #expect(isRemoved)
    try fixture.store()
    try fixture.restart()
    #expect(throws: ConsumerRefusal.unknown) { try fixture.status }
  }

  @Test func aLeaseIsValidUntilItsDeadlineAndThenCountsAsADelivery() throws {
    var fixture = try ConsumerFixture(isStored: true) { _ in }
    fixture.push("a", "b")
    let (first, second) = (try fixture.lease(), try fixture.lease())
    fixture.wait(.seconds(29))
    try fixture.store()
    try fixture.restart()
    #expect(try fixture.settle(.acknowledge, first) == [.acknowledged])
    fixture.wait(.seconds(1))
    #expect(try fixture.settle(.acknowledge, second) == [.leaseLost])
    let again = try fixture.lease()
    #expect(again.number == 2 && again.attempt == 2 && again.bits != second.bits)
  }

  @Test func aClockThatIsSetBackDoesNotExtendALease() throws {
    var fixture = try ConsumerFixture(isStored: true) { _ in }
    fixture.push("a")
    let lease = try fixture.lease()
    try fixture.store()
    fixture.clockError = 3_600_000
    try fixture.restart()
    fixture.wait(.seconds(30))
    #expect(try fixture.settle(.acknowledge, lease) == [.leaseLost])
  }

  @Test func anAcknowledgedPushIsAcknowledgedAfterARestart() throws {
    var fixture = try ConsumerFixture(isStored: true) { _ in }
    fixture.push("a", "b", "c")
    _ = try fixture.lease()
    let lease = try fixture.lease()
    #expect(try fixture.settle(.acknowledge, lease) == [.acknowledged])
    try fixture.store()
    try fixture.restart()
    #expect(try fixture.settle(.acknowledge, lease) == [.acknowledged])
    #expect(try fixture.take() == [3])
  }

  @Test func aDelayedPushIsNotDeliveredEarlier() throws {
    var fixture = try ConsumerFixture(isStored: true) { _ in }
    fixture.push("a")
    #expect(try fixture.settle(.release(.seconds(60)), fixture.lease()) == [.released])
    fixture.wait(.seconds(40))
    try fixture.store()
    try fixture.restart()
    #expect(try fixture.take() == [])
    fixture.wait(.seconds(20))
    #expect(try fixture.lease().attempt == 2)
  }

  @Test func deadLettersSurviveAndAreDeliveredAgain() throws {
    var fixture = try ConsumerFixture(isStored: true) { _ in }
    fixture.push("a", "b")
    for _ in 0..<2 { #expect(try fixture.settle(.reject, fixture.lease()) == [.dead]) }
    try fixture.store()
    try fixture.restart()
    #expect(try fixture.table.deadLetters(of: ConsumerFixture.name).letters.map(\.message.sequence) == [1, 2])
    #expect(try fixture.table.retryDeadLetters(of: ConsumerFixture.name, now: fixture.now) == 2)
    try fixture.store()
    try fixture.restart(isCompacted: true)
    #expect(try fixture.take() == [1, 2])
    #expect(try fixture.table.deadLetters(of: ConsumerFixture.name).letters.isEmpty)
  }

  @Test(arguments: [false, true], [false, true])
  func deadLettersThatAClientMayNotReceiveStay(isRetry: Bool, isCompacted: Bool) throws {
    var fixture = try ConsumerFixture(isStored: true) { _ in }
    for topic in ["a", "b", "a", "c"] { fixture.push("m", topic: topic) }
    for _ in 0..<4 { #expect(try fixture.settle(.reject, fixture.lease()) == [.dead]) }
    try fixture.store()
    let isAllowed: (RetainedMessage) -> Bool = { $0.topic?.elementsEqual("a".utf8) ?? false }
    let count =
      isRetry
      ? try fixture.table.retryDeadLetters(of: ConsumerFixture.name, allowing: isAllowed, now: fixture.now)
      : try fixture.table.removeDeadLetters(of: ConsumerFixture.name, allowing: isAllowed, now: fixture.now)
    #expect(count == 2)
    let before = try fixture.status
    #expect(before.deadLetters == 2 && before.droppedDeadLetters == 0)
    try fixture.store()
    try fixture.restart(isCompacted: isCompacted)
    let dead = try fixture.table.deadLetters(of: ConsumerFixture.name)
    #expect(dead.letters.map(\.message.sequence) == [2, 4] && dead.dropped == 0)
    #expect(try fixture.status.deadBytes == before.deadBytes)
    #expect(try fixture.take() == (isRetry ? [1, 3] : []))
  }

  @Test func pushesOfOtherTopicsAreNotExaminedAgain() throws {
    var fixture = try ConsumerFixture(isStored: true) { _ = $0.add(topic: Array("a".utf8)) }
    fixture.push("1", topic: "a")
    fixture.push("2", topic: "b")
    fixture.push("3", topic: "a")
    #expect(try fixture.take() == [1, 3])
    var settings = try fixture.status.settings
    _ = settings.add(topic: Array("b".utf8))
    _ = try fixture.put(settings)
    try fixture.store()
    try fixture.restart()
    fixture.wait(.seconds(30))
    #expect(try fixture.take() == [1, 3])
  }

  @Test func aReceiveWithoutAResponseIsWithdrawn() throws {
    var fixture = try ConsumerFixture(isStored: true) { $0.maximumDeliveries = 1 }
    fixture.log.recordUpstreamGap()
    fixture.push("a")
    let batch = try fixture.receive()
    #expect(batch.messages.count == 1 && batch.gap?.reasons == [.upstream])
    fixture.table.withdraw(batch, of: ConsumerFixture.name, now: fixture.now, fixture.log)
    try fixture.store()
    try fixture.restart()
    let again = try fixture.receive()
    #expect(again.messages.first?.lease.attempt == 1 && again.gap?.reasons == [.upstream])
  }

  /// A store may be slow. Its delay must not shorten the lease.
  @Test func aLeaseBeginsWhenItsResponseIsSent() throws {
    var fixture = try ConsumerFixture(isStored: true) { $0.maximumDeliveries = 1 }
    fixture.push("a", "b")
    let (first, second) = (try fixture.receive(1), try fixture.receive(1))
    for batch in [first, second] { fixture.table.suspend(batch, of: ConsumerFixture.name) }
    try fixture.store()
    fixture.wait(.hours(1))
    let hasExpired = fixture.table.expire(now: fixture.now, fixture.log)
    #expect(!hasExpired)
    let lease = try #require(first.messages.first?.lease)
    let end = fixture.table.begin([lease], of: ConsumerFixture.name, now: fixture.now)
    #expect(end == fixture.now + .seconds(30))
    fixture.wait(.seconds(29))
    #expect(try fixture.settle(.acknowledge, lease) == [.acknowledged])
    // A lease whose response was never sent does not count as an attempt, however long it has lasted.
    fixture.table.withdraw(second, of: ConsumerFixture.name, now: fixture.now, fixture.log)
    #expect(try fixture.lease().attempt == 1)
    #expect(try fixture.status.deadLetters == 0)
  }

  @Test func aRequestThatTheStoreRefusesCountsAsUse() throws {
    var fixture = try ConsumerFixture(isStored: true) { $0.idle = .minutes(1) }
    for _ in 0..<5 {
      fixture.wait(.seconds(59))
      fixture.table.noteUse(of: ConsumerFixture.name, at: fixture.now)
      _ = fixture.table.expire(now: fixture.now, fixture.log)
    }
    #expect(try fixture.status.name == ConsumerFixture.name)
  }

  @Test func aLeaseWithAnUnknownKeyDelaysPushesThatMayHaveItsKey() throws {
    var fixture = ConsumerFixture(retention: Retention(count: 2))
    fixture.startStoring()
    var settings = ConsumerSettings()
    (settings.isWorkSharing, settings.order) = (true, .topic)
    _ = try fixture.put(settings)
    fixture.push("1", topic: "a")
    let lease = try fixture.lease()
    fixture.push("2", "3", topic: "a")
    try fixture.store()
    for isSettled in [false, true] {
      try fixture.restart()
      #expect(try !fixture.hasNews())
      let batch = try fixture.receive()
      #expect(batch.messages.isEmpty && batch.isBlocked && !batch.more)
      if isSettled { #expect(try fixture.settle(.acknowledge, lease) == [.acknowledged]) }
    }
    #expect(try fixture.hasNews())
    #expect(try fixture.take() == [2])
    // Without a settlement, the push waits for the end of its lease.
    try fixture.restart()
    fixture.wait(.seconds(30))
    let hasExpired = fixture.table.expire(now: fixture.now, fixture.log)
    #expect(hasExpired)
    #expect(try fixture.hasNews())
    #expect(try fixture.take() == [2])
  }

  private func nextDeadline(_ fixture: inout ConsumerFixture) -> MonotonicTime? { fixture.table.nextDeadline() }

  /// Ends leases and removes idle consumers whenever that is due, until `duration` has passed, and stores the changes.
  private func run(_ fixture: inout ConsumerFixture, for duration: TimeSpan) throws {
    let end = fixture.now + duration
    while let next = nextDeadline(&fixture), next <= end {
      fixture.wait(next - fixture.now)
      _ = fixture.table.expire(now: fixture.now, fixture.log)
      try fixture.store()
    }
    fixture.wait(end - fixture.now)
  }

  @Test func theTimeWithoutUseContinues() throws {
    var fixture = try ConsumerFixture(isStored: true) { $0.idle = .hours(2) }
    try fixture.store()
    for _ in 0..<3 {
      try run(&fixture, for: .minutes(30))
      try fixture.restart()
    }
    // Idle time that was not stored before a restart does not count. It is at most a sixteenth of `idle` per restart.
    try run(&fixture, for: .minutes(29))
    #expect(fixture.stored.byName.count == 1)
    try run(&fixture, for: .minutes(24))
    #expect(fixture.stored.byName.isEmpty)
  }

  @Test func aStepOfTheWallClockRemovesNoConsumerAfterARestart() throws {
    var fixture = try ConsumerFixture(isStored: true) { $0.idle = .hours(2) }
    try fixture.store()
    for hours in [-24, 24, 0] as [Int64] {
      fixture.clockError = hours * 3_600_000
      try fixture.restart()
      #expect(nextIdleEnd(of: fixture) == fixture.now + .hours(2), "\(hours)")
    }
  }

  private func nextIdleEnd(of fixture: ConsumerFixture) -> MonotonicTime? {
    fixture.table.consumers[ConsumerFixture.name]?.idleEnd()
  }

  @Test func aClientHasAMinuteToComeBackToAConsumerThatWouldSoonBeRemoved() throws {
    var fixture = try ConsumerFixture(isStored: true) { $0.idle = .minutes(10) }
    try fixture.store()
    try run(&fixture, for: .seconds(595))
    try fixture.restart()
    #expect(nextIdleEnd(of: fixture) == fixture.now + .minutes(1))
    _ = try fixture.take()
    #expect(nextIdleEnd(of: fixture) == fixture.now + .minutes(10))
    try fixture.store()
    try fixture.restart()
    #expect(nextIdleEnd(of: fixture) == fixture.now + .minutes(10))
    try run(&fixture, for: .minutes(10))
    #expect(fixture.stored.byName.isEmpty)
  }

  @Test func anUnusedConsumerCostsFewEntries() throws {
    var fixture = try ConsumerFixture(isStored: true) { $0.idle = .hours(24 * 7) }
    try fixture.store()
    var count = 0
    let end = fixture.now + .hours(24 * 7)
    while let next = nextDeadline(&fixture), next < end {
      fixture.wait(next - fixture.now)
      _ = fixture.table.expire(now: fixture.now, fixture.log)
      count += fixture.table.takeChanges(at: fixture.clock).count
    }
    #expect(count == 24 * 7 - 1, "one an hour")
  }

  // MARK: One reader

  @Test func aReaderContinuesAtItsPosition() throws {
    var fixture = ConsumerFixture()
    fixture.startStoring()
    _ = try fixture.put(ConsumerSettings())
    fixture.push("a", "b")
    let read = fixture.log.read(after: ReadStart(fixture.log.start), limit: 1, maxBytes: .max)
    _ = try fixture.table.beginReceive(
      ConsumerFixture.name, acknowledging: ReadStart(read.cursor), now: fixture.now, fixture.log)
    try fixture.store()
    try fixture.restart()
    #expect(try fixture.status.position == read.cursor)
  }

  @Test func aReaderWithAForeignPositionGetsItsGapAfterARestart() throws {
    var fixture = ConsumerFixture()
    fixture.startStoring()
    fixture.push("a")
    let foreign = Cursor(epoch: Epoch(0xDEF), sequence: 7)
    _ = try fixture.table.put(ConsumerFixture.name, ConsumerSettings(), start: foreign, now: fixture.now)
    try fixture.store()
    try fixture.restart()
    let turn = try fixture.table.beginReceive(ConsumerFixture.name, now: fixture.now, fixture.log)
    let start = try #require(turn.start)
    let result = fixture.log.read(after: start, limit: 9, maxBytes: .max)
    #expect(result.gap?.reasons == [.restart] && result.messages.count == 1)
  }

  /// The start of a process extends the gap at the end of the log.
  @Test func aPositionAfterTheLastGapIsBeforeTheNextGap() throws {
    var fixture = ConsumerFixture()
    fixture.startStoring()
    _ = try fixture.put(ConsumerSettings())
    fixture.push("a")
    fixture.log.recordUpstreamGap()
    _ = try fixture.table.beginReceive(
      ConsumerFixture.name, acknowledging: ReadStart(fixture.log.last), now: fixture.now, fixture.log)
    fixture.log.recordGap(.store)
    try fixture.store()
    try fixture.restart()
    let turn = try fixture.table.beginReceive(ConsumerFixture.name, now: fixture.now, fixture.log)
    let start = try #require(turn.start)
    #expect(fixture.log.read(after: start, limit: 9, maxBytes: .max).gap?.reasons == [.upstream, .store])
  }

  @Test func anAcknowledgementOfLostPushesIsReportedAndSkipsNothing() throws {
    var fixture = ConsumerFixture()
    _ = try fixture.put(ConsumerSettings())
    fixture.push("a")
    let end = fixture.log.last
    fixture.push("b")
    let turn = try fixture.table.beginReceive(
      ConsumerFixture.name, acknowledging: ReadStart(end, gap: .store), now: fixture.now, fixture.log)
    let start = try #require(turn.start)
    let result = fixture.log.read(after: start, limit: 9, maxBytes: .max)
    #expect(result.gap?.reasons == [.store] && result.messages.map(\.sequence) == [2])
  }
}
