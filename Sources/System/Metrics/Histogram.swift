import ByteStreams
import Synchronization
import Threading

/// The distribution of durations over fixed ranges. Safe for use from any thread.
///
/// A thread that observes often has its own part, so that it needs no lock and shares no cache line with others.
package final class Histogram: Sendable {
  /// The upper bounds of the ranges in seconds, each inclusive. The last range has no bound.
  ///
  /// All histograms have the same bounds. They reach from half the time that a request takes on an idle loop to more
  /// than the longest usual wait. With three bounds per decade, a quantile is known to within a factor of 2.5. A series
  /// has 22 lines of text: one per range, the sum and the count.
  package static let bounds = [
    0.00005, 0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 25, 60,
  ]
  private static let nanoseconds = bounds.map { Int64(($0 * 1e9).rounded()) }

  /// The index of the first range that includes the duration.
  package static func range(of duration: TimeSpan) -> Int {
    let nanoseconds = duration.nanoseconds
    // Most durations on a loop are short. For short durations, this path finds the range without reading the array.
    if nanoseconds <= 500_000 {
      if nanoseconds <= 100_000 { return nanoseconds <= 50_000 ? 0 : 1 }
      return nanoseconds <= 250_000 ? 2 : 3
    }
    var range = 4
    while range < Self.nanoseconds.count, nanoseconds > Self.nanoseconds[range] { range += 1 }
    return range
  }

  private let common = Locked(Part())
  private let parts = Locked<[Part]>([])

  init() { parts.withLock { $0.append(common.withLock { $0 }) } }

  package func observe(_ duration: TimeSpan) { common.withLock { $0.observe(duration) } }

  /// Returns a new part, for one thread.
  package func makePart() -> Part {
    let part = Part()
    parts.withLock { $0.append(part) }
    return part
  }

  /// The durations of all parts together. `cumulative` has the number of durations up to each bound, and as its last
  /// element the number of all durations. `sum` is in seconds.
  package var snapshot: (cumulative: [UInt64], sum: Double) {
    var counts = Array(repeating: UInt64(0), count: Self.bounds.count + 1)
    var sum = 0.0
    for part in parts.withLock({ $0 }) {
      for index in counts.indices { counts[index] += part.count(at: index) }
      sum += part.sum
    }
    for index in counts.indices.dropFirst() { counts[index] += counts[index - 1] }
    return (counts, sum)
  }

  /// The durations that one thread has observed. Only that thread calls `observe`.
  package final class Part: Sendable {
    /// The number of durations in each range, not cumulative.
    private let counts: InlineArray<20, Atomic<UInt64>>
    /// The sum of the durations in seconds, as the bits of a `Double`. A `Double` does not overflow and does not lose
    /// short durations.
    private let sumBits = Atomic<UInt64>(0)

    fileprivate init() {
      counts = InlineArray { _ in Atomic(0) }
      precondition(Histogram.bounds.count + 1 == counts.count, "each range has a count")
    }

    /// - Parameter count: how many times the duration was observed. A negative duration is counted as zero. It may
    ///   occur since two threads read the clock at different moments.
    package func observe(_ duration: TimeSpan, count: Int = 1) {
      observe(max(duration, .zero), in: Histogram.range(of: duration), count: count)
    }

    /// Like `observe(_:count:)`, for a duration that is not negative.
    ///
    /// - Parameter range: `Histogram.range(of: duration)`.
    package func observe(_ duration: TimeSpan, in range: Int, count: Int) {
      // No other thread writes, so the load and the store need not be one atomic operation.
      let seen = counts[range].load(ordering: .relaxed)
      counts[range].store(seen &+ UInt64(truncatingIfNeeded: count), ordering: .relaxed)
      sumBits.store((sum + duration.seconds * Double(count)).bitPattern, ordering: .relaxed)
    }

    fileprivate func count(at index: Int) -> UInt64 { counts[index].load(ordering: .relaxed) }
    fileprivate var sum: Double { Double(bitPattern: sumBits.load(ordering: .relaxed)) }
  }
}
