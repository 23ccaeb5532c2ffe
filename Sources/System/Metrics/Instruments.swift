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
  package func set(_ amount: Int) { value.store(amount, ordering: .relaxed) }
  package var current: Int { value.load(ordering: .relaxed) }
}
