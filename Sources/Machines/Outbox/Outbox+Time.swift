import ByteStreams

/// The effects of time on the outbox: messages expire, and the pace permits the next messages.
extension Outbox {
  /// When the next waiting message expires; nil if no waiting message expires.
  package mutating func nextExpiry() -> MonotonicTime? {
    while let first = expiry.first {
      if let position = first.positions.first(where: { isWaiting($0, until: first.deadline) }) {
        expiry.trimFirst(to: position)
        return first.deadline
      }
      expiry.removeFirst()
    }
    return nil
  }

  /// Ends the messages whose time to live has ended; returns how many.
  @discardableResult
  package mutating func expire(now: MonotonicTime) -> Int {
    var count = 0
    while let first = expiry.first, first.deadline <= now {
      expiry.removeFirst()
      for position in first.positions where isWaiting(position, until: first.deadline) {
        end(position, as: .expired, because: ring[position].expiryReason)
        count += 1
      }
    }
    return count
  }

  private func isWaiting(_ position: Int, until deadline: MonotonicTime) -> Bool {
    position >= takenEnd && position < ring.end && ring[position].payload != nil && ring[position].deadline == deadline
  }

  /// When the pace permits the next message; nil if no message can be taken, or if a message is permitted now.
  package func nextPermit(now: MonotonicTime) -> MonotonicTime? {
    guard let bucket, waiting > 0, isOpenForTaking, bucket.available(now: now) == 0 else { return nil }
    return bucket.nextToken(now: now)
  }
}
