/// Runs work on one thread, in order. The thread exists only while there is work. It is for work that takes too long
/// for a turn of a loop and does not block.
package final class WorkThread: Sendable {
  private struct State {
    var queue: [@Sendable () -> Void] = []
    var isRunning = false
  }

  private let state = Locked(State())
  private let startThread: @Sendable (@escaping @Sendable () -> Void) -> Bool

  package convenience init(named name: StaticString) {
    self.init { DetachedThread.start(named: name, $0) }
  }

  init(startThread: @escaping @Sendable (@escaping @Sendable () -> Void) -> Bool) { self.startThread = startThread }

  /// Queues `work`. Runs it in this call if the system cannot start a thread, since a long turn is better than no
  /// result.
  package func run(_ work: @escaping @Sendable () -> Void) {
    let starts = state.withLock { state in
      state.queue.append(work)
      defer { state.isRunning = true }
      return !state.isRunning
    }
    if starts, !startThread({ self.serve() }) { serve() }
  }

  private func serve() {
    while true {
      let batch = state.withLock { state in
        let batch = state.queue
        state.queue = []
        state.isRunning = !batch.isEmpty
        return batch
      }
      if batch.isEmpty { return }
      for work in batch { work() }
    }
  }
}
