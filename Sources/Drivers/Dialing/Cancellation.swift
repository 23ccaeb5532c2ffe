import ByteStreams
import Reactor

/// Lets an owner cancel a task, whatever the task waits for. Owner and task are on one event loop.
///
/// Before each wait, the task sets a handler that ends the wait. After the wait, it checks `isCancelled`.
package final class Cancellation {
  package private(set) var isCancelled = false
  private var endWait: (() -> Void)?
  /// The transport that the task owns until it hands it over.
  package private(set) var transport: Transport?

  package init() {}

  /// Ends the current wait and all later waits.
  package func cancel() {
    guard !isCancelled else { return }
    isCancelled = true
    let end = endWait
    endWait = nil
    end?()
    transport?.close()
  }

  /// Sets the transport that a cancellation closes, which ends every wait for it; nil once it is handed over.
  package func setTransport(_ transport: Transport?) {
    self.transport = transport
    if isCancelled { transport?.close() }
  }

  /// Sets the handler that ends the next waits; nil if they cannot be ended.
  func onCancel(_ endWait: (() -> Void)?) { self.endWait = isCancelled ? nil : endWait }

  /// Waits for `work` until `deadline` or the cancellation; returns nil if cancelled.
  package func outcome<Value>(
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
  private let onExpiry: () -> Void

  init(onExpiry: @escaping () -> Void) { self.onExpiry = onExpiry }

  func timerFired(_ token: Int) { onExpiry() }
}
