<<<<<<< HEAD
import Synchronization

/// A value that one thread at a time may touch: `Mutex`, visible to the thread sanitizer.
///
/// `Mutex` does its atomic operations inside the runtime library, which the sanitizer has not instrumented: it would report
/// whatever two threads do under one lock as a race. The counter here is read after locking and written before unlocking,
/// which orders the two as the lock has already done, in code that the sanitizer sees. It costs a load and a store.
package struct Locked<Value: ~Copyable>: ~Copyable, Sendable {
  private let mutex: Mutex<Value>
  private let visits = Atomic<UInt>(0)
=======
import CLinux
import Synchronization

/// A value behind a lock: `Synchronization.Mutex`, and seen by the thread sanitizer.
///
/// On Linux a contended `Mutex` is handed over by the kernel (a priority-inheriting futex), which the sanitizer does not see: it would
/// report every access as a race. In other builds the two calls do nothing.
package final class Locked<Value: ~Copyable>: Sendable {
  private let mutex: Mutex<Value>
>>>>>>> dfd288f (Test the layers' imports, the configuration, the log and the metrics)

  package init(_ value: consuming sending Value) { mutex = Mutex(value) }

  @inline(__always)
<<<<<<< HEAD
  package borrowing func withLock<Result: ~Copyable, Failure: Error>(
    _ body: (inout sending Value) throws(Failure) -> sending Result
  ) throws(Failure) -> sending Result {
    try mutex.withLock { (value: inout sending Value) throws(Failure) -> sending Result in
      let visit = visits.load(ordering: .acquiring)
      defer { visits.store(visit &+ 1, ordering: .releasing) }
=======
  package func withLock<Result: ~Copyable, Failure: Error>(
    _ body: (inout sending Value) throws(Failure) -> sending Result
  ) throws(Failure) -> sending Result {
    let name = unsafe UnsafeRawPointer(Unmanaged.passUnretained(self).toOpaque())
    return try mutex.withLock { (value: inout sending Value) throws(Failure) -> sending Result in
      unsafe clinux_lock_taken(name)
      defer { unsafe clinux_lock_released(name) }
>>>>>>> dfd288f (Test the layers' imports, the configuration, the log and the metrics)
      return try body(&value)
    }
  }
}
