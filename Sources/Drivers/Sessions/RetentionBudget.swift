import Reactor
import Synchronization
import Threading

/// Limits the pushes that all sessions together keep. An append above the limit wakes the directory, which drops the oldest pushes of the
/// sessions that keep the most.
package final class RetentionBudget: Sendable {
  package let limit: Int
  private let used = Atomic<Int>(0)
  private let isTrimming = Atomic(false)
  /// Wakes the directory. nil before it has started.
  private let trimmer = Locked<Signal?>(nil)

  /// Room that a trim makes, as a part of the limit, so that not every push causes one.
  private static var slack: Int { 64 }

  package init(limit: Int = .max) { self.limit = limit }

  /// Bytes kept now.
  package var bytes: Int { used.load(ordering: .relaxed) }

  /// Adds to the bytes that are kept. One atomic addition, as long as the limit is not reached.
  func add(_ growth: Int) {
    guard growth != 0 else { return }
    let bytes = used.add(growth, ordering: .relaxed).newValue
    guard bytes > limit, !isTrimming.exchange(true, ordering: .acquiringAndReleasing) else { return }
    trimmer.withLock { $0 }?.notify()
  }

  func setTrimmer(_ signal: Signal) {
    trimmer.withLock { $0 = signal }
    if bytes > limit { signal.notify() }
  }

  /// Returns the size to which each inbox must be trimmed so that all fit, or nil if they do.
  ///
  /// - Parameter sizes: the bytes of each inbox.
  static func level(of sizes: [Int], limit: Int) -> Int? {
    guard sizes.reduce(0, +) > limit else { return nil }
    let target = limit - limit / slack
    // The largest are cut to one level: sorted upwards, each that fits into an equal share of what is left is kept whole.
    var left = target
    let sorted = sizes.sorted()
    for (index, size) in sorted.enumerated() {
      let share = left / (sorted.count - index)
      if size > share { return share }
      left -= size
    }
    return nil
  }

  /// The trim that `add` requested begins. A later append may request the next.
  func trimBegins() { isTrimming.store(false, ordering: .releasing) }
}
