import Synchronization

/// Receives a `Signal`, on the signal's loop.
package protocol SignalTarget: AnyObject {
  func signalled()
}

/// Wakes one object on one loop, from any thread. If `notify()` is called several times before the loop delivers the
/// signal, the object is woken once.
///
/// A signal carries no data. A sender stores its data in guarded state, and calls `notify()` after that.
///
/// Unchecked, since `target` is read and written only on the loop's own thread.
package final class Signal: @unchecked Sendable {
  private let isPending = Atomic(false)
  private unowned let executor: LoopExecutor
  private var target: (any SignalTarget)?

  init(executor: LoopExecutor, target: any SignalTarget) {
    self.executor = executor
    self.target = target
  }

  /// Callable from any thread. Costs one atomic exchange if a wake-up is already pending.
  package func notify() {
    guard !isPending.exchange(true, ordering: .acquiringAndReleasing) else { return }
    if executor.isCurrentThread {
      executor.context.raise(self)
    } else {
      executor.mailbox.post(self)
    }
  }

  /// Ends all further wake-ups of the target. Must be called on the loop's thread.
  package func close() {
    executor.checkIsolated()
    target = nil
  }

  func deliver() {
    // The flag is cleared before the call, so that a `notify()` during `signalled()` wakes the target again.
    isPending.store(false, ordering: .sequentiallyConsistent)
    target?.signalled()
  }
}
