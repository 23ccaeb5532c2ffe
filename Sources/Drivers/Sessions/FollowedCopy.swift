import ByteStreams
import Host
import Inbox
import Journal
import Metrics
import Reactor
import RedisStore
import Synchronization
import Threading

/// The state of this gateway's copy of the pushes of a remote session: whether the copy is current, and how late its
/// newest push arrived. This object also requests that the store follows the session, and that it reads the session
/// again. All session objects of a slot use one `FollowedCopy`.
///
/// Thread-safe. The properties that polls read take no lock.
package final class FollowedCopy: Sendable {
  /// The store that follows the session.
  struct Source: Sendable {
    /// See `RedisStore.follow`.
    let follow: @Sendable (_ refresh: UInt64, _ hasReaders: Bool) -> Void
    /// Whether the store has been unreachable for longer than a short interruption.
    let isAway: @Sendable () -> Bool
  }

  /// How long a reader waits until a copy is current. If Redis works, the store reads a copy within milliseconds. Short
  /// interruptions of Redis take up to two seconds.
  package static var patience: TimeSpan { .seconds(2) }
  /// The minimum time between two calls of the store that readers cause. The store follows a session for a minute after
  /// each call.
  static var useInterval: TimeSpan { .seconds(1) }
  /// The minimum time between two calls of the store for a session that is always followed, while it has no readers
  /// here.
  private static var keepInterval: TimeSpan { .seconds(20) }
  /// How long the holder assumes, after a notification, that another gateway has readers. While clients wait at the
  /// other gateway, its `SessionUpkeep` repeats the notification every 5 s.
  static var distantReadersTime: TimeSpan { .seconds(15) }

  /// Whether the session is followed even while it has no readers here.
  private let isAlwaysFollowed: Bool
  private let lags: Histogram
  private let source = Locked<Source?>(nil)
  private let current = Atomic(false)
  /// The time of the last call of the store that a reader has caused, in nanoseconds.
  private let lastUse = Atomic<UInt64>(0)
  private let lastCall = Atomic<UInt64>(0)
  /// The number of the last refresh that was requested, and the number of the last refresh that is complete. A refresh
  /// reads the session once more.
  private let requested = Atomic<UInt64>(0)
  private let refreshed = Atomic<UInt64>(0)
  /// The lag of the newest push, in milliseconds. Negative if no push has arrived.
  private let newestLag = Atomic<Int64>(-1)

  init(isAlwaysFollowed: Bool, metrics registry: MetricsRegistry) {
    self.isAlwaysFollowed = isAlwaysFollowed
    lags = registry.histogram(
      "drawbridge_store_lag_seconds",
      "Time from the arrival of a push at the holder until it is readable at this gateway, by the clocks of both gateways. Of pushes that arrive together, only the newest is counted."
    )
  }

  // MARK: For readers

  /// Whether the copy has all stored changes, except changes whose notification has not arrived yet.
  package var isCurrent: Bool { current.load(ordering: .acquiring) }

  /// The time from the arrival of the newest push at its holder until it was readable here, computed from the clocks of
  /// both gateways. nil if no push has arrived since this gateway began to follow the session.
  package var lag: TimeSpan? {
    let value = newestLag.load(ordering: .relaxed)
    return value < 0 ? nil : .milliseconds(value)
  }

  /// Called when a client reads. The session is followed for another minute.
  ///
  /// - Parameter wakesHolder: whether the session connects on demand, so that its holder must learn of readers.
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

  /// The condition that a reader waits for before it reads the copy.
  package struct Wait: Sendable {
    fileprivate let copy: FollowedCopy
    /// The number of the refresh to wait for. 0 if it is enough that the copy is current.
    fileprivate let refresh: UInt64
    /// Whether the reader must wait until the condition is met. If false, it can also read at once, but may miss the
    /// newest pushes.
    package let isNeeded: Bool

    /// - Parameter inbox: the inbox of the slot's present session object.
    package func isOver(in inbox: ConcurrentInbox) -> Bool {
      if inbox.isClosed { return true }
      if inbox.isUnknown { return false }
      return refresh == 0 ? copy.isCurrent : copy.refreshed.load(ordering: .acquiring) >= refresh
    }
  }

  /// Returns the condition that a read from `start` must wait for, or nil if it can read at once.
  ///
  /// The copy may not have the term or the epoch of a cursor, because this term or epoch began at the holder only a
  /// moment ago. So the session is read once more before the cursor is treated as lost.
  ///
  /// - Parameter isPrompt: whether the read returns at once if there is no push.
  package func wait(for start: StartingPoint, in inbox: ConcurrentInbox, isPrompt: Bool) -> Wait? {
    if inbox.isUnknown { return Wait(copy: self, refresh: 0, isNeeded: true) }
    if let cursor = start.cursor, !inbox.isKnown(cursor) {
      return Wait(copy: self, refresh: requestRefresh(), isNeeded: true)
    }
    // A read that has a cursor and can be held need not wait here: it gets the missing pushes when they arrive.
    guard !isCurrent, start.cursor == nil || isPrompt, !isAway else { return nil }
    return Wait(copy: self, refresh: 0, isNeeded: false)
  }

  /// Whether Redis cannot be reached, in which case readers get the pushes that the copy has.
  package var isAway: Bool { source.withLock { $0 }?.isAway() ?? false }

  private func requestRefresh() -> UInt64 {
    let number = requested.add(1, ordering: .relaxed).newValue
    source.withLock { $0 }?.follow(number, false)
    return number
  }

  // MARK: For the owner

  /// Follows the session through `source` from now on.
  func use(_ source: Source) { self.source.withLock { $0 = source } }

  /// Follows the session in this store from now on.
  func follow(_ name: String, in store: RedisStore) {
    use(
      Source(
        follow: { [weak store] in store?.follow(name, refresh: $0, hasReaders: $1) },
        isAway: { [weak store] in store?.isFailed ?? true }))
    store.follow(name)
  }

  /// Returns whether the value has changed.
  func setCurrent(_ isCurrent: Bool) -> Bool {
    current.exchange(isCurrent, ordering: .acquiringAndReleasing) != isCurrent
  }

  func setRefreshed(_ number: UInt64) { refreshed.store(number, ordering: .releasing) }

  /// Called when new entries have become readable in a copy that was already current.
  func arrived(_ entries: [LogChange]) {
    guard let entry = entries.last(where: { if case .push = $0 { true } else { false } }), case .push(let push) = entry
    else { return }
    let lag = max(0, ProcessInformation.wallClockMilliseconds() - push.time)
    newestLag.store(lag, ordering: .relaxed)
    lags.observe(.milliseconds(lag))
  }
}
