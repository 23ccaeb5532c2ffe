import Synchronization

/// What wants to hear of a `Signal`, on the signal's own loop.
package protocol SignalTarget: AnyObject {
  func signalled()
}

/// A wake-up from any thread to one object on one loop. Any number of calls before the loop gets to it are one.
///
/// What there is to do is not in the signal: the sender leaves it somewhere shared first, then calls `notify()`.
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

  /// From any thread. Costs an atomic exchange when a wake-up is already on its way.
  package func notify() {
    guard !isPending.exchange(true, ordering: .acquiringAndReleasing) else { return }
    if executor.isCurrentThread {
      executor.context.raise(self)
    } else {
      executor.mailbox.post(self)
    }
  }

  /// No wake-up reaches the target any more. On the loop's thread.
  package func close() {
    executor.checkIsolated()
    target = nil
  }

  func deliver() {
    // Cleared first: what is left behind during `signalled()` wakes again.
    isPending.store(false, ordering: .sequentiallyConsistent)
    target?.signalled()
  }
}
