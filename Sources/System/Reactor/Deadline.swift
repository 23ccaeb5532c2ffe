import ByteStreams
import Glibc

/// Until when a thread that may block waits.
struct Deadline {
  private let time: MonotonicTime

  init(after span: TimeSpan) { time = MonotonicTime(nanoseconds: SystemCall.monotonicNanoseconds()) + span }

  /// At least one while there is any time.
  var remainingMilliseconds: Int32 {
    let left = time - MonotonicTime(nanoseconds: SystemCall.monotonicNanoseconds())
    return left <= .zero ? 0 : Int32(clamping: left.nanoseconds / 1_000_000 + 1)
  }

  /// Waits for bytes, or the end of them; false once the time is over.
  func waitUntilReadable(_ descriptor: Int32) -> Bool {
    while true {
      let left = remainingMilliseconds
      guard left > 0 else { return false }
      var interest = pollfd(fd: descriptor, events: Int16(POLLIN), revents: 0)
      if unsafe poll(&interest, 1, left) > 0 { return true }
    }
  }
}
