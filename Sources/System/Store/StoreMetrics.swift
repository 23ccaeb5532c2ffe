import ByteStreams
import Host
import Metrics
import Submissions
import Synchronization

/// The metrics of the store.
package final class StoreMetrics: Sendable {
  private let commits: Histogram
  private let bytes: Counter
  private let logBytes: Gauge
  private let fileBytes: Gauge
  private let failed: Gauge
  private let unusedSessions: Gauge
  private let failures: Counter
  /// When the write in progress began, in nanoseconds of `MonotonicTime`. 0 if there is none.
  private let writeStart = Atomic<UInt64>(0)

  package init(_ registry: MetricsRegistry) {
    commits = registry.histogram("drawbridge_store_commit_seconds", "Time that commits of the store took.")
    bytes = registry.counter("drawbridge_store_written_bytes_total", "Bytes of entries that were stored.")
    logBytes = registry.gauge(
      "drawbridge_store_wal_bytes", "Bytes in the write-ahead log that are not copied to the database yet.")
    fileBytes = registry.gauge("drawbridge_store_bytes", "Size of the database and its write-ahead log.")
    unusedSessions = registry.gauge(
      "drawbridge_store_unused_sessions", "Stored sessions that the configuration does not have.")
    failures = registry.counter("drawbridge_store_failures_total", "How often the store has stopped working.")
    failed = registry.gauge(
      "drawbridge_store_failed",
      "1 while the store does not work, for one session or for all: messages are refused, and pushes are not stored.")
  }

  func register(_ store: Store, in registry: MetricsRegistry) {
    registry.gauge("drawbridge_store_pending_bytes", "Bytes of changes that are not stored yet.") { [weak store] in
      Double(store?.submissions.pendingBytes ?? 0)
    }
    registry.gauge(
      "drawbridge_store_write_age_seconds",
      "How long the current write of the store has taken, 0 without one. It grows while a disk does not respond."
    ) { [weak store] in store?.metrics.writeAge.seconds ?? 0 }
  }

  /// Called before the store writes, which may block.
  func beginWriting(at now: MonotonicTime) { writeStart.store(now.nanoseconds, ordering: .relaxed) }
  func endWriting() { writeStart.store(0, ordering: .relaxed) }

  private var writeAge: TimeSpan {
    let start = writeStart.load(ordering: .relaxed)
    return start == 0 ? .zero : max(.zero, ProcessInformation.monotonicTime() - MonotonicTime(nanoseconds: start))
  }

  func noteCommit(since start: MonotonicTime) { commits.observe(ProcessInformation.monotonicTime() - start) }
  func noteBytes(_ count: Int) { bytes.add(count) }
  func setLogBytes(_ count: Int) { logBytes.set(count) }
  func setFileBytes(_ count: Int) { fileBytes.set(count) }
  func setUnusedSessions(_ count: Int) { unusedSessions.set(count) }
  func noteFailure() { failures.add() }
  func setFailed(_ hasFailed: Bool) { failed.set(hasFailed ? 1 : 0) }
}
