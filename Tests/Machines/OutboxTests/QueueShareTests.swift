import ByteStreams
import JournalCoding
import TestSupport
import Testing
import Totals
import UpstreamSession

@testable import Outbox

/// The share of a queue that one client may use.
@Suite struct QueueShareTests {
  private func fixture(
    messages: Int = 64, bytes: Int = 64_000, _ overflow: OutboxSettings.Overflow = .refuse
  ) -> OutboxFixture {
    OutboxFixture {
      $0.maximumMessages = messages
      $0.maximumBytes = bytes
      $0.overflow = overflow
    }
  }

  private func payload(_ size: Int) -> ByteSlice { ByteSlice(ByteString([UInt8](repeating: 0x61, count: size))) }

  private func isQueued(_ result: EnqueueResult) -> Bool { if case .queued = result { true } else { false } }

  @Test func oneClientCannotUseUpTheQueue() {
    var box = fixture()
    for _ in 0..<64 { #expect(isQueued(box.post("m", by: 1))) }
    #expect(box.post("m", by: 1) == .full(.messages), "one client has the limit, and no more")
    #expect(box.post("m") == .full(.messages), "clients that cannot be distinguished count as one client")
    for client in 2...9 as ClosedRange<UInt64> {
      #expect(isQueued(box.post("m", by: client)))
      #expect(box.post("m", by: client) == .full(.messages), "the client has its share")
    }
    #expect(box.post("m", by: 10) == .full(.messages), "the reserve is used")
    #expect(box.outbox.messages == 72)
  }

  @Test func bytesHaveAReserve() {
    var box = fixture()
    #expect(isQueued(box.outbox.enqueue(payload(64_000), kind: .text, timeToLive: nil, by: 1, now: box.now)))
    #expect(box.post("m", by: 1) == .full(.bytes))
    let large = box.outbox.enqueue(payload(1_001), kind: .text, timeToLive: nil, by: 2, now: box.now)
    #expect(large == .full(.bytes))
    #expect(isQueued(box.outbox.enqueue(payload(1_000), kind: .text, timeToLive: nil, by: 2, now: box.now)))
    #expect(box.post("m", by: 2) == .full(.bytes))
  }

  @Test func aBatchFitsIntoTheReserveAsAWholeOrNot() {
    var box = fixture(messages: 640)
    for _ in 0..<640 { box.post("m", by: 1) }
    func post(_ count: Int, by client: UInt64) -> EnqueueResult {
      box.outbox.enqueueAll(
        (0..<count).map { _ in payload(1) }, kind: .text, timeToLive: nil, by: client, now: box.now)
    }
    #expect(post(1, by: 1) == .full(.messages) && post(11, by: 2) == .full(.messages))
    #expect(isQueued(post(10, by: 2)) && post(1, by: 2) == .full(.messages))
    let results = box.outbox.enqueue(
      (0..<12).map { _ in payload(1) }, kind: .text, timeToLive: nil, by: 3, now: box.now)
    #expect(results.map(\.count) == [10, 2] && results.last?.result == .full(.messages))
  }

  @Test func aReplacementByTheSameClientNeedsNoShare() {
    var box = fixture()
    for _ in 0..<64 { box.post("m", by: 1) }
    #expect(isQueued(box.post("a", topic: "t", by: 2)) && isQueued(box.post("b", topic: "t", by: 2)))
    #expect(box.post("c", topic: "t", by: 1) == .full(.messages), "the place of the replaced message is in the reserve")
  }

  /// A message stops counting towards its client's share, whatever the reason for which it leaves the queue.
  @Test func aMessageThatLeavesTheQueueStopsCounting() {
    var box = fixture(messages: 8)
    for client in 1...8 as ClosedRange<UInt64> { box.post("m", ttl: client < 3 ? .seconds(1) : nil, by: client) }
    #expect(box.outbox.clientTotals.clientCount == 8)
    box.now = box.now + .seconds(2)
    box.outbox.expire(now: box.now)
    #expect(box.outbox.clientTotals.clientCount == 6)
    box.outbox.withdraw(3)
    box.outbox.startSending(on: Generation(1))
    #expect(box.take(messages: 3).count == 3)
    box.outbox.reject(4, because: .tooLarge)
    box.outbox.written(through: 5)
    #expect(box.outbox.clientTotals.clientCount == 3)
    box.outbox.stopSending()
    box.outbox.settle()
    box.outbox.close()
    #expect(box.outbox.clientTotals.clientCount == 0 && box.outbox.messages == 0)
  }

  @Test func theClientWithMoreThanItsShareLosesItsOldestMessage() {
    var box = fixture(.dropOldest)
    box.post("other", by: 2)
    for _ in 0..<63 { box.post("m", by: 1) }
    for _ in 0..<100 { #expect(isQueued(box.post("m", by: 1))) }
    #expect(box.outbox.messages == 64 && box.outbox.ledger.state(of: 1) == .queued)
    #expect(isQueued(box.post("third", by: 3)) && box.outbox.messages == 64)
    // No client exceeds its share, so the oldest message of all clients is dropped.
    var fair = fixture(.dropOldest)
    for client in 1...65 as ClosedRange<UInt64> { fair.post("m", by: client) }
    #expect(fair.outbox.messages == 64 && fair.outbox.ledger.state(of: 1) == .rejected)
  }

  @Test func noMessageOfABatchIsDroppedForAnotherOfTheBatch() {
    var box = fixture(.dropOldest)
    for client in 1...64 as ClosedRange<UInt64> { box.post("m", by: client) }
    let result = box.outbox.enqueueAll(
      (0..<40).map { _ in payload(1) }, kind: .text, timeToLive: nil, by: 65, now: box.now)
    #expect(isQueued(result) && box.outbox.messages == 64)
    #expect((65..<105).allSatisfy { box.outbox.ledger.state(of: $0) == .queued })
  }

  @Test func messagesOfAnEarlierProcessCountForNoClient() {
    var box = fixture(messages: 64)
    var stored = StoredOutbox()
    for number in 1...64 as ClosedRange<UInt64> {
      let message = StoredMessage(
        number: number, payload: ByteString([0x61]), kind: .text, topic: nil, deadline: nil, time: 0)
      _ = stored.apply(.accepted(message))
    }
    box.outbox.startStoring(stored, at: JournalClock(now: box.now, wallClock: 0))
    #expect(box.outbox.messages == 64 && box.outbox.clientTotals.clientCount == 0)
    #expect(isQueued(box.post("m", by: 1)) && box.post("m", by: 1) == .full(.messages))
  }

  /// Random posts of several clients. The first client posts most messages. While the reserve has room, the outbox
  /// accepts messages of every client below its share.
  @Test(arguments: [UInt64](1...10), [OutboxSettings.Overflow.refuse, .dropOldest])
  func aClientBelowItsShareIsAccepted(seed: UInt64, overflow: OutboxSettings.Overflow) {
    var random = SeededGenerator(seed: seed)
    var box = fixture(messages: 128, overflow)
    var batch: [OutboxMessage] = []
    for _ in 0..<5_000 {
      switch Int.random(in: 0..<20, using: &random) {
      case 0..<15:
        let client = Bool.random(using: &random) ? 1 : UInt64.random(in: 2...5, using: &random)
        let own = box.outbox.clientTotals[client].count
        let held = box.outbox.messages + box.outbox.kept
        let result = box.post("m", by: client)
        if held < 128 || own < 2 && held < 144 { #expect(isQueued(result)) }
        if overflow == .refuse, held >= 128, own >= 2 { #expect(result == .full(.messages)) }
      case 15..<18:
        box.outbox.takeBatch(maximumMessages: 4, maximumBytes: 256, now: box.now, into: &batch)
        box.outbox.written(through: batch.last?.sequence ?? 0)
        batch.removeAll()
      case 18: if !box.outbox.hasSendingConnection { box.outbox.startSending(on: Generation(1)) }
      default:
        guard box.outbox.hasSendingConnection else { continue }
        box.outbox.stopSending()
        box.outbox.settle()
      }
      #expect(box.outbox.messages + box.outbox.kept <= 144)
      let counted = (0...5).reduce(0) { $0 + box.outbox.clientTotals[UInt64($1)].count }
      #expect(counted == box.outbox.messages + box.outbox.kept)
    }
  }
}
