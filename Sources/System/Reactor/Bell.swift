import Synchronization
import Threading

/// Announces that there is something new to every event loop on which somebody waits for it.
///
/// Rung from any thread. A loop registers one listener and sets `isWaiting` only while it has waiters, so that news which nobody
/// waits for wakes nobody.
package final class Bell: Sendable {
  /// The interest of one loop.
  package final class Listener: Sendable {
    fileprivate let signal: Signal
    /// Set by the loop before it looks for news the last time and waits. Cleared when nobody waits there any more.
    package let isWaiting = Atomic(false)

    /// - Parameter signal: notified at each ring while `isWaiting`.
    package init(_ signal: Signal) { self.signal = signal }
  }

  private let listeners = Locked<[Listener]>([])

  package init() {}

  package func add(_ listener: Listener) { listeners.withLock { $0.append(listener) } }

  package func remove(_ listener: Listener) { listeners.withLock { $0.removeAll { $0 === listener } } }

  /// Whether somebody waits, on any loop.
  package var isAwaited: Bool {
    listeners.withLock { $0.contains { $0.isWaiting.load(ordering: .sequentiallyConsistent) } }
  }

  /// Wakes the loops on which somebody waits.
  package func ring() {
    listeners.withLock { listeners in
      for listener in listeners where listener.isWaiting.load(ordering: .sequentiallyConsistent) {
        listener.signal.notify()
      }
    }
  }
}
