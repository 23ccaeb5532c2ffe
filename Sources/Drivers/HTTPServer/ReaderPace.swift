import ByteStreams
import Configuration

/// Whether a client takes its responses too slowly.
///
/// It counts the bytes that the client has acknowledged, not those that the kernel has taken from us. The kernel takes more only
/// when a third of its send buffer is free, and that buffer may have megabytes: a slow client needs minutes to read so much.
/// The buffer is looked at when the kernel reports room and at each deadline. So a client that takes a byte right after a look and
/// then stops is reset after up to two pauses.
struct ReaderPace {
  private var pace: TransferPace
  /// Bytes in the kernel's send buffer, at the last look.
  private var unacknowledged: Int

  init(at now: MonotonicTime, unacknowledged: Int) {
    pace = TransferPace(at: now)
    self.unacknowledged = unacknowledged
  }

  /// The kernel has taken `sent` more bytes since the last look, and `unacknowledged` are in its buffer now.
  mutating func advance(sent: Int, unacknowledged: Int, at now: MonotonicTime) {
    let taken = self.unacknowledged &+ sent &- unacknowledged
    self.unacknowledged = unacknowledged
    if taken > 0 { pace.advance(by: taken, at: now) }
  }

  /// When to look again, and to reset the client unless it has taken more by then.
  func deadline(_ settings: GatewaySettings.HTTP) -> MonotonicTime {
    pace.deadline(pause: settings.writeTimeout, minimumRate: settings.writeMinimumRate)
  }
}
