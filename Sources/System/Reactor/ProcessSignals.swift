import ByteStreams
import CLinux
import Glibc

/// UNIX signals as ordinary calls: blocked in every thread and taken, one by one, by the main thread.
package enum ProcessSignals {
  /// A write to a pipe or socket that nobody reads any more fails, and does not end the process. Call first in `main`.
  package static func ignoreBrokenPipes() { _ = signal(SIGPIPE, SIG_IGN) }

  /// Call before any thread is started: threads inherit the mask. SIGCHLD gets its default: a parent may have left it ignored,
  /// and then the kernel keeps no exit status of our children (wait(2)).
  package static func block(_ signals: [Int32]) {
    _ = signal(SIGCHLD, SIG_DFL)
    var set = makeSet(signals)
    unsafe pthread_sigmask(SIG_BLOCK, &set, nil)
  }

  /// `signals` do again what they do by default, also those that arrived meanwhile: for the end of a process that may block.
  package static func unblock(_ signals: [Int32]) {
    var set = makeSet(signals)
    unsafe pthread_sigmask(SIG_UNBLOCK, &set, nil)
  }

  /// Sleeps until one of `signals` arrives and answers which.
  package static func wait(for signals: [Int32]) -> Int32 {
    var set = makeSet(signals)
    while true {
      var arrived: Int32 = 0
      if unsafe sigwait(&set, &arrived) == 0 { return arrived }
    }
  }

  /// As `wait(for:)`, but no longer than `limit`; nil when none came.
  package static func wait(for signals: [Int32], atMost limit: TimeSpan) -> Int32? {
    var set = makeSet(signals)
    var time = timespec(
      tv_sec: Int(limit.nanoseconds / 1_000_000_000), tv_nsec: Int(limit.nanoseconds % 1_000_000_000))
    let signal = unsafe sigtimedwait(&set, nil, &time)
    return signal > 0 ? signal : nil
  }

  /// Sends `signal` to this process: how another thread ends the main thread's wait.
  package static func raise(_ signal: Int32) { _ = kill(getpid(), signal) }

  private static func makeSet(_ signals: [Int32]) -> sigset_t {
    var set = sigset_t()
    unsafe sigemptyset(&set)
    for signal in signals { unsafe sigaddset(&set, signal) }
    return set
  }
}
