import ByteStreams

/// The deadline of a transfer that must not be too slow: a request body that arrives, or responses that a client reads.
///
/// Two rules apply, and the earlier of their deadlines is used. First, no pause may be longer than `pause`. Without
/// this rule, a client that was fast at first could keep memory in use for hours. Second, the whole transfer may take
/// `pause`, and one second more for every `minimumRate` bytes. Without this rule, one byte per pause would be enough.
struct TransferPace {
  private let began: MonotonicTime
  private var latest: MonotonicTime
  private(set) var bytes = 0

  init(at now: MonotonicTime) {
    began = now
    latest = now
  }

  /// Records the transfer of `count` more bytes.
  mutating func advance(by count: Int, at now: MonotonicTime) {
    bytes &+= count
    latest = now
  }

  /// - Parameters:
  ///   - pause: the longest time without a byte, and the time that the transfer may take in addition to the time for
  ///     its bytes at `minimumRate`.
  ///   - minimumRate: bytes per second; 0 for no minimum.
  func deadline(pause: TimeSpan, minimumRate: Int) -> MonotonicTime {
    let stalled = latest + pause
    guard minimumRate > 0 else { return stalled }
    return min(stalled, began + pause + .seconds(Int64(bytes / minimumRate)))
  }
}
