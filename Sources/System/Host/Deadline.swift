import ByteStreams
import Glibc

/// The deadline of a thread that may block.
struct Deadline {
  private let time: MonotonicTime

  init(after span: TimeSpan) { time = MonotonicTime(nanoseconds: SystemCall.monotonicNanoseconds()) + span }

  /// The milliseconds until the deadline: 0 if it has passed, otherwise at least 1.
  var remainingMilliseconds: Int32 {
    let left = time - MonotonicTime(nanoseconds: SystemCall.monotonicNanoseconds())
    return left <= .zero ? 0 : Int32(clamping: left.nanoseconds / 1_000_000 + 1)
  }

  /// Waits until bytes or the end of the stream can be read. Returns false if the deadline passes first.
  func waitUntilReadable(_ descriptor: Int32) -> Bool {
    while true {
      let left = remainingMilliseconds
      guard left > 0 else { return false }
      var interest = pollfd(fd: descriptor, events: Int16(POLLIN), revents: 0)
      if unsafe poll(&interest, 1, left) > 0 { return true }
    }
  }
}
