import ByteStreams
import Testing

@testable import Outbox

/// `Outbox.replied`: a reply confirms its message in every state, and the message is not sent again.
@Suite struct ReplyTests {
  /// An outbox whose three messages are written.
  private func fixture(_ change: (inout OutboxSettings) -> Void = { _ in }) -> OutboxFixture {
    var box = OutboxFixture {
      $0.redelivery = .unconfirmed
      change(&$0)
    }
    box.outbox.startSending()
    for text in ["a", "large", "c"] { box.post(text) }
    _ = box.take()
    box.outbox.written(through: 3)
    return box
  }

  private func reconnect(_ box: inout OutboxFixture, closedAsTooBig: Bool = false) {
    box.outbox.stopSending(closedAsTooBig: closedAsTooBig)
    box.outbox.settle()
    box.outbox.startSending()
  }

  @Test func aWrittenMessageIsConfirmedAndReleased() {
    var box = fixture()
    box.outbox.replied(to: 2)
    #expect(box.states == "wcw" && box.outbox.kept == 2 && box.outbox.bytes == 2)
    box.outbox.replied(to: 2)
    reconnect(&box)
    #expect(box.take() == ["a", "c"])
    #expect(box.states == "qcq" && box.outbox.messages == 2)
  }

  @Test func theOldestMessageIsReleased() {
    var box = fixture()
    for sequence in [1, 3, 2] as [UInt64] { box.outbox.replied(to: sequence) }
    #expect(box.states == "ccc" && box.outbox.ring.isEmpty && box.outbox.kept == 0 && box.outbox.bytes == 0)
    box.outbox.barrierSent(1)
    #expect(box.outbox.confirm(1) == 0)
    box.post("d")
    #expect(box.take() == ["d"])
  }

  @Test func aMessageThatReturnedToTheQueueIsNotSent() {
    var box = fixture()
    box.outbox.stopSending()
    box.outbox.settle()
    #expect(box.states == "qqq")
    box.outbox.replied(to: 1)
    box.outbox.replied(to: 2)
    #expect(box.states == "ccq" && box.outbox.messages == 1 && box.outbox.bytes == 1 && box.outbox.waiting == 1)
    box.outbox.startSending()
    #expect(box.take() == ["c"])
  }

  @Test func aMessageThatASuccessorHasTakenCannotBeStoppedAndIsConfirmedWhenItIsWritten() {
    var box = fixture()
    reconnect(&box)
    #expect(box.take() == ["a", "large", "c"])
    box.outbox.replied(to: 2)
    #expect(box.states == "qqq")
    box.outbox.written(through: 3)
    #expect(box.states == "wcw" && box.outbox.kept == 2 && box.outbox.bytes == 2 && box.outbox.messages == 0)
    reconnect(&box)
    #expect(box.take() == ["a", "c"])
  }

  @Test(arguments: [false, true]) func aMessageThatASuccessorHasNotWrittenIsNotSentAgain(closedAsTooBig: Bool) {
    var box = fixture()
    reconnect(&box)
    _ = box.take()
    box.outbox.replied(to: 1)
    box.outbox.replied(to: 2)
    // The second message is partially written, and was not too large.
    box.outbox.stopSending(closedAsTooBig: closedAsTooBig, partiallyWritten: 2)
    box.outbox.settle(partiallyWritten: 2)
    #expect(box.states == "ccq" && box.outbox.messages == 1 && box.outbox.bytes == 1 && box.outbox.waiting == 1)
    box.outbox.startSending()
    #expect(box.take() == ["c"])
  }

  @Test func aMessageThatTheKernelOfASuccessorDidNotTakeIsNotSentAgain() {
    var box = fixture()
    reconnect(&box)
    _ = box.take()
    for sequence in [1, 3] as [UInt64] { box.outbox.replied(to: sequence) }
    box.outbox.block(returning: 1)
    #expect(box.states == "cqc" && box.outbox.messages == 1 && box.outbox.waiting == 1 && box.outbox.waitingBytes == 5)
    #expect(box.take() == ["large"])
    box.outbox.written(through: 2)
    #expect(box.states == "cwc" && box.outbox.kept == 1 && box.outbox.bytes == 5)
  }

  @Test func aMessageWithAReplyWasNotTooLarge() {
    var box = fixture()
    box.outbox.replied(to: 2)
    reconnect(&box, closedAsTooBig: true)
    #expect(box.states == "qcx", "the largest of the others is rejected")
    #expect(box.take() == ["a"])
  }

  @Test func withoutRedeliveryOrConfirmationsNothingIsKept() {
    var box = fixture { $0.redelivery = .never }
    box.outbox.replied(to: 2)
    #expect(box.states == "wcw")
    box = fixture { $0.confirms = false }
    box.outbox.replied(to: 2)
    #expect(box.states == "www", "written is final")
  }

  @Test func aNumberWithoutAMessageIsIgnored() {
    var box = fixture()
    for sequence in [0, 4, .max] as [UInt64] { box.outbox.replied(to: sequence) }
    #expect(box.states == "www" && box.outbox.kept == 3)
  }

  @Test func theEndsOfWatchedMessagesInTheQueueAreReportedOnce() {
    var box = OutboxFixture()
    func post(_ text: String, ttl: TimeSpan? = nil, _ reportsEnd: Bool, _ box: inout OutboxFixture) {
      _ = box.outbox.enqueue(
        ByteSlice(ByteString(Array(text.utf8))), kind: .text, timeToLive: ttl, reportsEnd: reportsEnd, now: box.now)
    }
    for number in 1...6 { post("m", ttl: number == 2 ? .seconds(1) : nil, number != 4, &box) }
    box.outbox.withdraw(3)
    box.outbox.withdraw(4)
    #expect(box.outbox.takeEnded() == [3] && box.outbox.takeEnded() == [])
    box.now = box.now + .seconds(1)
    box.outbox.expire(now: box.now)
    #expect(box.outbox.takeEnded() == [2])
    box.outbox.startSending()
    _ = box.take(messages: 1)
    box.outbox.written(through: 1)
    box.outbox.stopSending()
    box.outbox.settle()
    #expect(box.outbox.takeEnded() == [], "it ended with its connection")
    box.outbox.close()
    #expect(box.outbox.takeEnded() == [5, 6])
  }

  @Test(arguments: [OutboxSettings.Redelivery.never, .unconfirmed], [false, true])
  func theEndOfAMessageThatWasTooLargeIsReportedAtOnce(redelivery: OutboxSettings.Redelivery, isWritten: Bool) {
    var box = OutboxFixture { $0.redelivery = redelivery }
    box.outbox.startSending()
    for text in ["a", "large"] { box.post(text) }
    _ = box.take()
    box.outbox.written(through: isWritten ? 2 : 1)
    box.outbox.stopSending(closedAsTooBig: true, partiallyWritten: isWritten ? nil : 2)
    #expect(box.states == "wx" && box.outbox.takeEnded() == [2])
  }
}
