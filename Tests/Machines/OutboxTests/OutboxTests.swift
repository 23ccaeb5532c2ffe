import ByteStreams
import Testing
import UpstreamSession

@testable import Outbox

/// An outbox with a clock. Tests call it like a driver.
struct OutboxFixture {
  var outbox: Outbox
  var now = MonotonicTime(nanoseconds: 1_000_000_000)

  init(_ change: (inout OutboxSettings) -> Void = { _ in }) {
    var settings = OutboxSettings()
    change(&settings)
    outbox = Outbox(settings)
  }

  @discardableResult
  mutating func post(
    _ text: String, ttl: TimeSpan? = .seconds(30), topic: String? = nil, by client: UInt64 = 0
  ) -> EnqueueResult {
    outbox.enqueue(
      ByteSlice(ByteString(Array(text.utf8))), kind: .text, timeToLive: ttl, topic: topic, by: client, now: now)
  }

  mutating func take(messages: Int = .max, bytes: Int = .max) -> [String] {
    var batch: [OutboxMessage] = []
    outbox.takeBatch(maximumMessages: messages, maximumBytes: bytes, now: now, into: &batch)
    return batch.map { $0.payload.bytes.text() }
  }

  /// Posts this many messages and writes each of them at once.
  mutating func write(_ count: Int) {
    for _ in 0..<count {
      post("m")
      _ = take()
      outbox.written(through: outbox.ledger.last)
    }
  }

  /// The states of the first messages, by their first letters: `q w c e r(eplaced) x(rejected) u`.
  var states: String {
    guard outbox.ledger.last > 0 else { return "" }
    return (1...outbox.ledger.last).map { sequence in
      switch outbox.ledger.state(of: sequence) {
      case .queued: "q"
      case .written: "w"
      case .confirmed: "c"
      case .expired: "e"
      case .replaced: "r"
      case .rejected: "x"
      case .unknown: "u"
      case nil: "-"
      }
    }.joined()
  }
}

@Suite struct OutboxTests {
  @Test func aLargeMessageIsTakenOnceItIsPrepared() {
    var box = OutboxFixture()
    box.outbox.startSending(on: Generation(1))
    for text in ["a", "large", "b", "larger"] { box.post(text) }
    func take(_ prepared: UInt64?) -> [String] {
      var batch: [OutboxMessage] = []
      box.outbox.takeBatch(
        maximumMessages: .max, maximumBytes: .max, largest: 4, except: prepared, now: box.now, into: &batch)
      return batch.map { $0.payload.bytes.text() }
    }
    #expect(box.outbox.next(largerThan: 4) == nil, "a small message is next")
    #expect(take(nil) == ["a"])
    #expect(box.outbox.next(largerThan: 4)?.sequence == 2)
    #expect(take(nil) == [] && take(4) == [])
    #expect(box.states == "qqqq")
    #expect(take(2) == ["large", "b"])
    #expect(box.outbox.next(largerThan: 4)?.sequence == 4)
    // A message that may not be queued is taken at once.
    #expect(take(4) == ["larger"])
    box.post("at once", ttl: .zero)
    #expect(box.outbox.next(largerThan: 4) == nil)
    #expect(take(nil) == ["at once"])
  }

  @Test func ttlZeroDoesNotWaitForThePreparationOfALargeMessage() {
    var box = OutboxFixture()
    box.outbox.startSending(on: Generation(1))
    func take(_ prepared: UInt64?) -> [String] {
      var batch: [OutboxMessage] = []
      box.outbox.takeBatch(
        maximumMessages: .max, maximumBytes: .max, largest: 4, except: prepared, now: box.now, into: &batch)
      return batch.map { $0.payload.bytes.text() }
    }
    box.post("large")
    box.post("a", ttl: .zero)
    box.post("b")
    #expect(take(nil) == [])
    #expect(box.states == "qeq")
    #expect(box.post("c", ttl: .zero) == .notReady(.blocked))
    #expect(take(1) == ["large", "b"])
    box.post("d", ttl: .zero)
    #expect(take(nil) == ["d"])
  }

  @Test func aLargeMessageCanExpireBeforeItIsPrepared() {
    var box = OutboxFixture()
    box.outbox.startSending(on: Generation(1))
    box.post("large", ttl: .seconds(1))
    box.post("b")
    #expect(box.outbox.next(largerThan: 4)?.sequence == 1)
    box.now = box.now + .seconds(2)
    box.outbox.expire(now: box.now)
    #expect(box.outbox.next(largerThan: 4) == nil)
    #expect(box.take() == ["b"])
  }

  @Test func sendsMessagesInTheirOrder() {
    var box = OutboxFixture()
    #expect(box.post("a") == .queued(sequence: 1, wakes: true))
    #expect(box.post("b") == .queued(sequence: 2, wakes: false))
    #expect(box.take() == [])
    box.outbox.startSending()
    #expect(box.take(messages: 1) == ["a"])
    #expect(box.take() == ["b"])
    #expect(box.take() == [])
    #expect(box.states == "qq")
    box.outbox.written(through: 1)
    #expect(box.states == "wq")
    box.outbox.written(through: 2)
    #expect(box.outbox.isEmpty)
    #expect(box.outbox.bytes == 0)
  }

  @Test func stopsABatchAtItsBytes() {
    var box = OutboxFixture()
    box.outbox.startSending()
    for text in ["aaaa", "bbbb", "cccc"] { box.post(text) }
    #expect(box.take(bytes: 5) == ["aaaa", "bbbb"])
  }

  @Test func refusesMessagesAboveTheLimits() {
    var box = OutboxFixture {
      $0.maximumMessages = 2
      $0.maximumBytes = 10
    }
    box.post("12345")
    box.post("1")
    #expect(box.post("") == .full(.messages))
    var byBytes = OutboxFixture { $0.maximumBytes = 10 }
    byBytes.post("12345")
    #expect(byBytes.post("123456") == .full(.bytes))
    #expect(byBytes.post("12345") == .queued(sequence: 2, wakes: false))
  }

  @Test func acceptsOneMessageOfAnySizeWhenEmpty() {
    var box = OutboxFixture { $0.maximumBytes = 4 }
    #expect(box.post("123456789") == .queued(sequence: 1, wakes: true))
    #expect(box.post("") == .full(.bytes))
  }

  @Test func dropsTheOldestIfConfigured() {
    var box = OutboxFixture {
      $0.maximumMessages = 2
      $0.overflow = .dropOldest
    }
    for text in ["a", "b", "c", "d"] { box.post(text) }
    #expect(box.states == "xxqq")
    box.outbox.startSending()
    #expect(box.take() == ["c", "d"])
  }

  @Test func dropsNothingForAMessageThatCannotFit() {
    var box = OutboxFixture {
      $0.maximumBytes = 10
      $0.overflow = .dropOldest
    }
    box.outbox.startSending()
    box.post("12345678")
    _ = box.take()
    box.post("9")
    // The outbox cannot drop a message that a connection has taken, so this message still uses room.
    #expect(box.post("123") == .full(.bytes))
    #expect(box.states == "qq")
    #expect(box.post("12") == .queued(sequence: 3, wakes: true))
    #expect(box.states == "qxq")
  }

  @Test func dropsManyMessagesInLinearTime() {
    var box = OutboxFixture {
      $0.maximumMessages = 3
      $0.overflow = .dropOldest
    }
    box.outbox.startSending()
    box.post("taken")
    _ = box.take()
    for number in 0..<50_000 { box.post("\(number)") }
    #expect(box.outbox.ring.count < 200)
    #expect(box.outbox.ledger.total(.rejected) == 49_998)
    #expect(box.take() == ["49998", "49999"])
  }

  @Test func expiresEachMessageAtItsDeadline() {
    var box = OutboxFixture()
    box.post("late", ttl: .seconds(30))
    #expect(box.post("soon", ttl: .seconds(5)) == .queued(sequence: 2, wakes: true))
    box.post("never", ttl: nil)
    #expect(box.outbox.nextExpiry() == box.now + .seconds(5))
    box.now = box.now + .seconds(5)
    #expect(box.outbox.expire(now: box.now) == 1)
    #expect(box.states == "qeq")
    #expect(box.outbox.nextExpiry() == box.now + .seconds(25))
    box.now = box.now + .seconds(60)
    box.outbox.startSending()
    #expect(box.take() == ["never"])
    #expect(box.states == "eeq")
    #expect(box.outbox.nextExpiry() == nil)
  }

  @Test func acceptsTTLZeroOnlyWhileReady() {
    var box = OutboxFixture()
    #expect(box.post("x", ttl: .zero) == .notReady(.notConnected))
    box.outbox.startSending()
    box.post("a", ttl: .zero)
    box.post("b", ttl: .zero)
    #expect(box.take(messages: 1) == ["a"])
    box.outbox.stopSending()
    #expect(box.states == "qe")
    box.outbox.settle()
    #expect(box.states == "ee")
  }

  @Test func ttlZeroObeysTheRate() {
    var box = OutboxFixture { $0.pace = Pace(messages: 10, burst: 2) }
    box.outbox.startSending()
    box.post("a", ttl: .zero)
    box.post("b", ttl: .zero)
    // Messages a and b use both tokens, even before a connection takes them.
    #expect(box.post("c", ttl: .zero) == .notReady(.pace(until: box.now + .milliseconds(100))))
    #expect(box.take() == ["a", "b"])
    #expect(box.post("c", ttl: .zero) == .notReady(.pace(until: box.now + .milliseconds(100))))
    box.now = box.now + .milliseconds(100)
    #expect(box.post("c", ttl: .zero) == .queued(sequence: 3, wakes: true))
  }

  /// The cut of a hand-over takes two round trips, or two seconds if a pong is missing.
  @Test(arguments: [false, true]) func ttlZeroDoesNotWaitForTheEndOfALongHandOver(isLong: Bool) {
    var box = OutboxFixture()
    box.outbox.startSending()
    box.post("a", ttl: .zero)
    box.post("b")
    box.outbox.pause(now: box.now)
    #expect(box.post("c", ttl: .zero) == .notReady(.notConnected))
    #expect(box.outbox.nextExpiry() == box.now + .milliseconds(100))
    box.now = box.now + .milliseconds(isLong ? 100 : 1)
    box.outbox.expire(now: box.now)
    box.outbox.stopSending()
    box.outbox.startSending()
    #expect(box.take() == (isLong ? ["b"] : ["a", "b"]))
    #expect(box.states == (isLong ? "eq" : "qq"))
  }

  @Test func ttlZeroIsRefusedWhileTheUpstreamDoesNotRead() {
    var box = OutboxFixture()
    box.outbox.startSending()
    box.post("a", ttl: .zero)
    box.outbox.block(returning: nil)
    // The outbox accepted the message just before the block, and does not send it after the block.
    #expect(box.states == "e")
    #expect(box.post("b", ttl: .zero) == .notReady(.blocked))
    box.post("c")
    #expect(box.take() == ["c"])
    #expect(box.post("d", ttl: .zero) == .queued(sequence: 3, wakes: true))
    box.outbox.block(returning: nil)
    box.outbox.stopSending()
    box.outbox.settle()
    box.outbox.startSending()
    #expect(box.post("e", ttl: .zero) == .queued(sequence: 4, wakes: false), "a new connection may send the message")
  }

  @Test func ttlZeroWaitsForTheNextTurnIfOnlyTheTurnIsFull() {
    var box = OutboxFixture()
    box.outbox.startSending()
    box.post("a", ttl: .zero)
    box.post("b", ttl: .zero)
    #expect(box.take(messages: 1) == ["a"])
    // In this turn, the connection may pass no more bytes to the kernel, so the message returns to the queue. The
    // upstream still reads.
    box.outbox.returnToQueue(from: 1)
    #expect(box.states == "qq")
    #expect(box.post("c", ttl: .zero) == .queued(sequence: 3, wakes: false))
    #expect(box.take() == ["a", "b", "c"])
  }

  @Test func aReplacementUsesTheRoomOfTheReplacedMessage() {
    var box = OutboxFixture { $0.maximumMessages = 2 }
    box.post("1", topic: "price")
    box.post("other")
    #expect(box.post("2", topic: "price") == .queued(sequence: 3, wakes: false))
    #expect(box.states == "rqq")
    box.outbox.startSending()
    #expect(box.take() == ["other", "2"])
    // A message that a connection has taken can no longer be replaced.
    #expect(box.post("3", topic: "price") == .full(.messages))
    box.outbox.written(through: 3)
    box.post("3", topic: "price")
    #expect(box.states == "rwwq")
  }

  @Test func replacementsDoNotGrowTheQueue() {
    var box = OutboxFixture()
    box.post("old", ttl: nil)
    for number in 0..<100_000 { box.post("\(number)", topic: "t") }
    #expect(box.outbox.ring.count < 200)
    #expect(box.outbox.messages == 2)
    box.outbox.startSending()
    #expect(box.take() == ["old", "99999"])
  }

  @Test func closingRejectsTheQueue() {
    var box = OutboxFixture()
    for text in ["a", "b"] { box.post(text) }
    box.outbox.close()
    #expect(box.states == "xx")
    #expect(box.post("c") == .closed)
    #expect(box.outbox.bytes == 0)
  }

  @Test func sendsAtTheRateWithoutCountingExpiredMessages() {
    var box = OutboxFixture { $0.pace = Pace(messages: 10, burst: 2) }
    box.outbox.startSending()
    box.post("gone", ttl: .milliseconds(1))
    for text in ["a", "b", "c", "d"] { box.post(text) }
    #expect(box.outbox.nextPermit(now: box.now) == nil, "one message may be sent now")
    box.now = box.now + .milliseconds(1)
    #expect(box.take() == ["a", "b"])
    #expect(box.states == "eqqqq")
    #expect(box.outbox.nextPermit(now: box.now) == box.now + .milliseconds(100))
    box.now = box.now + .milliseconds(99)
    #expect(box.take() == [])
    box.now = box.now + .milliseconds(1)
    #expect(box.take() == ["c"])
    // A lost connection does not restore the burst.
    box.outbox.stopSending()
    #expect(box.outbox.nextPermit(now: box.now) == nil, "no connection could take a message")
    box.outbox.settle()
    box.outbox.startSending()
    #expect(box.take() == [])
    #expect(box.outbox.nextPermit(now: box.now) == box.now + .milliseconds(100))
  }

  @Test func remembersTwiceAsManyStatesAsMessagesMayWait() {
    var box = OutboxFixture { $0.maximumMessages = 40_000 }
    for _ in 0..<40_000 { box.post("m", ttl: nil) }
    box.outbox.startSending()
    #expect(box.outbox.ledger.limit == 131_072)
    for _ in 0..<70_000 {
      _ = box.take(messages: 1)
      box.outbox.written(through: box.outbox.ledger.last)
      box.post("m", ttl: nil)
    }
    #expect(box.outbox.ledger.state(of: 1) == .written)
    #expect(box.outbox.ledger.count(in: .queued) == 40_000)
  }

  @Test func countsForgottenUnconfirmedMessagesAsUnknown() {
    var box = OutboxFixture()
    box.outbox.startSending()
    box.write(70_000)
    #expect(box.outbox.ledger.total(.unknown) == 70_000 - 65_536)
    box.outbox.barrierSent(1)
    #expect(box.outbox.confirm(1) == 65_536)
    #expect(box.outbox.ledger.total(.confirmed) + box.outbox.ledger.total(.unknown) == 70_000)
  }

  @Test(arguments: [OutboxSettings.Redelivery.never, .unconfirmed])
  func neverForgetsAMessageThatHasNotEnded(redelivery: OutboxSettings.Redelivery) {
    var box = OutboxFixture { $0.redelivery = redelivery }
    func postMany(_ count: Int) { for number in 0..<count { box.post("\(number)", topic: "t") } }
    for text in ["a", "b"] { box.post(text, ttl: nil) }
    postMany(70_000)
    #expect(box.outbox.ledger.state(of: 1) == .queued && box.outbox.ledger.state(of: 2) == .queued)
    #expect(box.outbox.ledger.count(in: .queued) == 3)
    #expect(box.outbox.ledger.state(of: 3) == nil, "replaced long ago")
    box.outbox.startSending()
    _ = box.take(messages: 1)
    box.outbox.barrierSent(1)
    box.outbox.written(through: 1)
    if redelivery == .unconfirmed { postMany(70_000) }
    #expect(box.outbox.ledger.state(of: 1) == .written)
    box.outbox.confirm(1)
    #expect(box.outbox.ledger.state(of: 1) == .confirmed)
    _ = box.take(messages: 1)
    box.outbox.written(through: 2)
    box.outbox.stopSending()
    box.outbox.settle()
    #expect(box.outbox.ledger.state(of: 2) == (redelivery == .never ? .unknown : .queued))
    box.outbox.close()
    #expect(box.outbox.ledger.count(in: .queued) == 0)
  }

  @Test func forgetsMessagesThatEndedLate() {
    var box = OutboxFixture {
      $0.maximumMessages = 5_000
      $0.overflow = .dropOldest
    }
    for _ in 0..<5_000 { box.post("m", ttl: .seconds(1)) }
    for _ in 0..<70_000 { box.post("m", ttl: .seconds(1), topic: "t") }
    let first = (1...5_000 as ClosedRange<UInt64>).filter { box.outbox.ledger.state(of: $0) == .queued }
    #expect(first.count == 4_999)
    box.now = box.now + .seconds(1)
    box.outbox.expire(now: box.now)
    let remembered = first.filter { box.outbox.ledger.state(of: $0) != nil }
    #expect(remembered.count == DeliveryLedger.lateLimit)
    #expect(box.outbox.ledger.total(.expired) == 5_000)
  }

  @Test(arguments: ["t", nil]) func messagesThatAreReplacedOrDroppedLeaveNoDeadlines(topic: String?) {
    var box = OutboxFixture {
      $0.maximumMessages = 10
      $0.overflow = .dropOldest
    }
    for _ in 0..<10_000 {
      // Messages with the same deadline would be in a single entry.
      box.now = box.now + .milliseconds(1)
      box.post("m", ttl: .hours(1), topic: topic)
    }
    #expect(box.outbox.messages == (topic == nil ? 10 : 1))
    #expect(box.outbox.expiry.count < 200)
  }

  @Test func remembersTheStatesOfTheLastMessagesOnly() {
    var box = OutboxFixture()
    box.outbox.startSending()
    box.write(70_000)
    #expect(box.outbox.ledger.state(of: 70_000) == .written)
    #expect(box.outbox.ledger.state(of: 70_000 - 65_535) == .written)
    #expect(box.outbox.ledger.state(of: 70_000 - 65_536) == nil)
    #expect(box.outbox.ledger.state(of: 0) == nil)
    #expect(box.outbox.ledger.state(of: 70_001) == nil)
    #expect(box.outbox.ledger.total(.written) == 70_000)
  }
}
