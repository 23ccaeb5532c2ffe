import ByteStreams
import TestSupport
import Testing
import UpstreamSession

@testable import Outbox

/// Messages that are queued in one call.
@Suite struct OutboxBatchResultsTests {
  private func payloads(_ texts: [String]) -> [ByteSlice] {
    texts.map { ByteSlice(ByteString(Array($0.utf8))) }
  }

  @Test func aBatchThatIsQueuedAsAWholeHasOneResult() {
    var box = OutboxFixture()
    box.outbox.startSending(on: Generation(1))
    box.post("before")
    let results = box.outbox.enqueue(payloads(["a", "b", "c"]), kind: .text, timeToLive: .seconds(1), now: box.now)
    #expect(results == [EnqueueResults(result: .queued(sequence: 2, wakes: true), count: 3)])
    #expect(box.take() == ["before", "a", "b", "c"])
  }

  @Test func refusedMessagesHaveTheirOwnResultsInOrder() {
    var box = OutboxFixture { $0.maximumBytes = 10 }
    let results = box.outbox.enqueue(
      payloads(["1234", "123456789", "12345678", "123", "12"]), kind: .text, timeToLive: nil, now: box.now)
    #expect(
      results == [
        EnqueueResults(result: .queued(sequence: 1, wakes: true), count: 1),
        EnqueueResults(result: .full(.bytes), count: 2),
        EnqueueResults(result: .queued(sequence: 2, wakes: false), count: 2),
      ])
    #expect(box.outbox.enqueue([], kind: .text, timeToLive: nil, now: box.now).isEmpty)
  }

  /// Compares messages that are queued in one call with messages that are queued one by one. The runs reach every
  /// limit, and use topics and every kind of time to live.
  @Test(arguments: 1...200 as ClosedRange<UInt64>)
  func aBatchHasTheResultsOfItsMessagesOneByOne(seed: UInt64) {
    var random = SeededGenerator(seed: seed)
    var settings = OutboxSettings()
    settings.maximumMessages = Int.random(in: 1...40, using: &random)
    settings.maximumBytes = Int.random(in: 10...400, using: &random)
    settings.overflow = Bool.random(using: &random) ? .refuse : .dropOldest
    if Bool.random(using: &random) { settings.pace = Pace(messages: 10, burst: 3) }
    var together = Outbox(settings)
    var single = Outbox(settings)
    var now = MonotonicTime(nanoseconds: 1_000_000_000)
    if Bool.random(using: &random) {
      together.startSending(on: Generation(1))
      single.startSending(on: Generation(1))
    }
    for _ in 0..<20 {
      now = now + .milliseconds(Int64.random(in: 0...400, using: &random))
      let ttl: TimeSpan? = [.zero, .milliseconds(500), .seconds(9), nil].randomElement(using: &random) ?? nil
      let topic: String? = Int.random(in: 0..<4, using: &random) == 0 ? "t" : nil
      let payloads = (0..<Int.random(in: 0...12, using: &random)).map { _ in
        ByteSlice(ByteString(Array(repeating: 1, count: Int.random(in: 0...40, using: &random))))
      }
      let results = together.enqueue(payloads, kind: .text, timeToLive: ttl, topic: topic, now: now)
      let expected = payloads.map { single.enqueue($0, kind: .text, timeToLive: ttl, topic: topic, now: now) }
      expectEqual(results, expected)
      #expect(together.nextExpiry() == single.nextExpiry())
      #expect(together.expire(now: now) == single.expire(now: now))
      #expect(taken(from: &together, now) == taken(from: &single, now))
      #expect(together.ledger.losses == single.ledger.losses)
    }
  }

  private func taken(from outbox: inout Outbox, _ now: MonotonicTime) -> [UInt64] {
    var batch: [OutboxMessage] = []
    outbox.takeBatch(maximumMessages: 5, maximumBytes: .max, now: now, into: &batch)
    return batch.map(\.sequence)
  }

  private func expectEqual(_ all: [EnqueueResults], _ expected: [EnqueueResult]) {
    var position = 0
    for results in all {
      let part = expected[position..<position + results.count]
      position += results.count
      guard case .queued(let first, let wakes) = results.result else {
        #expect(part.allSatisfy { $0 == results.result })
        continue
      }
      for (offset, result) in part.enumerated() {
        guard case .queued(first + UInt64(offset), _) = result else {
          Issue.record("message \(offset) of \(results): \(result)")
          continue
        }
      }
      #expect(wakes == part.contains { if case .queued(_, wakes: true) = $0 { true } else { false } })
    }
    #expect(position == expected.count)
  }
}
