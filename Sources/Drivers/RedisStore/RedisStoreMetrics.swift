import ByteStreams
import Host
import Metrics
import Reactor
import Submissions
import Synchronization

package final class RedisStoreMetrics: Sendable {
  private let writes: Histogram
  private let bytes: Counter
  private let failed: Gauge
  private let up: Gauge
  private let scripts: [String: Histogram]
  private let failures: Counter
  private let local: Gauge
  private let damaged: Gauge
  private let takeOvers: Counter
  private let fenced: Counter
  private let histories: Counter
  private let unreachable: Gauge
  private let otherUpstreams: Gauge
  private let shortWaits: Counter
  /// In nanoseconds of `ProcessInformation.bootTime()`. 0 before the first heartbeat.
  private let lastHeartbeat = Atomic<UInt64>(0)

  init(_ registry: MetricsRegistry, _ submissions: SubmissionQueue) {
    writes = registry.histogram(
      "drawbridge_store_commit_seconds",
      "Time until Redis and its replicas have confirmed the entries that were sent together.")
    bytes = registry.counter("drawbridge_store_written_bytes_total", "Bytes of entries that were sent to Redis.")
    failures = registry.counter("drawbridge_store_failures_total", "How often the store has stopped working.")
    failed = registry.gauge(
      "drawbridge_store_failed", "1 while the store does not work: messages are refused, and pushes are not shown.")
    up = registry.gauge(
      "drawbridge_store_up", "1 while this gateway is connected to Redis, otherwise 0.")
    scripts = Dictionary(
      uniqueKeysWithValues: StoreScript.names.map { name in
        (
          name,
          registry.histogram(
            "drawbridge_store_script_seconds",
            "Time from sending a script to Redis to its reply, including the time of scripts that were sent before it.",
            [("script", name)])
        )
      })
    local = registry.gauge("drawbridge_store_held_sessions", "Sessions whose holder is this gateway.")
    damaged = registry.gauge(
      "drawbridge_store_damaged_sessions",
      "Sessions that this gateway does not use, because their data in Redis is damaged.")
    takeOvers = registry.counter("drawbridge_store_takeovers_total", "Sessions that this gateway has acquired.")
    fenced = registry.counter(
      "drawbridge_store_fenced_total", "Sessions that another gateway has acquired from this gateway.")
    histories = registry.counter("drawbridge_store_histories_total", "How often the history of Redis has changed.")
    unreachable = registry.gauge(
      "drawbridge_peers_unreachable", "Other gateways that this gateway has never reached at their addresses.")
    otherUpstreams = registry.gauge(
      "drawbridge_store_other_upstreams",
      "Gateways with the same store.prefix that connect a session to another host than this gateway does.")
    shortWaits = registry.counter(
      "drawbridge_store_wait_short_total", "How often fewer replicas than required have confirmed a write in time.")
    registry.gauge(
      "drawbridge_store_heartbeat_age_seconds",
      "Time since the last heartbeat that Redis has confirmed, 0 before the first. The gateway closes its sessions after four fifths of store.lease, or a second before its end if that is earlier."
    ) { [weak self] in self?.heartbeatAge.seconds ?? 0 }
    registry.gauge("drawbridge_store_pending_bytes", "Bytes of changes that are not stored yet.") {
      [weak submissions] in
      Double(submissions?.pendingBytes ?? 0)
    }
  }

  func noteWrite(_ time: TimeSpan, isConfirmed: Bool) {
    writes.observe(time)
    if !isConfirmed { shortWaits.add() }
  }
  func noteBytes(_ count: Int) { bytes.add(count) }
  func noteFailure() { failures.add() }
  func setFailed(_ hasFailed: Bool) { failed.set(hasFailed ? 1 : 0) }
  func setUp(_ isUp: Bool) { up.set(isUp ? 1 : 0) }
  func note(_ script: String, _ time: TimeSpan) { scripts[script]?.observe(time) }
  func setLocal(_ count: Int) { local.set(count) }
  func setDamaged(_ count: Int) { damaged.set(count) }
  func setUnreachable(_ count: Int) { unreachable.set(count) }
  func setOtherUpstreams(_ count: Int) { otherUpstreams.set(count) }
  func noteTakeOver() { takeOvers.add() }
  func noteFenced() { fenced.add() }
  func noteHistory() { histories.add() }
  func noteHeartbeat(at time: MonotonicTime) { lastHeartbeat.store(time.nanoseconds, ordering: .relaxed) }

  private var heartbeatAge: TimeSpan {
    let last = lastHeartbeat.load(ordering: .relaxed)
    return last == 0 ? .zero : max(.zero, ProcessInformation.bootTime() - MonotonicTime(nanoseconds: last))
  }
}
