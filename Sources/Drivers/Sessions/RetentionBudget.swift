import Reactor
import Synchronization
import Threading
import Totals
import Upstream

/// Limits the pushes that all sessions together keep, and the dead letters of those that clients create. An append above the limit wakes the directory, which drops the oldest pushes of the
/// sessions that keep the most.
package final class RetentionBudget: Sendable {
  package let limit: Int
  /// The consumers of the sessions that clients create, in bytes, by the owners of the sessions. Enough for 10,000 consumers that are shared, or for
  /// 200,000 others. What they have cannot be taken back.
  let consumers: Locked<ReservedTotal>
  /// The late calls of the sessions that clients create.
  let lateCalls = LateCallTotal()
  private let used = Atomic<Int>(0)
  /// Above this many bytes, a trim is requested. More than `limit` only while the last trim could not free enough.
  private let threshold: Atomic<Int>
  private let isTrimming = Atomic(false)
  /// Wakes the directory. nil before it has started.
  private let trimmer = Locked<Signal?>(nil)

  /// Room that a trim makes, as a part of the limit, so that not every push causes one.
  private static var slack: Int { 64 }

  package init(limit: Int = .max, consumerBytes: Int = 128 << 20) {
    self.limit = limit
    consumers = Locked(ReservedTotal(limit: consumerBytes))
    threshold = Atomic(limit)
  }

  /// Bytes that consumers have now.
  var consumerBytes: Int { consumers.withLock { $0.used } }

  /// Bytes kept now.
  package var bytes: Int { used.load(ordering: .relaxed) }

  /// Whether a trim is requested and has not begun.
  var isTrimRequested: Bool { isTrimming.load(ordering: .acquiring) }

  /// Adds to the bytes that are kept. One atomic addition, as long as the limit is not reached.
  func add(_ growth: Int) {
    guard growth != 0 else { return }
    let bytes = used.add(growth, ordering: .relaxed).newValue
    guard bytes > threshold.load(ordering: .relaxed) else {
      if growth < 0, bytes <= limit { threshold.store(limit, ordering: .relaxed) }
      return
    }
    guard !isTrimming.exchange(true, ordering: .acquiringAndReleasing) else { return }
    trimmer.withLock { $0 }?.notify()
  }

  func setTrimmer(_ signal: Signal) {
    trimmer.withLock { $0 = signal }
    // Also if less is kept by now: a trim may have been requested before, and no other is until it has begun.
    signal.notify()
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

  /// The trim is complete. If it could not free enough, the next one waits until it may free something: a pass over all sessions for each
  /// push would be in vain.
  func trimEnds() {
    let bytes = bytes
    threshold.store(bytes > limit ? bytes + max(1, limit / Self.slack) : limit, ordering: .relaxed)
  }
}
