import Reactor
import Synchronization
import Threading
import Totals
import Upstream

/// Limits the bytes of the pushes of all sessions together, with the dead letters of created sessions. An append above
/// the limit wakes the directory, which drops the oldest pushes of the largest sessions.
package final class RetentionBudget: Sendable {
  package let limit: Int
  /// The bytes of the consumers of created sessions, by owner. The limit is enough for 10,000 work-sharing consumers,
  /// or for 200,000 others. This memory cannot be freed by a trim.
  let consumers: Locked<ReservedTotal>
  /// The late calls of the created sessions.
  let lateCalls = LateCallTotal()
  private let used = Atomic<Int>(0)
  /// A trim is requested above this many bytes. Greater than `limit` only after a trim that could not free enough.
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
    // Notified even if the total is below the limit by now: a trim may have been requested earlier, and no further trim
    // is requested before it begins.
    signal.notify()
  }

  /// Returns the size to which each inbox must be trimmed so that all fit, or nil if they fit already.
  ///
  /// - Parameter sizes: the bytes of each inbox.
  static func level(of sizes: [Int], limit: Int) -> Int? {
    guard sizes.reduce(0, +) > limit else { return nil }
    let target = limit - limit / slack
    // Cuts the largest inboxes to one level. In ascending order, an inbox that fits into an equal share of the
    // remaining bytes stays whole.
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

  /// Called when the trim is complete. If it could not free enough, the threshold rises: otherwise each push would
  /// cause a useless pass over all sessions.
  func trimEnds() {
    let bytes = bytes
    threshold.store(bytes > limit ? bytes + max(1, limit / Self.slack) : limit, ordering: .relaxed)
  }
}
