/// Runs work on one thread, in order. The thread exists only while there is work. It is for work that takes too long
/// for a turn of a loop and does not block.
package final class WorkThread: Sendable {
  private struct State {
    /// nil for work that was removed.
    var queue: [(@Sendable () -> Void)?] = []
    var first = 0
    var isRunning = false
  }

  private let state = Locked(State())
  private let startThread: @Sendable (@escaping @Sendable () -> Void) -> Bool

  package convenience init(named name: StaticString) {
    self.init { DetachedThread.start(named: name, $0) }
  }

  init(startThread: @escaping @Sendable (@escaping @Sendable () -> Void) -> Bool) { self.startThread = startThread }

  /// Queues `work`. If the system cannot start a thread, runs `work` in this call, since a long turn is better than no
  /// result.
  package func run(_ work: @escaping @Sendable () -> Void) {
    let starts = state.withLock { state in
      state.queue.append(work)
      defer { state.isRunning = true }
      return !state.isRunning
    }
    guard starts, !startThread({ self.serve() }) else { return }
    while let next = next() { next() }
  }

  private func serve() {
    while let work = next() { work() }
  }

  /// Removes the first work, so that nothing keeps it after it has run.
  private func next() -> (@Sendable () -> Void)? {
    state.withLock { state in
      guard state.first < state.queue.count else {
        (state.queue, state.first, state.isRunning) = ([], 0, false)
        return nil
      }
      defer { state.first += 1 }
      return state.queue[state.first].take()
    }
  }
}
