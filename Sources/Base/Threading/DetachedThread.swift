import CLinux
import Glibc

/// A detached thread for blocking work.
package enum DetachedThread {
  /// Runs `body` on a new thread. Returns false, and does not run `body`, if the system cannot create a thread.
  package static func start(named name: StaticString, _ body: @escaping @Sendable () -> Void) -> Bool {
    let work = unsafe Unmanaged.passRetained(Work(name: name, body: body)).toOpaque()
    var thread = pthread_t()
    let result = unsafe pthread_create(
      &thread, nil,
      { opaque in
        guard let opaque = unsafe opaque else { return nil }
        let work = unsafe Unmanaged<Work>.fromOpaque(opaque).takeRetainedValue()
        unsafe work.name.utf8Start.withMemoryRebound(to: CChar.self, capacity: work.name.utf8CodeUnitCount + 1) {
          unsafe clinux_set_thread_name($0)
        }
        work.body()
        return nil
      }, work)
    guard result == 0 else {
      unsafe Unmanaged<Work>.fromOpaque(work).release()
      return false
    }
    pthread_detach(thread)
    return true
  }

  private final class Work {
    let name: StaticString
    let body: () -> Void

    init(name: StaticString, body: @escaping () -> Void) {
      self.name = name
      self.body = body
    }
  }
}
