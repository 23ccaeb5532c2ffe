import ByteStreams
import Reactor
import Synchronization
import Threading
import Totals

/// Prepares the large bodies of one event loop, on a thread of its own, one after another.
///
/// Clients take turns, so that none delays the others. The number of bodies is limited by the number of connections,
/// and their memory by `http.pending_body_bytes`.
final class BodyThread: Sendable {
  /// The longest wait for earlier bodies and for the preparation itself. The default of `http.pending_body_bytes` takes
  /// about 5 s, at 20 ns per byte. The rest is for decompressed content.
  static var longestWait: TimeSpan { .seconds(30) }

  private struct State {
    var queue = TurnQueue<BodyWork>()
    var isRunning = false
  }

  private let state = Locked(State())
  private let startThread: @Sendable (@escaping @Sendable () -> Void) -> Bool

  init(
    startThread: @escaping @Sendable (@escaping @Sendable () -> Void) -> Bool = {
      DetachedThread.start(named: "bodies", $0)
    }
  ) {
    self.startThread = startThread
  }

  /// Queues work, and starts the thread if it is not running. The thread ends when it has no more work.
  func add(_ work: BodyWork) {
    let starts = state.withLock { state in
      state.queue.append(work, by: work.user)
      defer { state.isRunning = true }
      return !state.isRunning
    }
    // The system cannot start a thread. A long turn is better than no response.
    if starts, !startThread({ self.run() }) { run() }
  }

  /// Ends the wait for `work`. If the work has not begun, it is never done.
  func cancel(_ work: BodyWork) {
    state.withLock { $0.queue.removeAll(of: work.user) { $0 === work } }
    work.cancel()
  }

  private func run() {
    while let work = next() { work.run() }
  }

  private func next() -> BodyWork? {
    state.withLock { state in
      let work = state.queue.next()
      if work == nil { state.isRunning = false }
      return work
    }
  }
}

/// A body that waits for its preparation. Its connection is woken when the preparation is done or cancelled.
final class BodyWork: Sendable {
  private struct Input: Sendable {
    let preparation: any BodyPreparation
    let bytes: [UInt8]
  }

  let user: TotalUser
  let notifier: Notifier
  let deadline: MonotonicTime
  /// nil once the work has begun or was cancelled.
  private let input: Locked<Input?>
  private let hasEnded = Atomic(false)

  /// - Parameters:
  ///   - notifier: the notifier of the connection's loop.
  ///   - deadline: when the connection stops waiting.
  init(
    _ preparation: any BodyPreparation, _ bytes: [UInt8], of user: TotalUser, notifying notifier: Notifier,
    until deadline: MonotonicTime
  ) {
    self.user = user
    self.notifier = notifier
    self.deadline = deadline
    input = Locked(Input(preparation: preparation, bytes: bytes))
  }

  /// Whether the preparation is done or was cancelled.
  var isDone: Bool { hasEnded.load(ordering: .acquiring) }

  fileprivate func run() {
    if let input = take() { input.preparation.prepare(input.bytes) }
    end()
  }

  fileprivate func cancel() {
    _ = take()
    end()
  }

  private func take() -> Input? {
    input.withLock { input in
      defer { input = nil }
      return input
    }
  }

  private func end() {
    hasEnded.store(true, ordering: .sequentiallyConsistent)
    notifier.notify()
  }
}
