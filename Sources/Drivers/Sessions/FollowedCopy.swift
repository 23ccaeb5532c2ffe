import ByteStreams
import Host
import Inbox
import Journal
import Metrics
import Reactor
import RedisStore
import Synchronization
import Threading

/// The state of this gateway's copy of the pushes of a remote session: whether the copy is current, and how late it is.
/// It also asks the store to follow the session, and to read it again. All sessions of a slot use one object.
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

  /// How long a reader waits until a copy is current. If Redis works, a copy is read in milliseconds. Short
  /// interruptions take up to two seconds.
  package static var patience: TimeSpan { .seconds(2) }
  /// The least time between two calls of the store because of readers. The store follows a session for a minute after a
  /// call.
  static var useInterval: TimeSpan { .seconds(1) }
  /// The same interval while nobody reads, for a session that is always followed.
  private static var keepInterval: TimeSpan { .seconds(20) }
  /// How long the holder counts the clients of other gateways as readers after a notification. While they wait,
  /// `SessionUpkeep` repeats the notification every 5 s.
  static var distantReadersTime: TimeSpan { .seconds(15) }

  /// Whether the session is followed while nobody reads it here.
  private let isAlwaysFollowed: Bool
  private let lags: Histogram
  private let source = Locked<Source?>(nil)
  private let current = Atomic(false)
  /// In nanoseconds.
  private let lastUse = Atomic<UInt64>(0)
  private let lastCall = Atomic<UInt64>(0)
  /// The number of the last refresh that was requested, and the number of the last complete refresh.
  private let requested = Atomic<UInt64>(0)
  private let refreshed = Atomic<UInt64>(0)
  /// The lag of the newest push, in milliseconds. Negative if no push has arrived.
  private let newestLag = Atomic<Int64>(-1)

  init(isAlwaysFollowed: Bool, metrics registry: MetricsRegistry) {
    self.isAlwaysFollowed = isAlwaysFollowed
    lags = registry.histogram(
      "drawbridge_store_lag_seconds",
      "Time from the arrival of a push at the holder until it is readable here, by their clocks. Of pushes that arrive together, the newest."
    )
  }

  // MARK: For readers

  /// Whether the copy has everything that is stored, except for changes whose notification is on its way.
  package var isCurrent: Bool { current.load(ordering: .acquiring) }

  /// The time from the arrival of the newest push at its holder until it was readable here, by the clocks of both
  /// gateways. nil if no push has arrived since this gateway began to follow the session.
  package var lag: TimeSpan? {
    let value = newestLag.load(ordering: .relaxed)
    return value < 0 ? nil : .milliseconds(value)
  }

  /// Called when a client reads. The session is followed for another minute.
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

  /// The condition that a reader waits for before it reads the copy.
  package struct Wait: Sendable {
    fileprivate let copy: FollowedCopy
    /// The number of the refresh to wait for. 0 if it is enough that the copy is current.
    fileprivate let refresh: UInt64
    /// Whether the reader cannot be served before the condition is met. If false, a read is possible at once, but may
    /// miss the newest pushes.
    package let isNeeded: Bool

    /// - Parameter inbox: the inbox of the slot's present session.
    package func isOver(in inbox: ConcurrentInbox) -> Bool {
      if inbox.isClosed { return true }
      if inbox.isUnknown { return false }
      return refresh == 0 ? copy.isCurrent : copy.refreshed.load(ordering: .acquiring) >= refresh
    }
  }

  /// Returns the condition that a read from `start` must wait for, or nil if it can read at once.
  ///
  /// The term or the epoch of a cursor may be missing from the copy, because it began at the holder a moment ago. So
  /// the session is read once more before the cursor counts as lost.
  ///
  /// - Parameter isPrompt: whether the read returns at once if there is no push.
  package func wait(for start: StartingPoint, in inbox: ConcurrentInbox, isPrompt: Bool) -> Wait? {
    if inbox.isUnknown { return Wait(copy: self, refresh: 0, isNeeded: true) }
    if let cursor = start.cursor, !inbox.isKnown(cursor) {
      return Wait(copy: self, refresh: requestRefresh(), isNeeded: true)
    }
    // A held read with a cursor gets the missing pushes when they arrive.
    guard !isCurrent, start.cursor == nil || isPrompt, !isAway else { return nil }
    return Wait(copy: self, refresh: 0, isNeeded: false)
  }

  /// Whether Redis cannot be reached. Readers then get the pushes that the copy has.
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

  /// Called when these pushes have become readable in a copy that was current before.
  func arrived(_ entries: [LogChange]) {
    guard let entry = entries.last(where: { if case .push = $0 { true } else { false } }), case .push(let push) = entry
    else { return }
    let lag = max(0, ProcessInformation.wallClockMilliseconds() - push.time)
    newestLag.store(lag, ordering: .relaxed)
    lags.observe(.milliseconds(lag))
  }
}
