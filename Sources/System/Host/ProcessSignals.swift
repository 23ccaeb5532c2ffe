import ByteStreams
import CLinux
import Glibc

/// Synchronous UNIX signals: blocked in every thread, and accepted one by one by the main thread.
package enum ProcessSignals {
  /// Ignores SIGPIPE, so that a write to a pipe or socket that nobody reads fails with EPIPE and does not end the
  /// process. Must be called first in `main`.
  package static func ignoreBrokenPipes() { _ = signal(SIGPIPE, SIG_IGN) }

  /// Blocks `signals`. Must be called before any thread is started, since threads inherit the mask. Also restores
  /// SIGCHLD's default action: if the parent has left this signal ignored, the kernel keeps no exit status of the
  /// children of this process (wait(2)).
  package static func block(_ signals: [Int32]) {
    _ = signal(SIGCHLD, SIG_DFL)
    var set = makeSet(signals)
    unsafe pthread_sigmask(SIG_BLOCK, &set, nil)
  }

  /// Restores the default action of `signals` and unblocks them, so pending signals take effect now. Called when the
  /// process ends, so that a signal can end it even if its last steps hang. The default action is restored because a
  /// shell without job control makes its background processes ignore SIGINT.
  package static func unblock(_ signals: [Int32]) {
    for number in signals { _ = signal(number, SIG_DFL) }
    var set = makeSet(signals)
    unsafe pthread_sigmask(SIG_UNBLOCK, &set, nil)
  }

  /// Blocks until one of `signals` arrives, and returns it.
  package static func wait(for signals: [Int32]) -> Int32 {
    var set = makeSet(signals)
    while true {
      var arrived: Int32 = 0
      if unsafe sigwait(&set, &arrived) == 0 { return arrived }
    }
  }

  /// Like `wait(for:)`, but returns nil if no signal arrives within `limit`.
  package static func wait(for signals: [Int32], atMost limit: TimeSpan) -> Int32? {
    var set = makeSet(signals)
    var time = timespec(
      tv_sec: Int(limit.nanoseconds / 1_000_000_000), tv_nsec: Int(limit.nanoseconds % 1_000_000_000))
    let signal = unsafe sigtimedwait(&set, nil, &time)
    return signal > 0 ? signal : nil
  }

  /// Whether one of `signals`, which must be blocked, has arrived and was not accepted yet. Can be called on any
  /// thread.
  package static func isPending(_ signals: [Int32]) -> Bool {
    var set = sigset_t()
    guard unsafe sigpending(&set) == 0 else { return false }
    return signals.contains { unsafe sigismember(&set, $0) == 1 }
  }

  /// Sends `signal` to this process. Another thread uses this to end the main thread's wait.
  package static func raise(_ signal: Int32) { _ = kill(getpid(), signal) }

  private static func makeSet(_ signals: [Int32]) -> sigset_t {
    var set = sigset_t()
    unsafe sigemptyset(&set)
    for signal in signals { unsafe sigaddset(&set, signal) }
    return set
  }
}
