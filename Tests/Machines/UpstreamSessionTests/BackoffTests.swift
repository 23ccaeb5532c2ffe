import ByteStreams
import TestSupport
import Testing

@testable import UpstreamSession

@Suite struct BackoffTests {
  private func waits(_ strategy: BackoffStrategy, _ count: Int, seed: UInt64 = 1) -> [Double?] {
    var settings = BackoffSettings()
    settings.strategy = strategy
    var backoff = Backoff(settings)
    var random = SeededGenerator(seed: seed)
    return (0..<count).map { _ in backoff.nextDelay(using: &random)?.seconds }
  }

  @Test func aFixedWaitIsAlwaysTheSame() {
    #expect(waits(.fixed(.seconds(3)), 3) == [3, 3, 3])
  }

  @Test func growsByItsFactorUpToItsMaximum() {
    let strategy = BackoffStrategy.exponential(first: .seconds(1), factor: 3, cap: .seconds(20))
    #expect(waits(strategy, 5) == [1, 3, 9, 20, 20])
  }

  @Test func doublesFromZero() {
    func doubling(_ exhaustion: BackoffStrategy.Exhaustion) -> BackoffStrategy {
      .doubling(step: .seconds(2), cap: .seconds(8), whenExhausted: exhaustion)
    }
    #expect(waits(doubling(.hold), 6) == [0, 2, 4, 8, 8, 8])
    #expect(waits(doubling(.stop), 6) == [0, 2, 4, 8, nil, nil])
    #expect(waits(doubling(.reset), 7) == [0, 2, 4, 8, 0, 2, 4])
  }

  @Test func randomWaitsStayInTheirRange() {
    for wait in waits(.random(minimum: .seconds(2), maximum: .seconds(5)), 500) {
      #expect((2...5).contains(wait ?? -1))
    }
    for wait in waits(.decorrelatedJitter(base: .seconds(1), cap: .seconds(10)), 500) {
      #expect((1...10).contains(wait ?? -1))
    }
  }

  @Test func neverOverflowsHoweverOftenItFails() {
    #expect(waits(.exponential(first: .seconds(1), factor: 10, cap: .hours(1)), 2_000).last == 3600)
    #expect(waits(.doubling(step: .seconds(2), cap: .seconds(8), whenExhausted: .hold), 2_000).last == 8)
  }

  /// Ten thousand sessions lose one host. Their attempts are spread by the formula, not in waves.
  @Test func spreadsTheReconnectsOfManySessions() {
    for round in [0, 3, 8] {
      let top = min(30, 0.5 * Double(1 << round))
      var buckets = [Int](repeating: 0, count: 10)
      for seed in 0..<10_000 as Range<UInt64> {
        var settings = BackoffSettings()
        settings.strategy = BackoffSettings().strategy
        var backoff = Backoff(settings)
        var random = SeededGenerator(seed: seed)
        for _ in 0..<round { _ = backoff.nextDelay(using: &random) }
        let wait = backoff.nextDelay(using: &random)?.seconds ?? -1
        #expect(wait >= 0.1 && wait <= top)
        buckets[min(9, Int((wait - 0.1) / (top - 0.1) * 10))] += 1
      }
      // On average, a bucket has a thousand sessions. The limit is five standard deviations of the binomial
      // distribution.
      #expect(buckets.allSatisfy { abs($0 - 1_000) < 150 }, "round \(round): \(buckets)")
    }
  }
}
