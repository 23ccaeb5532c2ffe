import Glibc

/// A value that one thread at a time may touch.
///
/// The lock is the C library's and not `Synchronization.Mutex`. That one is a priority-inheriting futex, which its kernel hands
/// from holder to waiter: where more loops than processors share a queue, each post then costs changes of thread, at a
/// fifth of the rate (docs/performance.md). This one lets whoever runs take it.
@safe
@usableFromInline
package struct Locked<Value: ~Copyable>: ~Copyable, Sendable {
  // Behind pointers: threads that wait know the lock by its address. Unchecked, since nothing reaches the value but under the lock.
  @usableFromInline nonisolated(unsafe) let mutex: UnsafeMutablePointer<pthread_mutex_t>
  @usableFromInline nonisolated(unsafe) let value: UnsafeMutablePointer<Value>

  package init(_ initial: consuming sending Value) {
    unsafe mutex = .allocate(capacity: 1)
    unsafe value = .allocate(capacity: 1)
    let result = unsafe pthread_mutex_init(mutex, nil)
    precondition(result == 0, "a lock could not be made: \(result)")
    unsafe value.initialize(to: initial)
  }

  deinit {
    unsafe value.deinitialize(count: 1)
    unsafe value.deallocate()
    unsafe pthread_mutex_destroy(mutex)
    unsafe mutex.deallocate()
  }

  @inlinable @inline(__always)
  package borrowing func withLock<Result: ~Copyable, Failure: Error>(
    _ body: (inout sending Value) throws(Failure) -> sending Result
  ) throws(Failure) -> sending Result {
    unsafe pthread_mutex_lock(mutex)
    defer { unsafe pthread_mutex_unlock(mutex) }
    return try unsafe body(&value.pointee)
  }
}
