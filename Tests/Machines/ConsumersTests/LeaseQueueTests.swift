import ByteStreams
import Inbox
import JSONCodec
import Testing

@testable import Consumers

/// The order in which workers get pushes, and when they get them.
@Suite struct LeaseQueueTests {
  @Test func eachPushIsLeasedToOneWorker() throws {
    var fixture = try ConsumerFixture { _ in }
    fixture.push("a", "b", "c")
    #expect(try fixture.take(2) == [1, 2])
    #expect(try fixture.take(2) == [3])
    #expect(try fixture.take(2) == [])
  }

  @Test func anExpiredLeaseMakesThePushReadyAgainWithTheNextAttempt() throws {
    var fixture = try ConsumerFixture { $0.visibility = .seconds(10) }
    fixture.push("a", "b")
    let first = try fixture.receive(1).messages[0]
    #expect(first.expires == fixture.now + .seconds(10))
    fixture.wait(.milliseconds(9_999))
    #expect(try fixture.take() == [2])
    fixture.wait(.milliseconds(1))
    let again = try fixture.receive().messages
    #expect(again.map(\.lease.number) == [1] && again[0].lease.attempt == 2)
    #expect(again[0].lease.bits != first.lease.bits)
  }

  @Test func anExtendedLeaseHasALaterDeadline() throws {
    var fixture = try ConsumerFixture { $0.visibility = .seconds(10) }
    fixture.push("a")
    let lease = try fixture.lease()
    for _ in 0..<500 {
      fixture.wait(.seconds(9))
      #expect(try fixture.settle(.extend, lease) == [.extended(until: fixture.now + .seconds(10))])
    }
    fixture.wait(.seconds(9))
    #expect(try fixture.take() == [])
    fixture.wait(.seconds(1))
    #expect(try fixture.take() == [1])
  }

  @Test func aReleasedPushIsReadyAfterItsDelay() throws {
    var fixture = try ConsumerFixture { _ in }
    fixture.push("a", "b")
    _ = try fixture.settle(.release(.seconds(5)), try fixture.lease())
    #expect(try fixture.take() == [2])
    let next = fixture.table.nextDeadline()
    #expect(next == fixture.now + .seconds(5))
    fixture.wait(.seconds(5))
    let hasChanged = fixture.table.expire(now: fixture.now, fixture.log)
    #expect(hasChanged)
    #expect(try fixture.take() == [1])
  }

  @Test func aReleasedPushIsLeasedBeforeNewerPushes() throws {
    var fixture = try ConsumerFixture { _ in }
    fixture.push("a", "b", "c")
    _ = try fixture.settle(.release(.zero), try fixture.lease())
    #expect(try fixture.take() == [1, 2, 3])
  }

  @Test func aPushIsDeadAfterItsLastDelivery() throws {
    var fixture = try ConsumerFixture { $0.maximumDeliveries = 2 }
    fixture.push("a")
    _ = try fixture.lease()
    fixture.wait(.seconds(30))
    #expect(try fixture.settle(.release(.zero), try fixture.lease()) == [.dead])
    #expect(try fixture.take() == [])
    let dead = try fixture.table.deadLetters(of: ConsumerFixture.name).letters
    #expect(dead.map(\.message.sequence) == [1] && dead[0].reason == .deliveries && dead[0].deliveries == 2)
    #expect(try fixture.status.position == fixture.log.last)
  }

  @Test func aDeadLetterCanBeRetriedAfterRetentionHasRemovedThePush() throws {
    var fixture = try ConsumerFixture(retention: Retention(count: 1)) { _ in }
    fixture.push("a")
    #expect(try fixture.settle(.reject, try fixture.lease()) == [.dead])
    fixture.push("b")
    #expect(try fixture.table.retryDeadLetters(of: ConsumerFixture.name, now: fixture.now) == 1)
    let batch = try fixture.receive()
    #expect(batch.messages.map(\.lease.number) == [1, 2] && batch.messages[0].lease.attempt == 1)
    #expect(batch.gap == nil)
    fixture.wait(.seconds(30))
    #expect(try fixture.take() == [1, 2], "a retried push keeps its copy")
    #expect(try fixture.status.deadLetters == 0)
  }

  @Test func deadLettersHaveLimitsAndDroppedDeadLettersAreCounted() throws {
    var fixture = try ConsumerFixture { _ in }
    for _ in 0..<DeadLetters.maximumCount + 5 {
      fixture.push("a")
      _ = try fixture.settle(.reject, try fixture.lease())
    }
    #expect(try fixture.status.deadLetters == DeadLetters.maximumCount)
    #expect(try fixture.status.droppedDeadLetters == 5)
    #expect(try fixture.table.deadLetters(of: ConsumerFixture.name).letters[0].message.sequence == 6)
    let large = String(repeating: "x", count: 6 << 20)
    for _ in 0..<4 {
      fixture.push(large)
      _ = try fixture.settle(.reject, try fixture.lease())
    }
    #expect(try fixture.status.deadBytes <= DeadLetters.maximumBytes)
    #expect(try fixture.status.deadLetters == 2)
    #expect(try fixture.table.removeDeadLetters(of: ConsumerFixture.name, now: fixture.now) == 2)
    #expect(try fixture.status.deadBytes == 0)
    fixture.push(String(repeating: "x", count: 17 << 20))
    _ = try fixture.settle(.reject, try fixture.receive().messages[0].lease)
    #expect(try fixture.status.deadLetters == 1, "the newest stays whatever its size")
  }

  @Test func copiesThatAreRetriedCountTowardsTheLimit() throws {
    var fixture = try ConsumerFixture { _ in }
    let large = String(repeating: "x", count: 6 << 20)
    fixture.push(large, large)
    for _ in 0..<2 { _ = try fixture.settle(.reject, try fixture.lease()) }
    _ = try fixture.table.retryDeadLetters(of: ConsumerFixture.name, now: fixture.now)
    fixture.push(large)
    let leases = try fixture.receive(3, maxBytes: .max).messages.map(\.lease)
    _ = try fixture.settle(.reject, leases[2])
    #expect(try fixture.status.deadLetters == 0 && fixture.status.droppedDeadLetters == 1)
    _ = try fixture.settle(.acknowledge, leases[0])
    _ = try fixture.settle(.reject, leases[1])
    #expect(try fixture.status.deadLetters == 1)
  }

  // MARK: Searches

  @Test func oneReceiveFindsTheOnlyPushOfItsTopicInTheDefaultRetention() throws {
    var fixture = try ConsumerFixture { _ = $0.add(topic: Array("rare".utf8)) }
    for _ in 1..<LeaseQueue.searchLimit { fixture.push("a", topic: "frequent") }
    fixture.push("b", topic: "rare")
    let batch = try fixture.receive()
    #expect(batch.messages.map(\.lease.number) == [UInt64(LeaseQueue.searchLimit)] && !batch.more)
    #expect(fixture.table.recordCount == 1)
  }

  @Test func aSearchForManyTopicsIsLimitedByItsComparisons() throws {
    var fixture = try ConsumerFixture { settings in
      for number in 0..<TopicFilter.maximumPatterns { _ = settings.add(topic: Array("rare \(number)".utf8)) }
    }
    for _ in 0..<LeaseQueue.maximumLeases + 500 { fixture.push("a", topic: "frequent") }
    fixture.push("b", topic: "rare 15")
    let first = try fixture.receive()
    #expect(first.messages.isEmpty && first.more)
    #expect(try fixture.take() == [UInt64(LeaseQueue.maximumLeases) + 501])
  }

  @Test func pushesOfTheTopicAreExaminedInSmallerNumbers() throws {
    var fixture = try ConsumerFixture {
      _ = $0.add(topic: Array("a*".utf8))
      $0.order = .topic
    }
    for _ in 0..<3_000 { fixture.push("a", topic: "a") }
    #expect(try fixture.take() == [1])
    #expect((1_000...1_100).contains(fixture.table.recordCount))
  }

  // MARK: Order

  @Test func noPushAfterALeasedPushOfTheSameTopicIsLeased() throws {
    var fixture = try ConsumerFixture { $0.order = .topic }
    fixture.push("1", "2", topic: "a")
    fixture.push("3", topic: "b")
    fixture.push("4", "5")
    let batch = try fixture.receive()
    #expect(batch.messages.map(\.lease.number) == [1, 3, 4, 5])
    let blocked = try fixture.receive()
    #expect(blocked.messages.isEmpty && blocked.isBlocked && !blocked.more)
    _ = try fixture.settle(.acknowledge, batch.messages[0].lease)
    #expect(try fixture.take() == [2])
  }

  @Test func aPushThatTheGatewayHasBegunToDeliverOutlastsRetentionAsADeadLetter() throws {
    for isWebhook in [true, false] {
      var retention = Retention()
      retention.count = 2
      var fixture = try ConsumerFixture(retention: retention) { $0.isWebhook = isWebhook }
      fixture.push("1", "2")
      let (first, second) = (try fixture.lease(), try fixture.lease())
      #expect(try fixture.settle(.release(.seconds(60)), first) == [.released])
      fixture.push("3", "4", "5")
      #expect(try fixture.settle(.reject, second) == [.dead])
      let dead = try fixture.table.deadLetters(of: ConsumerFixture.name).letters.map(\.message.sequence)
      #expect(dead == (isWebhook ? [1, 2] : []) && fixture.table.recordCount == 0)
    }
  }

  @Test func attemptedPushesThatWaitAfterAChangeOfTheOrderOutlastRetention() throws {
    var retention = Retention()
    retention.count = 3
    var fixture = try ConsumerFixture(retention: retention) { $0.isWebhook = true }
    fixture.push("1", "2", "3")
    for lease in try fixture.receive().messages.map(\.lease) {
      #expect(try fixture.settle(.release(.seconds(60)), lease) == [.released])
    }
    var settings = try fixture.status.settings
    settings.order = .all
    fixture.take(settings)
    fixture.wait(.seconds(60))
    let first = try fixture.lease()
    fixture.push("4", "5", "6")
    #expect(try fixture.settle(.acknowledge, first) == [.acknowledged])
    #expect(try fixture.table.deadLetters(of: ConsumerFixture.name).letters.map(\.message.sequence) == [2, 3])
    #expect(try fixture.take() == [4])
  }

  @Test func allPushesCanBeHandledOneAfterAnother() throws {
    var fixture = try ConsumerFixture { settings in
      settings.order = .all
      settings.isWebhook = true
    }
    fixture.push("1", topic: "a")
    fixture.push("2")
    fixture.push("3", topic: "b")
    let first = try fixture.lease()
    #expect(try first.number == 1 && fixture.receive().isBlocked)
    #expect(try fixture.settle(.release(.seconds(5)), first) == [.released])
    #expect(try fixture.receive().isBlocked)
    #expect(try fixture.status.nextDelivery == fixture.now + .seconds(5))
    fixture.wait(.seconds(5))
    #expect(try fixture.status.nextDelivery != nil)
    _ = try fixture.settle(.acknowledge, try fixture.lease())
    #expect(try fixture.take() == [2])
    #expect(try fixture.status.nextDelivery == nil)
  }

  @Test func aReleasedPushBlocksItsKeyAndIsTheNext() throws {
    var fixture = try ConsumerFixture { $0.order = .topic }
    fixture.push("1", "2", topic: "a")
    _ = try fixture.settle(.release(.seconds(5)), try fixture.lease())
    let batch = try fixture.receive()
    #expect(batch.messages.isEmpty && batch.isBlocked && !batch.more)
    fixture.wait(.seconds(5))
    #expect(try fixture.take() == [1])
  }

  @Test func aRejectedPushFreesItsKey() throws {
    var fixture = try ConsumerFixture { $0.order = .topic }
    fixture.push("1", "2", topic: "a")
    _ = try fixture.settle(.reject, try fixture.lease())
    #expect(try fixture.take() == [2])
  }

  @Test func theKeyCanBeAnyValueInTheJSON() throws {
    var fixture = try ConsumerFixture { $0.order = ConsumerOrder("/order/id") }
    fixture.push(#"{"order":{"id":1}}"#, #"{"order":{"id":1}}"#, #"{"order":{"id":2}}"#, "no JSON", #"{"order":3}"#)
    #expect(try fixture.take() == [1, 3, 4, 5])
    #expect(ConsumerOrder("order") == nil && ConsumerOrder("") == nil && ConsumerOrder("/a~2") == nil)
  }

  // MARK: Topics

  @Test func pushesOfOtherTopicsAreSkipped() throws {
    var fixture = try ConsumerFixture { _ = $0.add(topic: Array("orders.*".utf8)) }
    fixture.push("1", topic: "orders.new")
    fixture.push("2", topic: "ticks")
    fixture.push("3", topic: "orders.old")
    let batch = try fixture.receive()
    #expect(batch.messages.map(\.lease.number) == [1, 3])
    _ = try fixture.settle(.acknowledge, batch.messages[0].lease)
    #expect(try fixture.status.position.sequence == 2)
    fixture.push("4", topic: "ticks")
    #expect(try !fixture.hasNews())
    fixture.push("5", topic: "orders.new")
    #expect(try fixture.hasNews())
  }

  // MARK: Limits

  @Test func thereAreAtMostAThousandLeases() throws {
    var fixture = try ConsumerFixture { _ in }
    for _ in 0...LeaseQueue.maximumLeases { fixture.push("a") }
    let batch = try fixture.receive(5_000)
    #expect(batch.messages.count == 1_000 && LeaseQueue.maximumLeases == 1_000 && !batch.more)
    let blocked = try fixture.receive()
    #expect(blocked.messages.isEmpty && blocked.isBlocked)
    #expect(try !fixture.hasNews())
    _ = try fixture.settle(.acknowledge, batch.messages[500].lease)
    #expect(try fixture.hasNews())
    #expect(try fixture.take() == [1_001])
  }

  @Test func theSearchEndsTenThousandPushesAfterTheOldestThatIsNotSettled() throws {
    var fixture = try ConsumerFixture(retention: Retention(count: 20_000)) { $0.order = .topic }
    for _ in 0..<10_001 { fixture.push("1", topic: "a") }
    fixture.push("2", topic: "b")
    let first = try fixture.receive()
    #expect(first.messages.map(\.lease.number) == [1] && first.more)
    var calls = 0
    while try fixture.receive().more { calls += 1 }
    #expect(calls > 1, "one call examines only a part of the pushes")
    #expect(try fixture.receive().isBlocked)
    #expect(try !fixture.hasNews())
    _ = try fixture.settle(.acknowledge, first.messages[0].lease)
    let second = try fixture.lease()
    #expect(second.number == 2)
    _ = try fixture.settle(.acknowledge, second)
    #expect(try fixture.take() == [3, 10_002])
  }

  @Test func oneReceiveSearchesOneMebibyteOfPayloadsForKeys() throws {
    var fixture = try ConsumerFixture { $0.order = ConsumerOrder("/key") }
    let payload = #"{"key":1,"rest":"\#(String(repeating: "x", count: 400 << 10))"}"#
    fixture.push(payload, payload, payload, payload, payload)
    let first = try fixture.receive()
    #expect(first.messages.map(\.lease.number) == [1] && first.more)
    let second = try fixture.receive()
    #expect(second.messages.isEmpty && !second.more && second.isBlocked)
  }

  @Test func pushesThatAReceiveFreesBeforeTheTimerAreForAllWorkers() throws {
    var fixture = try ConsumerFixture { _ in }
    fixture.push("a", "b", "c")
    #expect(try !fixture.receive(1).leavesFreed, "the other workers were notified of the push")
    #expect(try fixture.take() == [2, 3])
    fixture.wait(.seconds(30))
    let first = try fixture.receive(1)
    #expect(first.messages.map(\.lease.number) == [1] && first.leavesFreed)
    #expect(try !fixture.receive(1).leavesFreed, "once")
    fixture.wait(.seconds(30))
    #expect(try !fixture.receive().leavesFreed, "nothing is left")
  }

  @Test func pushesThatRetentionFreesCountAsAChange() throws {
    var fixture = try ConsumerFixture(retention: Retention(count: 2)) { $0.order = .topic }
    fixture.push("1", "2", topic: "a")
    _ = try fixture.settle(.release(.minutes(60)), try fixture.lease())
    #expect(try !fixture.hasNews())
    var hasChanged = fixture.table.expire(now: fixture.now, fixture.log)
    #expect(!hasChanged)
    fixture.push("3", topic: "a")
    hasChanged = fixture.table.expire(now: fixture.now, fixture.log)
    #expect(hasChanged)
    let batch = try fixture.receive()
    #expect(batch.messages.map(\.lease.number) == [2] && batch.gap == Gap(missed: 1, reasons: [.retention]))
  }

  @Test func oneReceiveExaminesAPartOfManyPushesAndTheNextContinues() throws {
    var fixture = try ConsumerFixture(retention: Retention(count: 20_000)) { _ = $0.add(topic: Array("b".utf8)) }
    for _ in 0..<17_000 { fixture.push("1", topic: "a") }
    fixture.push("2", topic: "b")
    let first = try fixture.receive()
    #expect(first.messages.isEmpty && first.more && !first.isBlocked)
    var taken: [UInt64] = []
    for _ in 0..<20 where taken.isEmpty { taken = try fixture.take() }
    #expect(taken == [17_001])
  }

  @Test func aBatchHasALimitOnBytesButAtLeastOnePush() throws {
    var fixture = try ConsumerFixture { _ in }
    fixture.push(String(repeating: "x", count: 1_000), "a", "b")
    #expect(try fixture.receive(maxBytes: 100).messages.count == 1)
    #expect(try fixture.receive(maxBytes: 250).messages.count == 2)
  }

  // MARK: Retention

  @Test func pushesThatRetentionRemovesAreAGapOnce() throws {
    var fixture = try ConsumerFixture(retention: Retention(count: 2)) { _ in }
    fixture.push("1", "2", "3", "4", "5")
    let batch = try fixture.receive()
    #expect(batch.gap == Gap(missed: 3, reasons: [.retention]) && batch.messages.map(\.lease.number) == [4, 5])
    #expect(try fixture.receive().gap == nil)
    #expect(try fixture.status.missed == 3)
  }

  @Test func pushesThatRetentionRemovedDoNotDelayLaterPushes() throws {
    var fixture = try ConsumerFixture(retention: Retention(count: 5)) { _ = $0.add(topic: Array("b".utf8)) }
    for _ in 0..<17_000 { fixture.push("1", topic: "a") }
    fixture.push("2", topic: "b")
    // A single read does not reach this gap.
    fixture.log.recordUpstreamGap()
    fixture.push("3", topic: "b")
    let batch = try fixture.receive()
    #expect(batch.gap == Gap(missed: 16_997, reasons: [.retention, .upstream]))
    #expect(batch.messages.map(\.lease.number) == [17_001, 17_002])
  }

  @Test func aLeasedPushThatRetentionRemovesIsMissingOnlyIfItMustBeDeliveredAgain() throws {
    var fixture = try ConsumerFixture(retention: Retention(count: 2)) { _ in }
    fixture.push("1", "2")
    let leases = try fixture.receive().messages.map(\.lease)
    fixture.push("3", "4")
    #expect(try fixture.settle(.acknowledge, leases[0]) == [.acknowledged])
    #expect(try fixture.settle(.release(.zero), leases[1]) == [.released])
    let batch = try fixture.receive()
    #expect(batch.gap == Gap(missed: 1, reasons: [.retention]) && batch.messages.map(\.lease.number) == [3, 4])
  }

  @Test func queuedPushesThatRetentionRemovesAreMissing() throws {
    var fixture = try ConsumerFixture(retention: Retention(count: 3)) { $0.order = .topic }
    fixture.push("1", "2", "3", topic: "a")
    let lease = try fixture.lease()
    #expect(try fixture.take() == [])
    fixture.push("4", "5", topic: "a")
    let blocked = try fixture.receive()
    #expect(blocked.gap == Gap(missed: 1, reasons: [.retention]) && blocked.messages.isEmpty)
    _ = try fixture.settle(.acknowledge, lease)
    #expect(try fixture.take() == [3])
  }

  @Test func anUpstreamGapIsReportedOnce() throws {
    var fixture = try ConsumerFixture { _ in }
    fixture.push("1")
    fixture.log.recordUpstreamGap()
    #expect(try fixture.hasNews())
    #expect(try fixture.receive().gap == Gap(missed: nil, reasons: [.upstream]))
    #expect(try !fixture.hasNews())
    fixture.log.recordUpstreamGap()
    fixture.push("2")
    #expect(try fixture.receive().gap == nil, "two gaps without a push between them are one gap")
  }
}
