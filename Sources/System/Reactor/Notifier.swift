import Synchronization
import Threading

/// Notifies event loops of new data for which requests or other waiters on these loops wait.
///
/// `notify()` can be called from any thread. Each loop registers one listener and sets its `isWaiting` only while it
/// has waiters, so a notification does not wake idle loops.
package final class Notifier: Sendable {
  /// The registration of one loop.
  package final class Listener: Sendable {
    fileprivate let signal: Signal
    /// The loop sets this flag before its last check for new data, so that no notification after the check is lost. It
    /// clears the flag when it has no waiters.
    package let isWaiting = Atomic(false)

    /// - Parameter signal: notified at each notification while `isWaiting`.
    package init(_ signal: Signal) { self.signal = signal }
  }

  private let listeners = Locked<[Listener]>([])

  package init() {}

  package func add(_ listener: Listener) { listeners.withLock { $0.append(listener) } }

  package func remove(_ listener: Listener) { listeners.withLock { $0.removeAll { $0 === listener } } }

  /// Whether any loop has waiters.
  package var hasWaiters: Bool {
    listeners.withLock { $0.contains { $0.isWaiting.load(ordering: .sequentiallyConsistent) } }
  }

  /// Notifies the loops that have waiters.
  package func notify() {
    listeners.withLock { listeners in
      for listener in listeners where listener.isWaiting.load(ordering: .sequentiallyConsistent) {
        listener.signal.notify()
      }
    }
  }
}
