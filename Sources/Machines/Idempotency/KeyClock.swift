import ByteStreams
import JournalCoding

/// The clock by which the idempotency keys of a stored session expire. It begins at the newest key that is stored, and advances by the monotonic time of
/// the process. So neither a step of the wall clock nor a gateway with another wall clock, which holds the session next, ends a key early.
package struct KeyClock: Sendable {
  /// How much wall clocks may differ without an effect. Nobody knows how long ago the newest key was stored: so much of the time since then is not
  /// counted, and keys are remembered for so much longer after a restart or a take-over.
  package static var tolerance: TimeSpan { .minutes(10) }

  /// The time of this clock, as that of the wall.
  private let start: JournalClock

  package init(_ stored: StoredKeys, at clock: JournalClock) {
    let earliest = clock.wallClock.subtractingReportingOverflow(Self.tolerance.millisecondsRoundedUp).partialValue
    let newest = stored.newest.map { max($0.accepted, earliest) }
    start = JournalClock(now: clock.now, wallClock: newest ?? clock.wallClock)
  }

  /// In milliseconds, for what is stored.
  package func time(at now: MonotonicTime) -> Int64 {
    start.wallClock.addingReportingOverflow((now - start.now).nanoseconds / 1_000_000).partialValue
  }

  /// How long a key is still to be remembered, and no longer than when it was accepted; zero if it has expired.
  package func rest(of key: StoredKey, at now: MonotonicTime) -> TimeSpan {
    let rest = key.end.subtractingReportingOverflow(time(at: now))
    let lifetime = key.end.subtractingReportingOverflow(key.accepted)
    guard !rest.overflow, !lifetime.overflow else { return .zero }
    return .milliseconds(max(0, min(rest.partialValue, lifetime.partialValue)))
  }
}
