import ByteStreams

/// When bytes that one side waits for come too slowly: a body that arrives, or responses that a client takes.
///
/// Two rules, of which the stricter counts. No pause may be longer than `pause`: else whoever was quick at first could then
/// hold what was received for hours. And beyond the first `pause`, every `minimumRate` bytes earn one second: else a byte
/// before the end of each pause would do.
struct TransferPace {
  private let began: MonotonicTime
  private var latest: MonotonicTime
  private(set) var bytes = 0

  init(at now: MonotonicTime) {
    began = now
    latest = now
  }

  /// `count` more bytes have gone across.
  mutating func advance(by count: Int, at now: MonotonicTime) {
    bytes &+= count
    latest = now
  }

  /// - Parameters:
  ///   - pause: longest time without a byte, and what is granted before the rate counts.
  ///   - minimumRate: bytes a second; 0 asks for none.
  func deadline(pause: TimeSpan, minimumRate: Int) -> MonotonicTime {
    let stalled = latest + pause
    guard minimumRate > 0 else { return stalled }
    return min(stalled, began + pause + .seconds(Int64(bytes / minimumRate)))
  }
}
