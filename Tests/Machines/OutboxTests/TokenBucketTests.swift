import ByteStreams
import TestSupport
import Testing
import Outbox

@Suite struct TokenBucketTests {
  private let start = MonotonicTime(nanoseconds: 5_000_000_000)

  @Test func allowsTheBurstAtOnceAndThenOneAtATime() {
    var bucket = TokenBucket(Pace(messages: 10, burst: 3))
    #expect(bucket.available(now: start) == 3)
    bucket.take(3, now: start)
    #expect(bucket.available(now: start) == 0)
    #expect(bucket.nextToken(now: start) == start + .milliseconds(100))
    #expect(bucket.available(now: start + .milliseconds(99)) == 0)
    #expect(bucket.available(now: start + .milliseconds(100)) == 1)
    #expect(bucket.available(now: start + .milliseconds(299)) == 2)
    #expect(bucket.available(now: start + .seconds(60)) == 3)
  }

  @Test func reportsTheTimeOfTheNextTokenEvenWithTokensLeft() {
    var bucket = TokenBucket(Pace(messages: 10, burst: 2))
    bucket.take(1, now: start)
    #expect(bucket.available(now: start) == 1)
    #expect(bucket.nextToken(now: start) == start + .milliseconds(100))
  }

  /// Two loops use the bucket. The time of the second loop may be before the time at which the first loop took a token.
  @Test func theNextTokenIsTheSameForAClockThatIsBehind() {
    var bucket = TokenBucket(Pace(messages: 1, interval: .seconds(3600)))
    bucket.take(1, now: start)
    let behind = start - .microseconds(30)
    #expect(bucket.available(now: behind) == 0)
    #expect(bucket.nextToken(now: behind) == start + .seconds(3600))
  }

  /// A timer that fires late, by less than its grain, must not slow the pace down.
  @Test func keepsTheRateIfTimersAreLate() {
    var bucket = TokenBucket(Pace(messages: 500))
    var random = SeededGenerator(seed: 7)
    var now = start
    var sent = 0
    while now < start + .seconds(10) {
      let count = bucket.available(now: now)
      bucket.take(count, now: now)
      sent += count
      now = bucket.nextToken(now: now) + .microseconds(Int64.random(in: 0..<1_000, using: &random))
    }
    #expect((4_990...5_001).contains(sent), "\(sent)")
  }

  /// At more than one message a millisecond, each tick of the timer admits all messages that are due.
  @Test func keepsARateFinerThanTheTimers() {
    var bucket = TokenBucket(Pace(messages: 100_000))
    var now = start
    var sent = 0
    for _ in 0..<1_000 {
      let count = bucket.available(now: now)
      bucket.take(count, now: now)
      sent += count
      now = now + .milliseconds(1)
    }
    #expect((99_800...100_000).contains(sent), "\(sent)")
  }

  /// No interval has more messages than the burst and the pace allow, for any pattern of use.
  @Test(arguments: [UInt64](1...50))
  func neverExceedsItsRate(seed: UInt64) {
    var random = SeededGenerator(seed: seed)
    let pace = Pace(
      messages: Int.random(in: 1...400, using: &random),
      interval: .milliseconds(Int64.random(in: 10...2_000, using: &random)),
      burst: Int.random(in: 1...20, using: &random))
    var bucket = TokenBucket(pace)
    var now = start
    var given: [MonotonicTime] = []
    for _ in 0..<300 {
      let count = Int.random(in: 0...min(50, bucket.available(now: now)), using: &random)
      bucket.take(count, now: now)
      given += Array(repeating: now, count: count)
      now =
        Bool.random(using: &random)
        ? bucket.nextToken(now: now) : now + .microseconds(Int64.random(in: 0...5_000, using: &random))
    }
    let spacing = (pace.interval.nanoseconds + Int64(pace.messages) - 1) / Int64(pace.messages)
    for first in stride(from: 0, to: given.count, by: 7) {
      for last in stride(from: first, to: given.count, by: 11) {
        let time = (given[last] - given[first] + TokenBucket.slack).nanoseconds
        #expect(last - first + 1 <= pace.burst + Int(time / spacing), "seed \(seed)")
      }
    }
  }
}
