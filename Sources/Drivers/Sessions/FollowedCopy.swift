import ByteStreams
import Host
import Inbox
import Journal
import Metrics
import Reactor
import RedisStore
import Synchronization
import Threading

/// What this gateway knows of its copy of a session that others may hold: whether it is current and how late it is. It also asks the store to follow the
/// session, and to read it once more. The sessions of a slot share it.
///
/// Thread-safe. What polls use takes no lock.
package final class FollowedCopy: Sendable {
  /// What follows the session.
  struct Source: Sendable {
    /// As `RedisStore.follow`.
    let follow: @Sendable (_ refresh: UInt64, _ hasReaders: Bool) -> Void
    /// Whether the store cannot be reached, for longer than short interruptions.
    let isAway: @Sendable () -> Bool
  }

  /// How long a reader waits for a copy to be current. A copy is read in milliseconds if Redis works; short interruptions take up to two seconds.
  package static var patience: TimeSpan { .seconds(2) }
  /// Between two calls of the store because of readers. A session is followed for a minute after the last one.
  static var useInterval: TimeSpan { .seconds(1) }
  /// The same while nobody reads, if the session is followed nevertheless.
  private static var keepInterval: TimeSpan { .seconds(20) }
  /// How long the holder takes clients of other gateways for present after it was notified. `SessionUpkeep` repeats that every 5 s while they wait.
  static var distantReadersTime: TimeSpan { .seconds(15) }

  /// Whether the session is followed while nobody reads it here.
  private let isAlwaysFollowed: Bool
  private let lags: Histogram
  private let source = Locked<Source?>(nil)
  private let current = Atomic(false)
  /// In nanoseconds.
  private let lastUse = Atomic<UInt64>(0)
  private let lastCall = Atomic<UInt64>(0)
  /// Numbers of the last refresh that was requested, and of the last one that is complete.
  private let requested = Atomic<UInt64>(0)
  private let refreshed = Atomic<UInt64>(0)
  /// Of the newest push, in milliseconds; negative: none has arrived.
  private let newestLag = Atomic<Int64>(-1)

  init(isAlwaysFollowed: Bool, metrics registry: MetricsRegistry) {
    self.isAlwaysFollowed = isAlwaysFollowed
    lags = registry.histogram(
      "drawbridge_store_lag_seconds",
      "Time from the arrival of a push at the gateway that holds the session until it is readable here, by their clocks. Of pushes that arrive together, the newest."
    )
  }

  // MARK: For readers

  /// Whether everything that is stored is in the copy, up to the time of a notification.
  package var isCurrent: Bool { current.load(ordering: .acquiring) }

  /// The time from the arrival of the newest push at its holder until it was readable here, by the clocks of both. nil: none has arrived since this gateway follows the session.
  package var lag: TimeSpan? {
    let value = newestLag.load(ordering: .relaxed)
    return value < 0 ? nil : .milliseconds(value)
  }

  /// A client reads. The session is followed for a minute from now on.
  ///
  /// - Parameter wakesHolder: whether the holder connects only if there are readers.
  package func noteUse(at now: MonotonicTime, wakesHolder: Bool) {
    let last = lastUse.load(ordering: .relaxed)
    guard now.nanoseconds >= last + UInt64(Self.useInterval.nanoseconds) || last == 0 else { return }
    guard lastUse.compareExchange(expected: last, desired: now.nanoseconds, ordering: .relaxed).exchanged else {
      return
    }
    follow(at: now, hasReaders: wakesHolder)
  }

  /// Called every few seconds.
  func keep(at now: MonotonicTime, hasReaders: Bool, wakesHolder: Bool) {
    if hasReaders {
      noteUse(at: now, wakesHolder: wakesHolder)
    } else if isAlwaysFollowed,
      now.nanoseconds >= lastCall.load(ordering: .relaxed) + UInt64(Self.keepInterval.nanoseconds)
    {
      follow(at: now, hasReaders: false)
    }
  }

  private func follow(at now: MonotonicTime, hasReaders: Bool) {
    lastCall.store(now.nanoseconds, ordering: .relaxed)
    source.withLock { $0 }?.follow(0, hasReaders)
  }

  /// What a reader must wait for before the copy can answer it.
  package struct Wait: Sendable {
    fileprivate let copy: FollowedCopy
    /// 0: any time at which the copy is current.
    fileprivate let refresh: UInt64
    /// Whether the copy cannot answer it at all. If not, it can as it is, but may be late.
    package let isNeeded: Bool

    /// - Parameter inbox: that of the present session, which is followed.
    package func isOver(in inbox: SharedInbox) -> Bool {
      if inbox.isClosed { return true }
      if inbox.isUnknown { return false }
      return refresh == 0 ? copy.isCurrent : copy.refreshed.load(ordering: .acquiring) >= refresh
    }
  }

  /// Returns what a read from `start` must wait for; nil: nothing.
  ///
  /// A cursor that the copy does not know may be of a term, or of another life of the log, that began just now at the holder. The session is read once more before
  /// the cursor counts as lost.
  ///
  /// - Parameter isPrompt: whether the reader waits for no push.
  package func wait(for start: StartingPoint, in inbox: SharedInbox, isPrompt: Bool) -> Wait? {
    if inbox.isUnknown { return Wait(copy: self, refresh: 0, isNeeded: true) }
    if let cursor = start.cursor, !inbox.isKnown(cursor) {
      return Wait(copy: self, refresh: requestRefresh(), isNeeded: true)
    }
    // With a cursor, a reader that waits gets what is missing when it arrives.
    guard !isCurrent, start.cursor == nil || isPrompt, !isAway else { return nil }
    return Wait(copy: self, refresh: 0, isNeeded: false)
  }

  /// Whether Redis cannot be reached: then readers get what is there.
  package var isAway: Bool { source.withLock { $0 }?.isAway() ?? false }

  private func requestRefresh() -> UInt64 {
    let number = requested.add(1, ordering: .relaxed).newValue
    source.withLock { $0 }?.follow(number, false)
    return number
  }

  // MARK: For the owner

  /// The session is followed with this from now on.
  func use(_ source: Source) { self.source.withLock { $0 = source } }

  /// The session is followed in this store from now on.
  func follow(_ name: String, in store: RedisStore) {
    use(
      Source(
        follow: { [weak store] in store?.follow(name, refresh: $0, hasReaders: $1) },
        isAway: { [weak store] in store?.isFailed ?? true }))
    store.follow(name)
  }

  /// Returns whether that is a change.
  func setCurrent(_ isCurrent: Bool) -> Bool {
    current.exchange(isCurrent, ordering: .acquiringAndReleasing) != isCurrent
  }

  func setRefreshed(_ number: UInt64) { refreshed.store(number, ordering: .releasing) }

  /// These pushes have become readable, in a copy that was current before.
  func arrived(_ entries: [LogChange]) {
    guard let entry = entries.last(where: { if case .push = $0 { true } else { false } }), case .push(let push) = entry
    else { return }
    let lag = max(0, ProcessInformation.wallClockMilliseconds() - push.time)
    newestLag.store(lag, ordering: .relaxed)
    lags.observe(.milliseconds(lag))
  }
}
