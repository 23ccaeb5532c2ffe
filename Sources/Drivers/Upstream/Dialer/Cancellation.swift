import ByteStreams
import Reactor

/// Lets an owner cancel a task, whatever the task waits for. Owner and task are on one event loop.
///
/// Before each wait the task sets how to end it, and checks `isCancelled` after it.
final class Cancellation {
  private(set) var isCancelled = false
  private var endWait: (() -> Void)?
  /// The transport that the task has and has not handed over.
  private(set) var transport: Transport?

  /// Ends the current wait, and all later ones.
  func cancel() {
    guard !isCancelled else { return }
    isCancelled = true
    let end = endWait
    endWait = nil
    end?()
    transport?.close()
  }

  /// A cancellation closes this transport, which ends every wait for it; nil once it is handed over.
  func hold(_ transport: Transport?) {
    self.transport = transport
    if isCancelled { transport?.close() }
  }

  /// `endWait` ends the waits from now on; nil for a wait that cannot be ended.
  func onCancel(_ endWait: (() -> Void)?) { self.endWait = isCancelled ? nil : endWait }

  /// Waits for `work` until `deadline` or the cancellation; returns nil if cancelled.
  func outcome<Value>(
    of work: BlockingWork<Value>, until deadline: MonotonicTime, on loop: LoopContext
  ) async -> BlockingWork<Value>.Outcome? {
    let expiry = WorkExpiry { work.cancel() }
    let timer = loop.schedule(at: deadline, expiry)
    onCancel { work.cancel() }
    let outcome = await work.value()
    loop.cancel(timer)
    onCancel(nil)
    return isCancelled ? nil : outcome
  }
}

/// The deadline of a wait for work that blocks.
private final class WorkExpiry: TimerTarget {
  private let giveUp: () -> Void

  init(giveUp: @escaping () -> Void) { self.giveUp = giveUp }

  func timerFired(_ token: Int) { giveUp() }
}
