import ByteStreams

/// What the clock says to the outbox: messages expire, and the pace lets the next ones go.
extension Outbox {
  /// When the next waiting message expires; nil where none does.
  package mutating func nextExpiry() -> MonotonicTime? {
    while let first = expiry.first {
      if isWaiting(first) { return first.deadline }
      expiry.removeFirst()
    }
    return nil
  }

  /// Ends the messages whose time is over; answers how many.
  @discardableResult
  package mutating func expire(now: MonotonicTime) -> Int {
    var count = 0
    while let first = expiry.first, first.deadline <= now {
      expiry.removeFirst()
      guard isWaiting(first) else { continue }
      end(first.place, as: .expired)
      count += 1
    }
    return count
  }

  private func isWaiting(_ entry: ExpiryHeap.Entry) -> Bool {
    entry.place >= takenEnd && entry.place < ring.end && ring[entry.place].payload != nil
      && ring[entry.place].deadline == entry.deadline
  }

  /// When the pace lets the next message go; nil where none waits, or one may go now.
  package func nextPermit(now: MonotonicTime) -> MonotonicTime? {
    guard let bucket, waiting > 0, isOpenForTaking, bucket.available(now: now) == 0 else { return nil }
    return bucket.nextToken(now: now)
  }
}
