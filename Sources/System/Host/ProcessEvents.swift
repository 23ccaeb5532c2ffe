import ByteStreams
import CLinux
import Glibc

/// The events that the main thread waits for: UNIX signals, wake-ups by other threads, and input on one more
/// descriptor.
///
/// `wake()` can be called from any thread. The other functions must be called by the thread that waits.
package final class ProcessEvents: Sendable {
  package enum Event: Equatable, Sendable {
    case signal(Int32)
    /// Another thread has called `wake()` since the last wait.
    case woken
    /// The descriptor can be read.
    case readable
    case deadline
  }

  private let signals: Int32
  private let wakeUps: Int32

  /// - Parameter signals: the signals to wait for. They must be blocked in every thread (`ProcessSignals.block`).
  package init(signals numbers: [Int32]) throws(SystemError) {
    signals = unsafe clinux_signal_descriptor(numbers, Int32(numbers.count))
    guard signals >= 0 else { throw SystemError("signalfd", code: errno) }
    wakeUps = eventfd(0, O_NONBLOCK | O_CLOEXEC)
    guard wakeUps >= 0 else { throw SystemError("eventfd", code: errno) }
  }

  deinit {
    // This also runs if the initializer throws after all properties are set, so a descriptor may be invalid.
    for descriptor in [signals, wakeUps] where descriptor >= 0 { SystemCall.close(descriptor) }
  }

  /// Ends the current or the next wait with `.woken`.
  package func wake() {
    var one: UInt64 = 1
    unsafe write(wakeUps, &one, 8)
  }

  /// Waits for the first event. If several events have happened, a deadline that has passed takes precedence, so that
  /// no flood of events delays it. A signal takes precedence over a wake-up, and a wake-up over the descriptor.
  package func wait(until deadline: MonotonicTime = .distantFuture, orReadable descriptor: Int32? = nil) -> Event {
    while true {
      if SystemCall.monotonicNanoseconds() >= deadline.nanoseconds { return .deadline }
      // poll(2) ignores a negative descriptor.
      var interests = [signals, wakeUps, descriptor ?? -1].map { pollfd(fd: $0, events: Int16(POLLIN), revents: 0) }
      let count = unsafe poll(&interests, nfds_t(interests.count), milliseconds(until: deadline))
      if count > 0 {
        let signal = interests[0].revents != 0 ? clinux_take_signal(signals) : -1
        if signal >= 0 { return .signal(signal) }
        if interests[1].revents != 0, takeWakeUps() { return .woken }
        if interests[2].revents != 0 { return .readable }
      }
    }
  }

  private func milliseconds(until deadline: MonotonicTime) -> Int32 {
    guard deadline < .distantFuture else { return -1 }
    let now = MonotonicTime(nanoseconds: SystemCall.monotonicNanoseconds())
    return deadline <= now ? 0 : Int32(clamping: (deadline - now).millisecondsRoundedUp)
  }

  private func takeWakeUps() -> Bool {
    var counter: UInt64 = 0
    return unsafe read(wakeUps, &counter, 8) == 8
  }
}
