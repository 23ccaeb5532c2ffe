import ByteStreams
import Reactor

/// An event that one task on a loop waits for, and that other tasks on the same loop signal.
///
/// A signal is remembered: if `signal()` was called before `wait`, the wait ends at once. Several signals before a wait
/// have the effect of one.
@safe
package final class LoopEvent: TimerTarget {
  private let loop: LoopContext
  private var isSignalled = false
  private var continuation: UnsafeContinuation<Bool, Never>?
  private var timer: LoopTimer?

  package init(loop: LoopContext) {
    self.loop = loop
    unsafe continuation = nil
  }

  /// Returns true if the event happened, false if `deadline` passed first.
  package func wait(until deadline: MonotonicTime = .distantFuture) async -> Bool {
    if isSignalled {
      isSignalled = false
      return true
    }
    if deadline < .distantFuture { timer = loop.schedule(at: deadline, self) }
    return await unsafe withUnsafeContinuation { continuation in
      precondition(unsafe self.continuation == nil, "two tasks wait for one event")
      unsafe self.continuation = continuation
    }
  }

  package func signal() {
    if unsafe continuation == nil { isSignalled = true } else { end(with: true) }
  }

  package func timerFired(_ token: Int) {
    timer = nil
    end(with: false)
  }

  private func end(with outcome: Bool) {
    guard let waiter = unsafe continuation else { return }
    unsafe continuation = nil
    if let timer { loop.cancel(timer) }
    timer = nil
    unsafe waiter.resume(returning: outcome)
  }
}
