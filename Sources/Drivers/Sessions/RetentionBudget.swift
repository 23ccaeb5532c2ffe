import Reactor
import Synchronization
import Threading
import Totals
import Upstream

/// Limits the memory of the pushes of all sessions and of the dead letters of created sessions, together. An append
/// that exceeds the limit wakes the directory, which drops the oldest pushes of the largest sessions.
package final class RetentionBudget: Sendable {
  /// The default of the setting `delivery.total_bytes`.
  package static let standardLimit = 512 << 20

  package let limit: Int
  /// The bytes of the consumers of created sessions, by owner. The limit is enough for 10,000 work-sharing consumers,
  /// or for 200,000 other consumers. A trim cannot free this memory.
  let consumers: Locked<ReservedTotal>
  /// The memory of the late calls of created sessions.
  let lateCalls = LateCallTotal()
  private let used = Atomic<Int>(0)
  /// The number of bytes above which a trim is requested. It is greater than `limit` only after a trim that could not
  /// free enough.
  private let threshold: Atomic<Int>
  private let isTrimming = Atomic(false)
  /// Wakes the directory; nil before the start.
  private let trimmer = Locked<Signal?>(nil)

  /// A trim frees this fraction of the limit (1/64) more than it must, so that the next push does not cause another
  /// trim.
  private static var slack: Int { 64 }

  package init(limit: Int = .max, consumerBytes: Int = 128 << 20) {
    self.limit = limit
    consumers = Locked(ReservedTotal(limit: consumerBytes))
    threshold = Atomic(limit)
  }

  /// The bytes that consumers have now.
  var consumerBytes: Int { consumers.withLock { $0.used } }

  /// The bytes that are kept now.
  package var bytes: Int { used.load(ordering: .relaxed) }

  /// Whether a trim was requested and has not begun.
  var isTrimRequested: Bool { isTrimming.load(ordering: .acquiring) }

  /// Changes the number of bytes by `growth`. Costs one atomic addition below the limit.
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
    // The signal is notified even if the total has fallen below the limit meanwhile: the trim counts as requested, and
    // no other trim is requested before this trim begins.
    signal.notify()
  }

  /// Returns the size to which each inbox must be trimmed so that all fit, or nil if they fit already.
  ///
  /// - Parameter sizes: the bytes of each inbox.
  static func level(of sizes: [Int], limit: Int) -> Int? {
    guard sizes.reduce(0, +) > limit else { return nil }
    let target = limit - limit / slack
    // The largest inboxes are trimmed to one level. To find this level, the inboxes are visited in ascending order of
    // size. An inbox that fits into an equal share of the remaining bytes is not trimmed.
    var left = target
    let sorted = sizes.sorted()
    for (index, size) in sorted.enumerated() {
      let share = left / (sorted.count - index)
      if size > share { return share }
      left -= size
    }
    return nil
  }

  /// Called when the requested trim begins. A later append may request the next trim.
  func trimBegins() { isTrimming.store(false, ordering: .releasing) }

  /// Called when the trim is complete. If the trim could not free enough, the threshold rises. Without the higher
  /// threshold, each push would cause a useless pass over all sessions.
  func trimEnds() {
    let bytes = bytes
    threshold.store(bytes > limit ? bytes + max(1, limit / Self.slack) : limit, ordering: .relaxed)
  }
}
