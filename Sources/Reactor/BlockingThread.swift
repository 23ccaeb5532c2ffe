import CLinux
import Glibc

/// Work that blocks, on a thread made for it: for what is seldom, such as reading a secret before a dial.
package enum BlockingThread {
  /// Runs `work` and answers what it does.
  package static func run<Outcome: Sendable>(_ work: @escaping @Sendable () -> Outcome) async -> Outcome {
    unsafe await withUnsafeContinuation { continuation in
      let job = Job { unsafe continuation.resume(returning: work()) }
      let retained = unsafe Unmanaged.passRetained(job).toOpaque()
      var thread = pthread_t()
      let result = unsafe pthread_create(
        &thread, nil,
        { opaque in
          guard let opaque = unsafe opaque else { return nil }
          unsafe clinux_set_thread_name("blocking")
          unsafe Unmanaged<Job>.fromOpaque(opaque).takeRetainedValue().body()
          return nil
        }, retained)
      if result == 0 {
        _ = pthread_detach(thread)
      } else {
        // No thread is to be had: late is better than never.
        unsafe Unmanaged<Job>.fromOpaque(retained).takeRetainedValue().body()
      }
    }
  }

  private final class Job {
    let body: () -> Void
    init(_ body: @escaping () -> Void) { self.body = body }
  }
}
