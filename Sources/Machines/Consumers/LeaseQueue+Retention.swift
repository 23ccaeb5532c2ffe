import ByteStreams
import Inbox

/// The effects of time and retention on the pushes of a consumer, and the gaps that report them.
extension LeaseQueue {
  /// Ends leases and delays that are due, and accounts for pushes that retention has removed. Returns whether anything
  /// changed.
  @discardableResult
  mutating func refresh(now: MonotonicTime, _ source: some PushSource) -> Bool {
    var hasChanged = false
    while let deadline = nextDeadline(), deadline <= now {
      guard let number = deadlines.first?.number, let record = records[number] else { break }
      deadlines.removeFirst()
      hasChanged = true
      hasFreed = true
      if record.state == .delayed { makeReady(number) } else { end(number, at: now, now: now, source) }
    }
    let (missedBefore, deadBefore) = (missedTotal, dead.added)
    sweep(before: source.firstRetained)
    return hasChanged || missedTotal > missedBefore || dead.added > deadBefore
  }

  /// When the next lease or delay ends.
  mutating func nextDeadline() -> MonotonicTime? {
    while let first = deadlines.first {
      if let record = records[first.number], record.deadline == first.time { return first.time }
      deadlines.removeFirst()
    }
    return nil
  }

  /// Handles the pushes before `first`, which retention has removed: a push that still had to be delivered becomes a
  /// part of a gap, or a dead letter if it was attempted. Each push is visited once. Leases of removed pushes stay
  /// valid: the pushes can be acknowledged, but not delivered again.
  mutating func sweep(before first: UInt64) {
    let end = min(first, frontier.sequence + 1)
    while swept < end {
      guard !examined.isEmpty else {
        swept = end
        return
      }
      swept = max(swept, examined[examined.front])
      guard swept < end else { return }
      if let record = records[swept], copies[swept] == nil {
        switch record.state {
        case .ready, .delayed: giveUp(swept)
        case .queued:
          // A queued push was attempted only if the order was changed since the attempt.
          if let message = attempted.removeValue(forKey: swept) {
            addDeadLetter(message, .rejected, deliveries: record.attempts)
          } else {
            count(missing: 1)
          }
          set(.missing, until: .distantFuture, of: swept)
          noteChange(of: swept)
        case .leased, .missing: break
        }
      }
      swept += 1
    }
  }

  /// Gives up a push that waits for delivery, since the push log no longer keeps it. If the push was attempted, it
  /// becomes a dead letter. If not, it becomes part of a gap.
  mutating func giveUp(_ number: UInt64) {
    guard let message = attempted[number] else { return lose(number) }
    hasFreed = true
    bury(message, .rejected)
  }

  /// Called when the gateway becomes the worker. From then on, a push that was attempted, even by an earlier process,
  /// is not lost when the push log drops it.
  mutating func keepAttempted(_ source: some PushSource) {
    for (number, record) in records where record.attempts > 0 && record.state != .missing {
      attempted[number] = payload(of: number, source)
    }
  }

  mutating func lose(_ number: UInt64) {
    hasFreed = true
    count(missing: 1)
    remove(number)
  }

  // MARK: Gaps

  mutating func count(missing count: UInt64) {
    missed += count
    missedTotal += count
    gapReasons.insert(.retention)
  }

  mutating func note(_ gap: Gap) {
    if let missed = gap.missed {
      self.missed += missed
      missedTotal += missed
    }
    gapReasons.formUnion(GapMarks(gap.reasons))
  }

  /// Adds a gap to the next response, since the response with the gap was not sent. `missedTotal` already includes its
  /// pushes.
  mutating func reportAgain(_ gap: Gap) {
    missed += gap.missed ?? 0
    gapReasons.formUnion(GapMarks(gap.reasons))
  }

  mutating func takeGap() -> Gap? {
    guard !gapReasons.isEmpty else { return nil }
    defer { (missed, gapReasons) = (0, []) }
    // As in a poll, the gap has a number of pushes only if this number is known.
    let isKnown = missed > 0 && !gapReasons.contains(.restart)
    return Gap(missed: isKnown ? missed : nil, reasons: gapReasons.reasons)
  }
}
