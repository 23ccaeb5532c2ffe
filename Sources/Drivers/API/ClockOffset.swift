import ByteStreams
import Synchronization

/// Wall-clock time minus monotonic time, in milliseconds. Can be used from any thread.
///
/// Both clocks are read again for each response, since the wall clock may be set. If the new difference differs from
/// the previous one only by rounding, the previous difference is used, so that repeated responses contain the same
/// time.
final class ClockOffset: Sendable {
  private let value = Atomic<Int64>(.min)

  /// Converts `time` to wall-clock time, in milliseconds of UNIX time. `wallClock` and `now` are the current times of
  /// the two clocks.
  func wallClock(of time: MonotonicTime, wallClock: Int64, now: MonotonicTime) -> Int64 {
    let current = wallClock - Self.milliseconds(now)
    var offset = value.load(ordering: .relaxed)
    if offset == .min || abs(current - offset) > 1 {
      offset = current
      value.store(current, ordering: .relaxed)
    }
    return Self.milliseconds(time) + offset
  }

  private static func milliseconds(_ time: MonotonicTime) -> Int64 { Int64(clamping: time.nanoseconds / 1_000_000) }
}
