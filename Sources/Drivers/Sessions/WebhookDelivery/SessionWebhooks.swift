import ByteStreams
import Consumers
import Dialing
import Logging
import Metrics
import Reactor
import Threading
import Webhooks

/// The webhooks of one session, and their states. Thread-safe.
///
/// Each webhook is a consumer of the session. Its only worker is a `WebhookDriver` on the session's loop.
package final class SessionWebhooks: Sendable {
  private struct State {
    var plans: [WebhookPlan]
    var statuses: [String: WebhookStatus] = [:]
    /// Where the webhooks run; nil before the session has started.
    var place: (loop: EventLoop, resolver: Resolver)?
    /// Wakes the runner; nil if there is no runner.
    var signal: Signal?
    var hasRunner = false
    var isStopping = false
    /// Whether this gateway is no longer the holder.
    var isAborted = false
    /// Whether the runner has stopped, so that no further attempt begins.
    var hasStopped = false
    var attempts = 0
    /// Called when the webhooks have become idle.
    var onIdle: (@Sendable () -> Void)?

    var isIdle: Bool { attempts == 0 && (hasStopped || !hasRunner) }
  }

  private let state: Locked<State>
  private let allMetrics: WebhookMetricsTable
  // This object has no reference to its session: the session owns this object, so that would be a reference cycle.
  let consumers: ConcurrentConsumers
  let inbox: ConcurrentInbox
  /// The permission that is checked before each attempt, and before each write of an attempt. nil if attempts are
  /// always allowed.
  let permission: WritePermission?
  let logger: Logger

  init(
    _ plans: [WebhookPlan], _ inbox: ConcurrentInbox, _ consumers: ConcurrentConsumers,
    permission: WritePermission? = nil,
    logger: Logger, metrics: WebhookMetricsTable
  ) {
    state = Locked(State(plans: plans))
    self.permission = permission
    allMetrics = metrics
    self.consumers = consumers
    self.inbox = inbox
    self.logger = logger
    metrics.use(self)
  }

  // MARK: For clients

  /// Whether the consumer is a webhook. Clients cannot receive from such a consumer, and cannot settle its pushes,
  /// change it or remove it.
  package func contains(_ name: String) -> Bool {
    state.withLock { state in state.plans.contains { $0.settings.name == name } }
  }

  /// Returns nil if there is no webhook of this name.
  package func status(of name: String) -> WebhookStatus? { state.withLock { $0.statuses[name] } }

  // MARK: Life cycle

  func start(on loop: EventLoop, resolver: Resolver) {
    state.withLock { $0.place = (loop, resolver) }
    wakeRunner()
  }

  /// Applies the webhooks of a reloaded configuration. Disabled webhooks are enabled again.
  package func replace(with plans: [WebhookPlan]) {
    state.withLock { $0.plans = plans }
    wakeRunner()
  }

  /// Ends the webhooks. Attempts in progress continue, and no attempt begins once `isIdle` is true.
  ///
  /// - Parameter onIdle: called when `isIdle` has become true, on the session's loop.
  func stop(whenIdle onIdle: @escaping @Sendable () -> Void) {
    state.withLock { state in
      state.isStopping = true
      state.onIdle = onIdle
    }
    wakeRunner()
  }

  /// Called when another gateway may deliver to the webhooks. No attempt begins any more, and attempts in progress are
  /// cancelled. Their receivers may already have got the pushes, and the other gateway delivers these pushes again.
  func abort() {
    state.withLock { state in
      (state.isStopping, state.isAborted) = (true, true)
      (state.plans, state.statuses) = ([], [:])
    }
    wakeRunner()
  }

  /// Whether no attempt is in progress, and none will begin. Valid after `stop`.
  var isIdle: Bool { state.withLock { $0.isIdle } }

  private func wakeRunner() {
    let place = state.withLock { state -> (loop: EventLoop, resolver: Resolver)? in
      state.signal?.notify()
      // Most sessions have no webhooks, and need no runner.
      guard !state.hasRunner, !state.plans.isEmpty, let place = state.place else { return nil }
      state.hasRunner = true
      return place
    }
    guard let (loop, resolver) = place else { return }
    loop.submit { [self] context in WebhookRunner(self, resolver, loop: context) }
  }

  // MARK: For the runner and its drivers

  fileprivate func attach(_ signal: Signal) { state.withLock { $0.signal = signal } }

  /// The webhooks that must run; nil if no webhook may begin an attempt any more.
  fileprivate var wanted: [WebhookPlan]? { state.withLock { $0.isStopping ? nil : $0.plans } }

  fileprivate var isAborted: Bool { state.withLock { $0.isAborted } }

  /// Releases the signal of the runner. The signal and the runner refer to each other: they form a reference cycle.
  /// Called on the session's loop.
  fileprivate func detach() {
    let signal = state.withLock { $0.signal.take() }
    signal?.close()
  }

  func publish(_ status: WebhookStatus?, of name: String) {
    state.withLock { state in if !state.isAborted { state.statuses[name] = status } }
  }

  /// Called before an attempt begins.
  func attemptBegins() { state.withLock { $0.attempts += 1 } }

  /// Called when an attempt has ended and its result was handled.
  func attemptEnded() { change { $0.attempts -= 1 } }

  /// Called when all drivers have stopped for good.
  fileprivate func hasStopped() { change { $0.hasStopped = true } }

  private func change(_ body: (inout State) -> Void) {
    let onIdle = state.withLock { state in
      body(&state)
      return state.isIdle ? state.onIdle : nil
    }
    onIdle?()
  }

  func metrics(of name: String) -> WebhookMetrics { allMetrics.metrics(of: name) }

  /// The number of pushes after the position of a webhook.
  func lag(of name: String) -> UInt64 { contains(name) ? consumers.lag(of: name) ?? 0 : 0 }
}

/// Starts, changes and stops the drivers of a session's webhooks, on its loop.
private final class WebhookRunner: LoopTask, SignalTarget {
  private let webhooks: SessionWebhooks
  private let resolver: Resolver
  private let loop: LoopContext
  private var drivers: [WebhookDriver] = []
  /// Drivers whose webhooks were removed while attempts were in progress. If such a webhook is added again, its driver
  /// continues, so that two drivers never deliver the same push at once.
  private var ending: [WebhookDriver] = []

  init(_ webhooks: SessionWebhooks, _ resolver: Resolver, loop: LoopContext) {
    self.webhooks = webhooks
    self.resolver = resolver
    self.loop = loop
  }

  func run() async {
    webhooks.attach(loop.makeSignal(for: self))
    signalled()
  }

  func signalled() {
    guard let plans = webhooks.wanted else {
      for driver in drivers { driver.stop() }
      if webhooks.isAborted {
        for driver in drivers + ending { driver.abort() }
        (drivers, ending) = ([], [])
        webhooks.detach()
      }
      webhooks.hasStopped()
      return
    }
    var old = drivers + ending
    drivers = plans.map { plan in
      if let index = old.firstIndex(where: { $0.name == plan.settings.name }) {
        let driver = old.remove(at: index)
        driver.reload(plan)
        return driver
      }
      let driver = WebhookDriver(plan, webhooks, resolver, loop: loop)
      driver.start(isNewWorker: true)
      return driver
    }
    for driver in old {
      driver.stop()
      webhooks.publish(nil, of: driver.name)
    }
    ending = old.filter { $0.isBusy }
  }
}
