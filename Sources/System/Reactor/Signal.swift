import Synchronization

/// Receives a `Signal`, on the signal's loop.
package protocol SignalTarget: AnyObject {
  func signalled()
}

/// Wakes one object on one loop, from any thread. Calls that the loop has not delivered yet count as one.
///
/// A signal carries no data: the sender stores the data in guarded state first, then calls `notify()`.
///
/// Unchecked: `target` is read and written on the loop's own thread only.
package final class Signal: @unchecked Sendable {
  private let isPending = Atomic(false)
  private unowned let executor: LoopExecutor
  private var target: (any SignalTarget)?

  init(executor: LoopExecutor, target: any SignalTarget) {
    self.executor = executor
    self.target = target
  }

  /// Callable from any thread. Costs one atomic exchange if a wake-up is pending already.
  package func notify() {
    guard !isPending.exchange(true, ordering: .acquiringAndReleasing) else { return }
    if executor.isCurrentThread {
      executor.context.raise(self)
    } else {
      executor.mailbox.post(self)
    }
  }

  /// Stops all further wake-ups of the target. Call it on the loop's thread.
  package func close() {
    executor.checkIsolated()
    target = nil
  }

  func deliver() {
    // Cleared first: a `notify()` during `signalled()` wakes the target again.
    isPending.store(false, ordering: .sequentiallyConsistent)
    target?.signalled()
  }
}
