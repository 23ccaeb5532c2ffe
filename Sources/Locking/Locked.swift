import Synchronization

/// A value that one thread at a time may touch: `Mutex`, visible to the thread sanitizer.
///
/// `Mutex` does its atomic operations inside the runtime library, which the sanitizer has not instrumented: it would report
/// whatever two threads do under one lock as a race. The counter here is read after locking and written before unlocking,
/// which orders the two as the lock has already done, in code that the sanitizer sees. It costs a load and a store.
@usableFromInline
package struct Locked<Value: ~Copyable>: ~Copyable, Sendable {
  @usableFromInline let mutex: Mutex<Value>
  @usableFromInline let visits = Atomic<UInt>(0)

  package init(_ value: consuming sending Value) { mutex = Mutex(value) }

  @inlinable @inline(__always)
  package borrowing func withLock<Result: ~Copyable, Failure: Error>(
    _ body: (inout sending Value) throws(Failure) -> sending Result
  ) throws(Failure) -> sending Result {
    try mutex.withLock { (value: inout sending Value) throws(Failure) -> sending Result in
      let visit = visits.load(ordering: .acquiring)
      defer { visits.store(visit &+ 1, ordering: .releasing) }
      return try body(&value)
    }
  }
}
