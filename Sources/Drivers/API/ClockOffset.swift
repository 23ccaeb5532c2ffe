import ByteStreams
import Synchronization

/// Wall-clock time minus monotonic time, in milliseconds. Can be used from any thread.
///
/// Both clocks are read anew for each response, since the wall clock may be set. The previous difference stays in use if the new one
/// differs by rounding only, so that a response which is requested again shows the same time.
final class ClockOffset: Sendable {
  private let value = Atomic<Int64>(.min)

  /// The wall-clock time of `time`, in milliseconds of UNIX time, if it is now `wallClock` and `now`.
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
