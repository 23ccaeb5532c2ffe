import ByteStreams
import Testing

@testable import UpstreamSession

/// An outbox with a clock, asked the way a driver asks.
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
    _ text: String, ttl: TimeSpan? = .seconds(30), topic: String? = nil
  ) -> EnqueueResult {
    outbox.enqueue(SharedBytes(Array(text.utf8)), isText: true, timeToLive: ttl, topic: topic, now: now)
  }

  mutating func take(messages: Int = .max, bytes: Int = .max) -> [String] {
    var batch: [OutboxMessage] = []
    outbox.takeBatch(maximumMessages: messages, maximumBytes: bytes, now: now, into: &batch)
    return batch.map { $0.payload.bytes.text() }
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
  @Test func leavesInTheOrderItCame() {
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

  @Test func refusesWhatIsOverTheBounds() {
    var box = OutboxFixture {
      $0.maximumMessages = 2
      $0.maximumBytes = 10
    }
    box.post("12345")
    box.post("1")
    #expect(box.post("") == .full)
    var byBytes = OutboxFixture { $0.maximumBytes = 10 }
    byBytes.post("12345")
    #expect(byBytes.post("123456") == .full)
    #expect(byBytes.post("12345") == .queued(sequence: 2, wakes: false))
  }

  @Test func takesOneMessageOfAnySizeWhenEmpty() {
    var box = OutboxFixture { $0.maximumBytes = 4 }
    #expect(box.post("123456789") == .queued(sequence: 1, wakes: true))
    #expect(box.post("") == .full)
  }

  @Test func dropsTheOldestWhereConfigured() {
    var box = OutboxFixture {
      $0.maximumMessages = 2
      $0.overflow = .dropOldest
    }
    for text in ["a", "b", "c", "d"] { box.post(text) }
    #expect(box.states == "xxqq")
    box.outbox.startSending()
    #expect(box.take() == ["c", "d"])
  }

  @Test func expiresAtTheTimeOfEach() {
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

  @Test func takesNowOrNeverOnlyWhileReady() {
    var box = OutboxFixture()
    #expect(box.post("x", ttl: .zero) == .notReady)
    box.outbox.startSending()
    box.post("a", ttl: .zero)
    box.post("b", ttl: .zero)
    #expect(box.take(messages: 1) == ["a"])
    box.outbox.stopSending()
    #expect(box.states == "qe")
    box.outbox.settle()
    #expect(box.states == "ee")
  }

  @Test func replacesByTopicAndTakesItsRoom() {
    var box = OutboxFixture { $0.maximumMessages = 2 }
    box.post("1", topic: "price")
    box.post("other")
    #expect(box.post("2", topic: "price") == .queued(sequence: 3, wakes: false))
    #expect(box.states == "rqq")
    box.outbox.startSending()
    #expect(box.take() == ["other", "2"])
    // What has been taken is not replaced any more.
    #expect(box.post("3", topic: "price") == .full)
    box.outbox.written(through: 3)
    box.post("3", topic: "price")
    #expect(box.states == "rwwq")
  }

  @Test func doesNotGrowByReplacements() {
    var box = OutboxFixture()
    box.post("old", ttl: nil)
    for number in 0..<100_000 { box.post("\(number)", topic: "t") }
    #expect(box.outbox.ring.count < 200)
    #expect(box.outbox.messages == 2)
    box.outbox.startSending()
    #expect(box.take() == ["old", "99999"])
  }

  @Test func confirmsAllBeforeTheBarrier() {
    var box = OutboxFixture()
    box.outbox.startSending()
    for text in ["a", "b", "c"] { box.post(text) }
    _ = box.take(messages: 2)
    #expect(box.outbox.unguarded == 2)
    box.outbox.barrier(7)
    #expect(box.outbox.unguarded == 0)
    _ = box.take()
    box.outbox.barrier(8)
    box.outbox.written(through: 3)
    #expect(box.outbox.confirm(7) == 2)
    #expect(box.states == "ccw")
    #expect(box.outbox.confirm(6) == 0)
    #expect(box.outbox.confirm(8) == 1)
    #expect(box.states == "ccc")
  }

  @Test func tellsWhatALostConnectionMayHaveDelivered() {
    var box = OutboxFixture()
    box.outbox.startSending()
    for text in ["a", "b", "c", "d"] { box.post(text) }
    _ = box.take(messages: 3)
    box.outbox.barrier(1)
    box.outbox.written(through: 2)
    box.outbox.stopSending()
    box.outbox.settle()
    #expect(box.states == "uuqq")
    box.outbox.startSending()
    #expect(box.take() == ["c", "d"])
    #expect(box.outbox.confirm(1) == 0, "a pong of the old connection says nothing of the new one")
  }

  @Test func sendsUnconfirmedAgainAheadOfNewer() {
    var box = OutboxFixture {
      $0.redelivery = .unconfirmed
      $0.maximumAttempts = 2
    }
    box.outbox.startSending()
    for text in ["a", "b", "c"] { box.post(text) }
    _ = box.take(messages: 2)
    box.outbox.barrier(1)
    box.outbox.written(through: 2)
    box.post("d")
    box.outbox.stopSending()
    box.outbox.settle()
    #expect(box.states == "qqqq")
    box.outbox.startSending()
    #expect(box.take(messages: 3) == ["a", "b", "c"])
    box.outbox.barrier(2)
    box.outbox.written(through: 3)
    #expect(box.outbox.messages == 1)
    box.outbox.stopSending()
    box.outbox.settle()
    // Two writes each are all that a and b may have.
    #expect(box.states == "uuqq")
    box.outbox.startSending()
    #expect(box.take() == ["c", "d"])
    box.outbox.barrier(3)
    box.outbox.written(through: 4)
    #expect(box.outbox.confirm(3) == 2)
    #expect(box.states == "uucc")
    #expect(box.outbox.bytes == 0)
    #expect(box.outbox.ring.isEmpty)
  }

  @Test func endsRedeliveryAtItsTimeAsUnknown() {
    var box = OutboxFixture { $0.redelivery = .unconfirmed }
    box.outbox.startSending()
    box.post("a", ttl: .seconds(1))
    _ = box.take()
    box.outbox.written(through: 1)
    box.outbox.stopSending()
    box.outbox.settle()
    box.now = box.now + .seconds(2)
    box.outbox.expire(now: box.now)
    #expect(box.states == "u")
  }

  @Test func handsOverToASuccessorWithoutLosingOrder() {
    var box = OutboxFixture()
    box.outbox.startSending()
    for text in ["a", "b", "c"] { box.post(text) }
    _ = box.take(messages: 2)
    box.outbox.barrier(1)
    box.outbox.stopSending()
    box.outbox.startSending()
    // The old connection still has a and b in its buffer: c waits for them.
    #expect(box.take() == [])
    box.outbox.written(through: 2)
    #expect(box.take() == ["c"])
    #expect(box.outbox.confirm(1, retired: true) == 2)
    box.outbox.settle()
    #expect(box.states == "ccq")
    box.outbox.written(through: 3)
    #expect(box.states == "ccw")
  }

  @Test func putsBackWhatTheOldConnectionNeverWrote() {
    var box = OutboxFixture()
    box.outbox.startSending()
    for text in ["a", "b"] { box.post(text) }
    _ = box.take(messages: 1)
    box.outbox.stopSending()
    box.outbox.startSending()
    box.outbox.settle()
    #expect(box.take() == ["a", "b"])
    box.outbox.barrier(4)
    box.outbox.written(through: 2)
    #expect(box.outbox.confirm(4) == 2)
    #expect(box.states == "cc")
  }

  @Test func neverSendsAPoisonedMessageAgain() {
    var box = OutboxFixture { $0.redelivery = .unconfirmed }
    box.outbox.startSending()
    for text in ["a", "huge"] { box.post(text) }
    _ = box.take()
    box.outbox.written(through: 2)
    box.outbox.stopSending(lastIsPoison: true)
    box.outbox.settle()
    #expect(box.states == "qx")
    box.outbox.startSending()
    #expect(box.take() == ["a"])
  }

  @Test func closesWithTheQueueRejected() {
    var box = OutboxFixture()
    for text in ["a", "b"] { box.post(text) }
    box.outbox.close()
    #expect(box.states == "xx")
    #expect(box.post("c") == .closed)
    #expect(box.outbox.bytes == 0)
  }

  @Test func remembersTheLastMessagesOnly() {
    var box = OutboxFixture()
    box.outbox.startSending()
    for _ in 0..<70_000 {
      box.post("m")
      _ = box.take()
      box.outbox.written(through: box.outbox.ledger.last)
    }
    #expect(box.outbox.ledger.state(of: 70_000) == .written)
    #expect(box.outbox.ledger.state(of: 70_000 - 65_535) == .written)
    #expect(box.outbox.ledger.state(of: 70_000 - 65_536) == nil)
    #expect(box.outbox.ledger.state(of: 0) == nil)
    #expect(box.outbox.ledger.state(of: 70_001) == nil)
    #expect(box.outbox.ledger.total(.written) == 70_000)
  }
}
