import ByteStreams
import Testing

@testable import Outbox

/// `Outbox.withdraw`: each state of a message, and the state after the withdrawal.
@Suite struct WithdrawalTests {
  private func reason(_ box: OutboxFixture, _ sequence: UInt64 = 1) -> DeliveryReason? {
    box.outbox.ledger.record(of: sequence, now: box.now)?.reason
  }

  @Test func aWithdrawnMessageInTheQueueIsNotSent() {
    var box = OutboxFixture()
    for text in ["a", "b", "c", "d"] { box.post(text, topic: text) }
    box.outbox.withdraw(3)
    box.outbox.withdraw(1)
    box.outbox.withdraw(1)
    #expect(box.states == "eqeq" && reason(box, 3) == .ttl)
    #expect(box.outbox.messages == 2 && box.outbox.bytes == 2 && box.outbox.waitingBytes == 2)
    #expect(box.outbox.topics.keys.sorted() == ["b", "d"])
    box.outbox.startSending()
    #expect(box.take() == ["b", "d"])
  }

  @Test func aMessageThatAConnectionHasTakenIsNotWithdrawn() {
    var box = OutboxFixture()
    box.outbox.startSending()
    box.post("a")
    box.post("b")
    _ = box.take()
    box.outbox.written(through: 1)
    for sequence in [1, 2] as [UInt64] { box.outbox.withdraw(sequence) }
    #expect(box.states == "wq" && box.outbox.messages == 1)
    box.outbox.written(through: 2)
    box.outbox.barrierSent(1)
    box.outbox.confirm(1)
    box.outbox.withdraw(1)
    #expect(box.states == "cc")
  }

  @Test func aMessageThatReturnedToTheQueueIsWithdrawn() {
    var box = OutboxFixture()
    box.outbox.startSending()
    box.post("a")
    box.post("b")
    _ = box.take()
    box.outbox.block(returning: 2)
    for sequence in [1, 2] as [UInt64] { box.outbox.withdraw(sequence) }
    #expect(box.states == "qe")
  }

  @Test func aMessageThatWasWrittenIsNotWithdrawn() {
    var box = OutboxFixture { $0.redelivery = .unconfirmed }
    box.outbox.startSending()
    box.post("a")
    _ = box.take()
    box.outbox.written(through: 1)
    box.outbox.stopSending()
    box.outbox.settle()
    #expect(box.states == "q")
    box.outbox.withdraw(1)
    #expect(box.states == "u" && reason(box) == .connectionLost)
    box.outbox.startSending()
    #expect(box.take() == [])
  }

  @Test func aMessageWithTTLZeroIsSentAtOnce() {
    var box = OutboxFixture()
    box.outbox.startSending()
    box.post("a", ttl: .zero)
    box.outbox.withdraw(1)
    #expect(box.take() == ["a"])
  }

  @Test func aNumberWithoutAMessageIsIgnored() {
    var box = OutboxFixture()
    for sequence in [0, 1, 2, .max] as [UInt64] { box.outbox.withdraw(sequence) }
    box.post("a")
    for sequence in [0, 2, .max] as [UInt64] { box.outbox.withdraw(sequence) }
    #expect(box.states == "q")
  }

  @Test(arguments: [0, 10]) func sendersThatWithdrawLeaveNoState(others: Int) {
    var box = OutboxFixture()
    let deadline = box.now + .seconds(1)
    for _ in 0..<others { box.post("other", ttl: .seconds(1)) }
    for _ in 0..<10_000 {
      // Messages with the same deadline would be in a single entry.
      box.now = box.now + .milliseconds(1)
      box.post("m")
      box.outbox.withdraw(box.outbox.ledger.last)
    }
    #expect(box.outbox.messages == others && box.outbox.ring.count < 200 && box.outbox.expiry.count < 200)
    #expect(box.outbox.nextExpiry() == (others == 0 ? nil : deadline))
  }
}
