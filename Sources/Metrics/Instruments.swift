import Synchronization

/// A number that only grows, such as requests answered. From any thread.
package final class Counter: Sendable {
  private let value = Atomic<UInt64>(0)
  package init() {}
  @inline(__always) package func add(_ amount: Int = 1) {
    value.add(UInt64(truncatingIfNeeded: amount), ordering: .relaxed)
  }
  package var total: UInt64 { value.load(ordering: .relaxed) }
}

/// A number that goes up and down, such as open connections. From any thread.
package final class Gauge: Sendable {
  private let value = Atomic<Int>(0)
  package init() {}
  @inline(__always) package func add(_ amount: Int) { value.add(amount, ordering: .relaxed) }
  package func set(_ amount: Int) { value.store(amount, ordering: .relaxed) }
  package var current: Int { value.load(ordering: .relaxed) }
}

/// How measurements spread: a count for each bound, a sum, and a count of all. From any thread.
package final class Histogram: Sendable {
  /// Upper bounds of the buckets, rising; the last bucket, without bound, is implied.
  package let bounds: [Double]
  private let buckets: [Counter]
  private let nanos = Counter()

  package init(bounds: [Double]) {
    precondition(zip(bounds, bounds.dropFirst()).allSatisfy { $0 < $1 }, "the bounds of a histogram rise")
    self.bounds = bounds
    buckets = (0...bounds.count).map { _ in Counter() }
  }

  /// Seconds, from a millisecond to a minute.
  package static let latencyBounds: [Double] = [0.001, 0.005, 0.02, 0.1, 0.5, 1, 5, 10, 30, 60]

  package func observe(_ value: Double) {
    buckets[bounds.firstIndex { value <= $0 } ?? bounds.count].add()
    nanos.add(Int(value * 1e9))
  }

  /// Cumulative counts, one a bound and the last for all.
  package var cumulative: [UInt64] {
    var sum: UInt64 = 0
    return buckets.map { bucket in
      sum += bucket.total
      return sum
    }
  }
  package var sum: Double { Double(nanos.total) / 1e9 }
}
