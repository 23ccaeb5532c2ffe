import ByteStreams

/// Both clocks at one moment: the monotonic clock of the process, which restarts with the machine, and the wall clock,
/// which entries use.
package struct JournalClock: Sendable {
  package let now: MonotonicTime
  /// In milliseconds since 1970.
  package let wallClock: Int64

  package init(now: MonotonicTime, wallClock: Int64) {
    self.now = now
    self.wallClock = wallClock
  }

  package func wallClock(of time: MonotonicTime) -> Int64 { wallClock - (now - time).nanoseconds / 1_000_000 }

  package func deadline(_ time: MonotonicTime) -> JournalDeadline {
    let rest = max(0, (time - now).nanoseconds / 1_000_000)
    return JournalDeadline(time: wallClock + rest, rest: rest)
  }

  /// Converts a wall-clock time. A time before the start of the machine becomes that start.
  package func time(of wallClock: Int64) -> MonotonicTime {
    let (age, overflows) = self.wallClock.subtractingReportingOverflow(wallClock)
    return now - .milliseconds(overflows ? 0 : max(0, age))
  }

  /// Converts a deadline to the clock of this process. Returns `now` if it has passed.
  package func time(of deadline: JournalDeadline) -> MonotonicTime {
    let (left, overflows) = deadline.time.subtractingReportingOverflow(wallClock)
    return now + .milliseconds(max(0, min(overflows ? 0 : left, deadline.rest)))
  }
}

/// A deadline that survives the process. A clock that is set back does not delay the deadline.
package struct JournalDeadline: Hashable, Sendable {
  package let time: Int64
  /// The milliseconds that were left when the deadline was stored.
  package let rest: Int64

  package init(time: Int64, rest: Int64) {
    self.time = time
    self.rest = rest
  }
}

extension JournalDeadline: JournalRecord {
  package init(_ deadline: Self?, _ coder: inout JournalCoder) {
    time = coder.signed(deadline?.time)
    rest = coder.signed(deadline?.rest)
  }
}
