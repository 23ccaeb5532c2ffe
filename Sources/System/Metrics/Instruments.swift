import Synchronization

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
  /// Adds `amount` unless the sum would exceed `limit`, and returns whether it was added. If two threads add at the
  /// same time, and both amounts together would exceed the limit, one of them is added.
  package func add(_ amount: Int, ifAtMost limit: Int) -> Bool {
    var before = current
    while true {
      guard before + amount <= limit else { return false }
      let (isExchanged, original) = value.weakCompareExchange(
        expected: before, desired: before + amount, ordering: .relaxed)
      if isExchanged { return true }
      before = original
    }
  }
  @inline(__always) package func set(_ amount: Int) { value.store(amount, ordering: .relaxed) }
  package var current: Int { value.load(ordering: .relaxed) }
}
