import Glibc

/// A value guarded by a lock: one thread at a time has access to it.
///
/// The lock is a pthread mutex and not a `Synchronization.Mutex`. `Mutex` is a priority-inheriting futex: when a thread
/// unlocks it, the kernel passes it directly to a waiting thread, which may not be running. If more loops than
/// processors use one queue, each post therefore costs context switches, and throughput falls to a fifth
/// (docs/performance.md). A pthread mutex can be taken by any thread that is running.
@safe
@usableFromInline
package struct Locked<Value: ~Copyable>: ~Copyable, Sendable {
  // The mutex is allocated, since waiting threads identify it by its address. Both pointers are `nonisolated(unsafe)`,
  // since `value` is accessed only under the lock.
  @usableFromInline nonisolated(unsafe) let mutex: UnsafeMutablePointer<pthread_mutex_t>
  @usableFromInline nonisolated(unsafe) let value: UnsafeMutablePointer<Value>

  package init(_ initial: consuming sending Value) {
    unsafe mutex = .allocate(capacity: 1)
    unsafe value = .allocate(capacity: 1)
    let result = unsafe pthread_mutex_init(mutex, nil)
    precondition(result == 0, "a lock could not be created: \(result)")
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
