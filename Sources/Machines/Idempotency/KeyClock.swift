import ByteStreams
import JournalCoding

/// The clock by which the idempotency keys of a stored session expire. It continues at the newest stored key, and
/// advances by the monotonic time of the process that has the session.
///
/// Time that passes between two such processes is not counted: only wall clocks could measure it, and a step of a wall
/// clock would end keys early. After an early end, a repeated message would be sent twice. So after a restart, a key
/// may be valid for longer.
package struct KeyClock: Sendable {
  /// The wall clock is used only at the beginning, and only if there is no stored key.
  private let start: JournalClock

  package init(_ stored: StoredKeys, at clock: JournalClock) {
    start = JournalClock(now: clock.now, wallClock: stored.newest?.accepted ?? clock.wallClock)
  }

  /// In milliseconds, for entries of the store.
  package func time(at now: MonotonicTime) -> Int64 {
    start.wallClock.addingReportingOverflow((now - start.now).nanoseconds / 1_000_000).partialValue
  }

  /// How much longer a key is remembered, at most its original lifetime; zero if it has expired.
  package func rest(of key: StoredKey, at now: MonotonicTime) -> TimeSpan {
    let rest = key.end.subtractingReportingOverflow(time(at: now))
    let lifetime = key.end.subtractingReportingOverflow(key.accepted)
    guard !rest.overflow, !lifetime.overflow else { return .zero }
    return .milliseconds(max(0, min(rest.partialValue, lifetime.partialValue)))
  }
}
