import ByteStreams

/// When an attempt begins whose URL was read before the limit of its host delayed the attempt, and whether it uses this
/// URL.
///
/// Some services issue URLs that expire soon, so a URL is not kept for a long wait. It is read again shortly before the
/// slot of the attempt: the right to the slot ends a second after the slot (`HostAttemptLimiter.ticketLifetime`), and a
/// slow command would miss it.
package struct DelayedURLPlan: Equatable, Sendable {
  /// When to begin the attempt.
  package let attempt: MonotonicTime
  /// Until when the URL is used; nil if it must be read again.
  package let end: MonotonicTime?

  /// A URL is kept at least this long.
  static var lifetime: TimeSpan { .seconds(10) }
  /// The next reading may take this much longer than the last.
  static var allowance: TimeSpan { .seconds(5) }

  /// - Parameters:
  ///   - slot: when the limit of the host allows the attempt.
  ///   - time: how long the reading of the URL took.
  package init(slot: MonotonicTime, readingTook time: TimeSpan, now: MonotonicTime) {
    let lead = time + min(time, Self.allowance) + HostAttemptLimiter.ticketLifetime
    guard slot - now > max(Self.lifetime, lead) else {
      (attempt, end) = (slot, slot + HostAttemptLimiter.ticketLifetime)
      return
    }
    (attempt, end) = (slot - lead, nil)
  }
}
