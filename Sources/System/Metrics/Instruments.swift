import Synchronization
import Threading

/// A number that only increases, such as the number of requests. Safe for use from any thread.
package final class Counter: Sendable {
  private let value = Atomic<UInt64>(0)
  package init() {}
  @inline(__always) package func add(_ amount: Int = 1) {
    value.add(UInt64(truncatingIfNeeded: amount), ordering: .relaxed)
  }
  package var total: UInt64 { value.load(ordering: .relaxed) }
}

/// A number that increases and decreases, such as the number of open connections. Safe for use from any thread.
package final class Gauge: Sendable {
  private let value = Atomic<Int>(0)
  package init() {}
  @inline(__always) package func add(_ amount: Int) { value.add(amount, ordering: .relaxed) }
  package func set(_ amount: Int) { value.store(amount, ordering: .relaxed) }
  package var current: Int { value.load(ordering: .relaxed) }
}

/// The distribution of a value, such as a duration, over ranges. Safe for use from any thread.
package final class Histogram: Sendable {
  private struct State: Sendable {
    /// How many values were in each range, not cumulative. The last range has no upper bound.
    var counts: [UInt64]
    var sum = 0.0
  }

  /// The upper bounds of the ranges, each inclusive, in ascending order.
  let bounds: [Double]
  private let state: Locked<State>

  init(bounds: [Double]) {
    self.bounds = bounds
    state = Locked(State(counts: Array(repeating: 0, count: bounds.count + 1)))
  }

  package func observe(_ value: Double) {
    let range = bounds.firstIndex { value <= $0 } ?? bounds.count
    state.withLock { state in
      state.counts[range] += 1
      state.sum += value
    }
  }

  /// How many values were at most each bound, and in all; and their sum.
  package var snapshot: (cumulative: [UInt64], sum: Double) {
    let state = state.withLock { $0 }
    var total: UInt64 = 0
    let cumulative = state.counts.map { count in
      total += count
      return total
    }
    return (cumulative, state.sum)
  }
}
