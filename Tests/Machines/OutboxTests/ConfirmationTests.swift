import ByteStreams
import TestSupport
import Testing
import UpstreamSession

@testable import Outbox

/// One connection confirms messages and another does not, because a reload has changed the settings between them.
@Suite struct ConfirmationTests {
  @Test func writtenIsFinalOnAConnectionThatConfirmsNothing() {
    var box = OutboxFixture()
    box.outbox.startSending(on: Generation(1))
    box.write(1)
    box.outbox.barrierSent(1)
    box.write(1)
    box.outbox.stopSending()
    box.outbox.startSending(on: Generation(2), confirms: false)
    box.write(1)
    #expect(box.outbox.messagesWithoutBarrier == 0, "no ping is sent for the message")
    box.outbox.barrierSent(1)
    #expect(box.outbox.confirm(1) == 0)
    #expect([1, 2, 3].map { box.outbox.ledger.isSettled($0) } == [false, false, true])
    #expect(box.outbox.unconfirmed == 2)
    #expect(box.outbox.confirm(1, retired: true) == 1, "the previous connection still confirms")
    box.outbox.settle()
    #expect(box.states == "cuw" && box.outbox.unconfirmed == 0)
    box.outbox.stopSending()
    box.outbox.settle()
    #expect(box.states == "cuw", "the end of the connection changes nothing")
  }

  @Test func pongsConfirmMessagesOfALaterConnection() {
    var box = OutboxFixture { $0.confirms = false }
    box.outbox.startSending(on: Generation(1))
    box.write(2)
    // The kernel has not taken this message when the next connection begins.
    box.post("a")
    _ = box.take()
    box.outbox.stopSending()
    box.outbox.startSending(on: Generation(2), confirms: true)
    box.outbox.settle()
    #expect(box.states == "wwq")
    #expect(box.take() == ["a"])
    box.outbox.written(through: 3)
    #expect([1, 2, 3].map { box.outbox.ledger.isSettled($0) } == [true, true, false])
    #expect(box.outbox.unconfirmed == 1 && box.outbox.messagesWithoutBarrier == 1)
    box.outbox.barrierSent(1)
    #expect(box.outbox.confirm(1) == 1)
    #expect(box.states == "wwc" && box.outbox.unconfirmed == 0)
  }

  @Test func aReplyDoesNotChangeAFinalState() {
    var box = OutboxFixture()
    box.outbox.startSending(on: Generation(1), confirms: false)
    box.write(1)
    box.outbox.replied(to: 1)
    #expect(box.states == "w")
  }

  /// A message that may be sent again is kept until it is confirmed.
  @Test func aQueueThatSendsAgainConfirmsOnEachConnection() {
    var box = OutboxFixture { $0.redelivery = .unconfirmed }
    box.outbox.startSending(on: Generation(1), confirms: false)
    box.write(1)
    #expect(box.outbox.messagesWithoutBarrier == 1)
  }

  /// Compares the outbox with a model, with more messages than the ledger remembers.
  @Test(arguments: [UInt64](1...3))
  func countsUnconfirmedMessages(seed: UInt64) {
    var random = SeededGenerator(seed: seed)
    var settings = OutboxSettings()
    settings.confirms = seed % 2 == 0
    settings.maximumMessages = 10_000
    var outbox = Outbox(settings)
    // For each message, whether the last connection that took the message confirms messages.
    var confirms: [Bool] = []
    var counter: UInt64 = 0
    for number in UInt64(1)...60 {
      let generation = Generation(number)
      let isConfirming = Bool.random(using: &random)
      outbox.startSending(on: generation, confirms: isConfirming)
      for _ in 0..<Int.random(in: 1...10, using: &random) {
        for _ in 0..<Int.random(in: 1...1_000, using: &random) {
          _ = outbox.enqueue(ByteSlice(ByteString([1])), kind: .binary, timeToLive: nil, now: .zero)
          confirms.append(isConfirming)
        }
        var batch: [OutboxMessage] = []
        outbox.takeBatch(maximumMessages: .max, maximumBytes: .max, now: .zero, into: &batch)
        for message in batch { confirms[Int(message.sequence) - 1] = isConfirming }
        outbox.written(through: outbox.ledger.last - UInt64.random(in: 0...2, using: &random))
        counter += 1
        // A ping is sent only if no message is in the buffer of the connection, so that its pong confirms all written
        // messages.
        if outbox.isEmpty { outbox.barrierSent(counter, on: generation) }
        if Bool.random(using: &random) { outbox.confirm(counter, on: generation) }
      }
      let first = max(0, confirms.count - outbox.ledger.limit)
      var unconfirmed = 0
      for index in first..<confirms.count {
        switch outbox.ledger.state(of: UInt64(index) + 1) {
        case .written where confirms[index]: unconfirmed += 1
        case .confirmed, .unknown: #expect(confirms[index])
        default: break
        }
      }
      #expect(outbox.unconfirmed == unconfirmed)
      outbox.stopSending(closedAsTooBig: Int.random(in: 0..<4, using: &random) == 0)
      if Bool.random(using: &random) { outbox.settle() }
    }
    #expect(confirms.count > 2 * outbox.ledger.limit, "the oldest are forgotten")
  }
}
