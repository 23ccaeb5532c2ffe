import ByteStreams
import TestSupport
import Testing

@testable import Outbox

/// Tests for a mistake of hand-written clients: they append to a queue that nothing drains.
@Suite struct WakingTests {
  /// Whenever messages are queued, the driver has been woken for them. The order of posts and turns does not matter.
  @Test(arguments: [UInt64](1...20))
  func aQueueIsSentHoweverItWasFilled(seed: UInt64) {
    var random = SeededGenerator(seed: seed)
    var box = OutboxFixture()
    var isWoken = false
    var posted = 0
    var left = 0
    for _ in 0..<5_000 {
      switch Int.random(in: 0..<20, using: &random) {
      case 0:
        if box.outbox.hasSendingConnection {
          box.outbox.stopSending(closedAsTooBig: false)
          box.outbox.settle(partiallyWritten: nil)
        } else {
          box.outbox.startSending()
          isWoken = true
        }
      case 1..<12:
        if case .queued(sequence: _, let wakes) = box.post("x", ttl: nil) {
          posted += 1
          isWoken = isWoken || wakes
        }
      default:
        guard isWoken, box.outbox.hasSendingConnection else { break }
        isWoken = false
        repeat {
          let batch = box.take(messages: Int.random(in: 1...8, using: &random))
          left += batch.count
          box.outbox.written(through: box.outbox.ledger.last)
        } while box.outbox.hasWaiting
      }
      #expect(
        isWoken || !box.outbox.hasSendingConnection || !box.outbox.hasWaiting,
        "messages wait, and the driver was not woken")
    }
    if !box.outbox.hasSendingConnection { box.outbox.startSending() }
    left += box.take().count
    #expect(posted > 1_000)
    #expect(left == posted)
  }
}
