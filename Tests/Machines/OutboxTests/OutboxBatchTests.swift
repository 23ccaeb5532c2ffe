import ByteStreams
import TestSupport
import Testing
import UpstreamSession

@testable import Outbox

/// Batches that are queued as a whole or not at all.
@Suite struct OutboxBatchTests {
  private func payloads(_ sizes: [Int]) -> [ByteSlice] {
    sizes.map { ByteSlice(ByteString([UInt8](repeating: 0x61, count: $0))) }
  }

  /// All messages of a batch fit, or nothing changes. The limits for single messages decide whether they fit.
  @Test(arguments: 0..<30)
  func aBatchIsQueuedAsAWholeOrChangesNothing(seed: UInt64) {
    var random = SeededGenerator(seed: seed)
    for _ in 0..<200 {
      var outbox = OutboxFixture {
        $0.maximumMessages = Int.random(in: 1...8, using: &random)
        $0.maximumBytes = Int.random(in: 1...40, using: &random)
        $0.overflow = Bool.random(using: &random) ? .refuse : .dropOldest
      }
      outbox.outbox.startSending(on: Generation(1))
      for _ in 0..<Int.random(in: 0...8, using: &random) {
        outbox.post(
          String(repeating: "m", count: .random(in: 0...8, using: &random)),
          topic: Bool.random(using: &random) ? "t" : nil)
        if Int.random(in: 0..<4, using: &random) == 0 { _ = outbox.take(messages: 1) }
      }
      let sizes = (0..<Int.random(in: 1...6, using: &random)).map { _ in Int.random(in: 0...8, using: &random) }
      let topic = Bool.random(using: &random) ? "t" : nil
      let (messages, bytes, last) = (outbox.outbox.messages, outbox.outbox.bytes, outbox.outbox.ledger.last)
      let result = outbox.outbox.enqueueAll(
        payloads(sizes), kind: .text, timeToLive: .seconds(30), topic: topic, now: outbox.now)
      if case .queued(let first, _) = result {
        #expect(first == last + 1 && outbox.outbox.ledger.last == last + UInt64(sizes.count))
        let states = sizes.indices.map { outbox.outbox.ledger.state(of: first + UInt64($0)) }
        let replaced = topic == nil ? 0 : sizes.count - 1
        #expect(states.prefix(replaced).allSatisfy { $0 == .replaced })
        #expect(states.dropFirst(replaced).allSatisfy { $0 == .queued })
      } else {
        #expect(outbox.outbox.messages == messages && outbox.outbox.bytes == bytes && outbox.outbox.ledger.last == last)
        // Separate calls could not queue all of these messages either.
        let single = sizes.map {
          outbox.outbox.enqueue(payloads([$0])[0], kind: .text, timeToLive: .seconds(30), topic: topic, now: outbox.now)
        }
        let isRefused = single.contains { if case .full = $0 { true } else { false } }
        let isDropped =
          topic == nil
          && (0..<sizes.count).contains {
            outbox.outbox.ledger.state(of: last + 1 + UInt64($0)) == .rejected
          }
        #expect(isRefused || isDropped || topic != nil)
      }
    }
  }

  /// An empty outbox with a connection that may send at once accepts exactly the batches that do not exceed a limit.
  @Test(arguments: 0..<30)
  func aBatchExceedsALimitIfAnEmptyOutboxRefusesIt(seed: UInt64) {
    var random = SeededGenerator(seed: seed)
    var limits: Set<BatchLimit> = []
    for _ in 0..<200 {
      var outbox = OutboxFixture {
        $0.maximumMessages = Int.random(in: 1...4, using: &random)
        $0.maximumBytes = Int.random(in: 1...20, using: &random)
        $0.overflow = Bool.random(using: &random) ? .refuse : .dropOldest
        if Bool.random(using: &random) { $0.pace = Pace(messages: 1, burst: .random(in: 1...4, using: &random)) }
      }
      outbox.outbox.startSending(on: Generation(1))
      let sizes = (0..<Int.random(in: 1...6, using: &random)).map { _ in Int.random(in: 0...8, using: &random) }
      let batch = payloads(sizes)
      let timeToLive = TimeSpan.seconds(Bool.random(using: &random) ? 0 : 30)
      let topic = Bool.random(using: &random) ? "t" : nil
      let limit = outbox.outbox.settings.batchLimit(for: batch, timeToLive: timeToLive, topic: topic)
      let result = outbox.outbox.enqueueAll(batch, kind: .text, timeToLive: timeToLive, topic: topic, now: outbox.now)
      switch (result, limit) {
      case (.queued, nil), (.full(.messages), .messages), (.full(.bytes), .bytes), (.notReady(.pace), .burst): break
      default: Issue.record("\(result) although the limit is \(String(describing: limit))")
      }
      if let limit { limits.insert(limit) }
    }
    #expect(limits == [.messages, .bytes, .burst])
  }

  @Test func aBatchWithTTLZeroNeedsAConnectionAndTheRate() {
    var outbox = OutboxFixture { $0.pace = Pace(messages: 1, burst: 2) }
    func post(_ count: Int) -> EnqueueResult {
      outbox.outbox.enqueueAll(
        payloads(Array(repeating: 1, count: count)), kind: .text, timeToLive: .zero, now: outbox.now)
    }
    #expect(post(1) == .notReady(.notConnected))
    outbox.outbox.startSending(on: Generation(1))
    guard case .notReady(.pace) = post(3) else {
      Issue.record("the pace allows two")
      return
    }
    #expect(outbox.outbox.messages == 0)
    #expect(post(2) == .queued(sequence: 1, wakes: true))
  }

  @Test func aClosedOutboxRefusesMessages() {
    var outbox = OutboxFixture()
    outbox.outbox.close()
    #expect(outbox.outbox.enqueueAll(payloads([1]), kind: .text, timeToLive: nil, now: outbox.now) == .closed)
  }
}
