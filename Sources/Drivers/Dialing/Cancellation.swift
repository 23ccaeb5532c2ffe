import ByteStreams
import Reactor

/// Lets an owner cancel a task, whatever the task waits for. The owner and the task are on one event loop.
///
/// Before each wait, the task sets a handler that ends the wait. After the wait, it checks `isCancelled`.
package final class Cancellation {
  package private(set) var isCancelled = false
  private var endWait: (() -> Void)?
  /// The transport of the task, until the task passes it on.
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

  /// Sets the transport that a cancellation closes, which ends every wait for the transport. `transport` is nil when
  /// the task has passed it on.
  package func setTransport(_ transport: Transport?) {
    self.transport = transport
    if isCancelled { transport?.close() }
  }

  /// Sets the handler that ends the next waits; nil if the next waits cannot be ended.
  func onCancel(_ endWait: (() -> Void)?) { self.endWait = isCancelled ? nil : endWait }

  /// Waits for `work` until `deadline` or until the cancellation. Returns nil if the task is cancelled.
  ///
  /// - Parameter interrupt: called at a cancellation, to end the work itself.
  package func outcome<Value>(
    of work: BlockingWork<Value>, until deadline: MonotonicTime, on loop: LoopContext,
    interrupt: (() -> Void)? = nil
  ) async -> BlockingWork<Value>.Outcome? {
    // After a cancellation, no handler would end the work.
    guard !isCancelled else { return nil }
    let expiry = WorkExpiry { work.cancel() }
    let timer = loop.schedule(at: deadline, expiry)
    onCancel {
      work.cancel()
      interrupt?()
    }
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
