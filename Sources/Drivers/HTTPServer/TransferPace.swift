import ByteStreams

/// The deadline of a transfer that must not be too slow: a request body that arrives, or responses that a client reads.
///
/// Two rules apply, and the earlier deadline counts. First, no pause may be longer than `pause`: otherwise a client
/// that was fast at first could hold memory for hours. Second, beyond the first `pause`, every `minimumRate` bytes earn
/// one second: otherwise one byte per pause would be enough.
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
  ///   - pause: longest time without a byte, and the time granted before the rate applies.
  ///   - minimumRate: bytes per second; 0 for no minimum.
  func deadline(pause: TimeSpan, minimumRate: Int) -> MonotonicTime {
    let stalled = latest + pause
    guard minimumRate > 0 else { return stalled }
    return min(stalled, began + pause + .seconds(Int64(bytes / minimumRate)))
  }
}
