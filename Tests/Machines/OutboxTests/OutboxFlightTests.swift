import ByteStreams
import Testing
import UpstreamSession

@testable import Outbox

/// The messages that pongs confirm, and the fate of the messages of a lost connection.
@Suite struct OutboxFlightTests {
  @Test func aPongConfirmsAllMessagesBeforeItsPing() {
    var box = OutboxFixture()
    box.outbox.startSending()
    for text in ["a", "b", "c"] { box.post(text) }
    _ = box.take(messages: 2)
    #expect(box.outbox.messagesWithoutBarrier == 2)
    box.outbox.barrierSent(7)
    #expect(box.outbox.messagesWithoutBarrier == 0)
    _ = box.take()
    box.outbox.barrierSent(8)
    box.outbox.written(through: 3)
    #expect(box.outbox.confirm(7) == 2)
    #expect(box.states == "ccw")
    #expect(box.outbox.confirm(6) == 0)
    #expect(box.outbox.confirm(8) == 1)
    #expect(box.states == "ccc")
  }

  /// A new connection renews subscriptions. It must not renew a subscription whose message is still queued, or whose
  /// message was reported to its client as not sent.
  @Test func reportsWhetherAMessageWillBeSentAgain() {
    var box = OutboxFixture()
    box.outbox.startSending()
    for text in ["a", "b", "c"] { box.post(text) }
    #expect(box.outbox.progress(of: 1) == .waiting)
    _ = box.take()
    #expect(box.outbox.progress(of: 1) == .taken, "a successor must make the subscription again")
    box.outbox.written(through: 1)
    box.outbox.block(returning: 3)
    #expect((1...3).map { box.outbox.progress(of: $0) } == [.taken, .taken, .waiting])
    box.outbox.stopSending()
    box.outbox.settle()
    #expect((1...3).map { box.outbox.progress(of: $0) } == [.taken, .waiting, .waiting])
    #expect(box.outbox.progress(of: 100) == .taken, "unknown")
    box.outbox.startSending()
    _ = box.take()
    box.outbox.written(through: 3)
    box.outbox.stopSending(closedAsTooBig: true)
    #expect((1...3).map { box.outbox.progress(of: $0) } == [.taken, .taken, .notSent])
  }

  @Test func aPongStatesWhenTheOldestOfItsMessagesWasTaken() {
    var box = OutboxFixture()
    box.outbox.startSending()
    let start = box.now
    box.write(1)
    box.now = start + .seconds(1)
    box.write(1)
    box.outbox.barrierSent(1)
    box.now = start + .seconds(2)
    box.write(1)
    box.outbox.barrierSent(2)
    box.outbox.confirm(1)
    #expect(box.outbox.oldestConfirmed == start)
    box.outbox.confirm(1)
    #expect(box.outbox.oldestConfirmed == nil, "the messages were confirmed before")
    box.outbox.confirm(2)
    #expect(box.outbox.oldestConfirmed == start + .seconds(2))
  }

  @Test func aMessageThatReturnsToTheQueueIsTakenAgain() {
    var box = OutboxFixture()
    box.outbox.startSending()
    box.post("a")
    _ = box.take()
    box.outbox.block(returning: 1)
    box.now = box.now + .seconds(5)
    _ = box.take()
    box.outbox.barrierSent(1)
    box.outbox.written(through: 1)
    #expect(box.outbox.confirm(1) == 1)
    #expect(box.outbox.oldestConfirmed == box.now)
  }

  @Test func aPongCountsForItsOwnConnectionOnly() {
    var box = OutboxFixture()
    box.outbox.startSending(on: Generation(7))
    box.post("a")
    _ = box.take()
    box.outbox.barrierSent(1, on: Generation(6))
    #expect(box.outbox.messagesWithoutBarrier == 1, "the ping went out on another connection")
    box.outbox.barrierSent(1, on: Generation(7))
    box.outbox.written(through: 1)
    box.outbox.stopSending()
    #expect(box.outbox.isRetiring(Generation(7)) && box.outbox.retiringConnection == Generation(7))
    box.outbox.startSending(on: Generation(8))
    #expect(box.outbox.confirm(1, on: Generation(8)) == 0)
    #expect(box.outbox.confirm(1, on: Generation(7)) == 1)
  }

  @Test func reportsMessagesThatALostConnectionMayHaveDelivered() {
    var box = OutboxFixture()
    box.outbox.startSending()
    for text in ["a", "b", "c", "d"] { box.post(text) }
    _ = box.take(messages: 3)
    box.outbox.barrierSent(1)
    box.outbox.written(through: 2)
    box.outbox.stopSending()
    box.outbox.settle()
    #expect(box.states == "uuqq")
    box.outbox.startSending()
    #expect(box.take() == ["c", "d"])
    #expect(box.outbox.confirm(1) == 0, "a pong of the old connection confirms no message of the new connection")
  }

  @Test func sendsUnconfirmedMessagesAgainBeforeNewerMessages() {
    var box = OutboxFixture {
      $0.redelivery = .unconfirmed
      $0.maximumAttempts = 2
    }
    box.outbox.startSending()
    for text in ["a", "b", "c"] { box.post(text) }
    _ = box.take(messages: 2)
    box.outbox.barrierSent(1)
    box.outbox.written(through: 2)
    box.post("d")
    box.outbox.stopSending()
    box.outbox.settle()
    #expect(box.states == "qqqq")
    box.outbox.startSending()
    #expect(box.take(messages: 3) == ["a", "b", "c"])
    box.outbox.barrierSent(2)
    box.outbox.written(through: 3)
    #expect(box.outbox.messages == 1)
    box.outbox.stopSending()
    box.outbox.settle()
    // Messages a and b may be written at most twice.
    #expect(box.states == "uuqq")
    box.outbox.startSending()
    #expect(box.take() == ["c", "d"])
    box.outbox.barrierSent(3)
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

  @Test func keepsTheOrderInAHandOver() {
    var box = OutboxFixture()
    box.outbox.startSending()
    for text in ["a", "b", "c"] { box.post(text) }
    _ = box.take(messages: 2)
    box.outbox.barrierSent(1)
    box.outbox.stopSending()
    box.outbox.startSending()
    // The old connection still has a and b in its buffer, so c waits for them.
    #expect(box.take() == [])
    box.outbox.written(through: 2)
    #expect(box.take() == ["c"])
    #expect(box.outbox.confirm(1, retired: true) == 2)
    box.outbox.settle()
    #expect(box.states == "ccq")
    box.outbox.written(through: 3)
    #expect(box.states == "ccw")
  }

  /// No message of the old connection can come back to the queue. The successor does not wait for confirmations of the
  /// messages that it has written itself.
  @Test func aSuccessorContinuesWhileItsMessagesAreUnconfirmed() {
    var box = OutboxFixture { $0.redelivery = .unconfirmed }
    box.outbox.startSending()
    box.post("a")
    _ = box.take()
    box.outbox.barrierSent(1)
    box.outbox.written(through: 1)
    box.outbox.stopSending()
    box.outbox.startSending()
    for text in ["b", "c"] { box.post(text) }
    #expect(box.take() == [], "message a may have to be sent again, before message b")
    box.outbox.confirm(1, retired: true)
    #expect(box.take(messages: 1) == ["b"])
    box.outbox.written(through: 2)
    #expect(box.take() == ["c"])
    #expect(box.states == "cwq")
  }

  @Test func returnsUnwrittenMessagesOfTheOldConnectionToTheQueue() {
    var box = OutboxFixture()
    box.outbox.startSending()
    for text in ["a", "b"] { box.post(text) }
    _ = box.take(messages: 1)
    box.outbox.stopSending()
    box.outbox.startSending()
    box.outbox.settle()
    #expect(box.take() == ["a", "b"])
    box.outbox.barrierSent(4)
    box.outbox.written(through: 2)
    #expect(box.outbox.confirm(4) == 2)
    #expect(box.states == "cc")
  }

  @Test func endsTheRedeliveryOfMessagesWithTTLZero() {
    var box = OutboxFixture { $0.redelivery = .unconfirmed }
    box.outbox.startSending()
    box.post("now", ttl: .zero)
    _ = box.take()
    box.outbox.written(through: 1)
    box.outbox.stopSending()
    box.outbox.settle()
    #expect(box.states == "u")
  }

  @Test func countsARedeliveryOnceAndAWriteEachTime() {
    var box = OutboxFixture { $0.redelivery = .unconfirmed }
    box.post("a")
    for _ in 0..<2 {
      box.outbox.startSending()
      _ = box.take()
      box.outbox.written(through: 1)
      box.outbox.stopSending()
      box.outbox.settle()
    }
    let ledger = box.outbox.ledger
    #expect(ledger.redeliveries == 2 && ledger.total(.written) == 2 && ledger.total(.queued) == 1)
    #expect(ledger.count(in: .queued) == 1 && ledger.count(in: .written) == 0)
  }

  @Test func replacesReturnedMessagesByTheirKey() {
    var box = OutboxFixture { $0.redelivery = .unconfirmed }
    box.outbox.startSending()
    box.post("1", topic: "price")
    box.post("2", topic: "volume")
    _ = box.take()
    box.outbox.written(through: 1)
    box.post("3", topic: "price")
    box.post("4", topic: "volume")
    box.outbox.stopSending()
    box.outbox.settle()
    // The first message may have arrived, and the second message cannot have arrived.
    #expect(box.states == "urqq")
    box.outbox.startSending()
    #expect(box.take() == ["3", "4"])
    box.post("5", topic: "price")
    box.outbox.stopSending()
    box.outbox.settle()
    #expect(box.states == "urrqq")
    #expect(box.outbox.waitingBytes == 2)
  }

  // MARK: Frames that the kernel does not take

  @Test func aMessageThatTheKernelHasNotBegunWaitsAgainAndCanExpire() {
    var box = OutboxFixture { $0.pace = Pace(messages: 1, interval: .hours(1), burst: 5) }
    box.outbox.startSending()
    box.post("begun", ttl: .seconds(1))
    box.post("short", ttl: .seconds(1))
    box.post("now", ttl: .zero)
    box.post("long", ttl: nil)
    #expect(box.take() == ["begun", "short", "now", "long"])
    box.outbox.block(returning: 2)
    #expect(box.states == "qqeq")
    #expect(box.outbox.hasWaiting && box.outbox.waitingBytes == 9)
    #expect(box.outbox.nextExpiry() == box.now + .seconds(1))
    box.now = box.now + .seconds(2)
    box.outbox.expire(now: box.now)
    #expect(box.states == "qeeq")
    // One token is used, and one token is for the message that is taken now.
    #expect(box.take() == ["long"])
    box.outbox.written(through: 4)
    #expect(box.states == "weew")
    box.post("a")
    box.post("b")
    box.post("c")
    box.post("d")
    #expect(box.take() == ["a", "b", "c"])
    #expect(box.outbox.ring.count == 4)
  }

  @Test func aPingBehindMessagesThatWereTakenBackDoesNotConfirmThem() {
    var box = OutboxFixture()
    box.outbox.startSending()
    for text in ["a", "b", "c"] { box.post(text) }
    _ = box.take()
    box.outbox.barrierSent(1)
    box.outbox.block(returning: 2)
    #expect(box.outbox.messagesWithoutBarrier == 0)
    #expect(box.take() == ["b", "c"])
    box.outbox.written(through: 3)
    box.outbox.confirm(1)
    #expect(box.states == "cww")
    #expect(box.outbox.messagesWithoutBarrier == 2)
    box.outbox.barrierSent(2)
    box.outbox.confirm(2)
    #expect(box.states == "ccc")
  }

  @Test func aNewerMessageReplacesAMessageThatWasTakenBack() {
    var box = OutboxFixture()
    box.outbox.startSending()
    box.post("1", topic: "price")
    box.post("2", topic: "price")
    _ = box.take(messages: 1)
    box.outbox.block(returning: 1)
    #expect(box.states == "rq")
    box.post("3", topic: "price")
    #expect(box.states == "rrq")
    #expect(box.take() == ["3"])
  }

  // MARK: Barriers

  @Test func limitsThePingsWithoutPongs() {
    var box = OutboxFixture { $0.maximumBarriers = 2 }
    box.outbox.startSending()
    for number: UInt64 in 1...3 {
      box.post("\(number)")
      _ = box.take()
      #expect(box.outbox.messagesWithoutBarrier == (number < 3 ? 1 : 0))
      box.outbox.barrierSent(number)
    }
    box.outbox.written(through: 3)
    // The third ping is not a barrier of the outbox. Its pong still confirms the messages before the two earlier
    // barriers.
    #expect(box.outbox.confirm(3) == 2)
    #expect(box.states == "ccw")
    #expect(box.outbox.messagesWithoutBarrier == 1)
    box.outbox.barrierSent(4)
    box.outbox.confirm(4)
    #expect(box.states == "ccc")
  }

  @Test func anUpstreamWithoutPongsUsesNoMemory() {
    var box = OutboxFixture()
    box.outbox.startSending()
    for number: UInt64 in 1...100_000 {
      box.post("m")
      _ = box.take()
      box.outbox.written(through: number)
      if box.outbox.messagesWithoutBarrier > 0 { box.outbox.barrierSent(number) }
    }
    #expect(box.outbox.flight?.barriers.count == 8)
    #expect(box.outbox.flight?.largest.count == 1)
    #expect(box.outbox.ring.isEmpty)
    box.outbox.stopSending()
    box.outbox.settle()
    #expect(box.outbox.ledger.total(.unknown) == 100_000)
  }

  @Test func theLastPingConfirmsMessagesDespiteTheLimitOfPings() {
    var box = OutboxFixture { $0.maximumBarriers = 1 }
    box.outbox.startSending()
    for number: UInt64 in 1...2 {
      box.post("\(number)")
      _ = box.take()
      box.outbox.barrierSent(number)
    }
    box.outbox.written(through: 2)
    box.outbox.stopSending()
    box.outbox.barrierSent(3, retired: true)
    #expect(box.outbox.confirm(3, retired: true) == 2)
  }

  // MARK: Too large

  @Test func neverResendsAMessageThatWasTooLarge() {
    var box = OutboxFixture { $0.redelivery = .unconfirmed }
    box.outbox.startSending()
    for text in ["a", "huge"] { box.post(text) }
    _ = box.take()
    box.outbox.written(through: 2)
    box.outbox.stopSending(closedAsTooBig: true)
    box.outbox.settle()
    #expect(box.states == "qx")
    box.outbox.startSending()
    #expect(box.take() == ["a"])
  }

  @Test(arguments: [OutboxSettings.Redelivery.never, .unconfirmed])
  func theLargestMessageCountsAsTooLarge(redelivery: OutboxSettings.Redelivery) {
    var box = OutboxFixture { $0.redelivery = redelivery }
    box.outbox.startSending()
    for text in ["larger still", "a", "too large", "b", "c"] { box.post(text) }
    _ = box.take(messages: 1)
    box.outbox.barrierSent(1)
    _ = box.take()
    box.outbox.written(through: 4)
    box.outbox.confirm(1)
    box.outbox.stopSending(closedAsTooBig: true)
    box.outbox.settle()
    #expect(box.states == (redelivery == .never ? "cuxuq" : "cqxqq"))
  }

  @Test func theLastOfEquallyLargeMessagesCountsAsTooLarge() {
    var box = OutboxFixture()
    box.outbox.startSending()
    for text in ["aa", "bb", "c"] { box.post(text) }
    _ = box.take()
    box.outbox.written(through: 3)
    box.outbox.stopSending(closedAsTooBig: true)
    box.outbox.settle()
    #expect(box.states == "uxu")
  }

  /// The usual case: the upstream refuses the message when it has read the head of the frame, long before the whole
  /// message is written.
  @Test func aMessageThatIsRefusedWhileItIsWrittenIsNeverSentAgain() {
    var box = OutboxFixture()
    box.outbox.startSending()
    for text in ["a", "much too large", "b"] { box.post(text) }
    _ = box.take()
    box.outbox.written(through: 1)
    box.outbox.stopSending(closedAsTooBig: true, partiallyWritten: 2)
    #expect(box.states == "wxq")
    box.outbox.settle(partiallyWritten: 2)
    #expect(box.states == "uxq")
    #expect(box.outbox.messages == 1 && box.outbox.bytes == 1)
    box.outbox.startSending()
    #expect(box.take() == ["b"])
  }

  @Test func aMessageThatEndsSeveralConnectionsIsRejected() {
    var box = OutboxFixture { $0.maximumAttempts = 2 }
    for text in ["fatal", "b"] { box.post(text) }
    for states in ["qq", "xq"] {
      box.outbox.startSending()
      _ = box.take()
      box.outbox.stopSending()
      box.outbox.settle(partiallyWritten: 1)
      #expect(box.states == states)
    }
    box.outbox.startSending()
    #expect(box.take() == ["b"])
    #expect(box.outbox.bytes == 1)
  }

  @Test func connectionsThatEndBeforeAMessageBeginsDoNotCount() {
    var box = OutboxFixture { $0.maximumAttempts = 1 }
    box.post("a")
    for _ in 0..<10 {
      box.outbox.startSending()
      #expect(box.take() == ["a"])
      box.outbox.stopSending()
      box.outbox.settle()
      #expect(box.states == "q")
    }
  }
}
