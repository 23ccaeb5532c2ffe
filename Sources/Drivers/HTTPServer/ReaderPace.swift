import ByteStreams

/// Detects a client that reads its responses too slowly.
///
/// It counts the bytes that the client has acknowledged, and not the bytes that the kernel has accepted. The kernel
/// accepts more bytes only when a third of its send buffer is free. That buffer may contain megabytes, which a slow
/// client needs minutes to read. The buffer is checked when the kernel reports room, and at each deadline. So a client
/// that takes a byte right after a check, and then stops, is reset after up to twice the write timeout.
struct ReaderPace {
  private var pace: TransferPace
  /// Bytes in the kernel's send buffer at the last check.
  private var unacknowledged: Int

  init(at now: MonotonicTime, unacknowledged: Int) {
    pace = TransferPace(at: now)
    self.unacknowledged = unacknowledged
  }

  /// Records that the kernel has accepted `sent` more bytes since the last check, and that its send buffer now has
  /// `unacknowledged` bytes.
  mutating func advance(sent: Int, unacknowledged: Int, at now: MonotonicTime) {
    let taken = self.unacknowledged &+ sent &- unacknowledged
    self.unacknowledged = unacknowledged
    if taken > 0 { pace.advance(by: taken, at: now) }
  }

  /// The time of the next check. If the client has acknowledged no more bytes by this time, it is reset.
  func deadline(_ timeouts: ConnectionTimeouts) -> MonotonicTime {
    pace.deadline(pause: timeouts.write, minimumRate: timeouts.writeMinimumRate)
  }
}
