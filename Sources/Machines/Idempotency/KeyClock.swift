import ByteStreams
import JournalCoding

/// The clock by which the idempotency keys of a stored session expire. It begins at the time of the newest stored key,
/// and advances by the monotonic time of the process. So neither a step of the wall clock nor a take-over by a gateway
/// whose wall clock differs makes a key expire early.
package struct KeyClock: Sendable {
  /// The difference between wall clocks that has no effect. The wall clock may not show how long ago the newest key was
  /// stored, so up to this much of that time is not counted. Keys are remembered for up to this much longer after a
  /// restart or a take-over.
  package static var tolerance: TimeSpan { .minutes(10) }

  /// The start of this clock: a monotonic time, and the time that this clock shows then.
  private let start: JournalClock

  package init(_ stored: StoredKeys, at clock: JournalClock) {
    let earliest = clock.wallClock.subtractingReportingOverflow(Self.tolerance.millisecondsRoundedUp).partialValue
    let newest = stored.newest.map { max($0.accepted, earliest) }
    start = JournalClock(now: clock.now, wallClock: newest ?? clock.wallClock)
  }

  /// The time of this clock in milliseconds, as it is stored.
  package func time(at now: MonotonicTime) -> Int64 {
    start.wallClock.addingReportingOverflow((now - start.now).nanoseconds / 1_000_000).partialValue
  }

  /// How long a key is still to be remembered, at most its original lifetime; zero if it has expired.
  package func rest(of key: StoredKey, at now: MonotonicTime) -> TimeSpan {
    let rest = key.end.subtractingReportingOverflow(time(at: now))
    let lifetime = key.end.subtractingReportingOverflow(key.accepted)
    guard !rest.overflow, !lifetime.overflow else { return .zero }
    return .milliseconds(max(0, min(rest.partialValue, lifetime.partialValue)))
  }
}
