import ByteStreams
import UpstreamProtocol
import Logging
import Outbox
import Reactor
import Synchronization
import Threading
import UpstreamSession
import WebSocketCodec

/// Carries out what a session's machine decides, on one loop: dials, sockets, timers, the queue.
///
/// `apply(_:)` is the only place where a decision becomes I/O. What links report comes in through
/// `UpstreamDriver+Reports`; what other loops ask, and the queue, through `UpstreamDriver+Outbox`.
final class UpstreamDriver {
  private(set) var sharedSettings: SharedSettings
  let handle: SessionHandle
  let sink: any UpstreamSink
  let logger: Logger
  let metrics: UpstreamMetrics
  let resolver: Resolver
  let loop: LoopContext
  var machine: SessionStateMachine

  /// Every dial and connection that is not yet gone: one, or two during a replacement, or a third that lingers.
  var links: [UpstreamLink] = []
  /// The connection that the queue flows into.
  var sending: UpstreamLink?
  /// The connection that sent before, until its messages are accounted for.
  var retiring: UpstreamLink?
  var batch: [OutboxMessage] = []
  /// Set while two connections may bring the same.
  var overlap: Overlap?
  /// What is known of the pushes so far; it outlives connections.
  var pushHistory = PushHistory()
  /// Where the last dial was redirected to.
  var redirection: UpstreamURL?
  /// What the next transition's log line and the status tell of its cause.
  var detail: String?
  var report: OpeningReport?
  var agreement: ClientHandshake.Agreement?
  /// Our place among the dials of a host, while we wait for it.
  var ticket: HostDials.Ticket?
  /// Whose answer is being dealt with.
  var refusedBy: UpstreamURL?
  /// The last dial or connection that is no more: what is said of its end names its URL.
  var gone: (generation: Generation, url: UpstreamURL)?
  /// What clients have subscribed to; it outlives connections.
  var subscriptions: SubscriptionLedger
  /// How far the pushes have come; it outlives connections.
  var cursor: [UInt8]?
  /// The opening message whose answer was awaited last, and since when.
  var lastAwaited: (step: Int, since: MonotonicTime)?
  /// Set by shutdown: when to stop waiting for the queue.
  var flushDeadline: MonotonicTime?
  private(set) var isApplying = false
  /// The last message before a shutdown was written by an action.
  var isCloseDue = false

  enum TimerToken: Int {
    /// The machine's next deadline.
    case machine
    /// Messages wait for their barrier ping.
    case barrier
    /// A queued message expires, the pace lets the next one go, or the flush before a shutdown has had its time.
    case outbox
    /// Lost messages wait to be logged.
    case losses
    /// A push of a successor is held for its predecessor.
    case overlap
  }

  struct Armed {
    let deadline: MonotonicTime
    let timer: LoopTimer
  }

  private var machineTimer: Armed?
  private var shownNextDial: MonotonicTime?
  var barrierTimer: LoopTimer?
  var outboxTimer: Armed?
  /// Set while lost messages wait to be logged, and when the next log line may report some.
  var lossTimer: LoopTimer?
  var nextLossReport = MonotonicTime.zero

  /// Starts a session on `loop`.
  static func start(_ handle: SessionHandle, resolver: Resolver, on loop: EventLoop) {
    loop.submit { context in
      let driver = UpstreamDriver(handle, resolver: resolver, loop: context)
      // The signal holds the driver, and the handle the signal.
      let signal = context.makeSignal(for: driver)
      handle.shared.withLock { $0.signal = signal }
      driver.signalled()
      return nil
    }
  }

  private init(_ handle: SessionHandle, resolver: Resolver, loop: LoopContext) {
    self.handle = handle
    self.resolver = resolver
    self.loop = loop
    sharedSettings = handle.settings
    sink = handle.sink
    logger = handle.logger
    metrics = handle.metrics
    machine = SessionStateMachine(handle.settings.value.session)
    subscriptions = SubscriptionLedger(handle.settings.value.conventions.subscriptions)
  }

  var settings: UpstreamSettings {
    _read { yield sharedSettings.value }
  }

  /// Random numbers, from the store of the loop.
  var entropy: EntropyPool {
    get { loop.entropy }
    _modify { yield &loop.entropy }
  }

  /// Turns decisions into I/O, in their order.
  func apply(_ actions: [SessionAction]) {
    let isOutermost = !isApplying
    isApplying = true
    var postponed: [(Generation, until: MonotonicTime)] = []
    for action in actions {
      switch action {
      case .dial(let dial):
        if let until = start(dial) { postponed.append((dial.generation, until)) }
      case .startSending(let generation):
        sending = link(generation)
        if let sending { sayAgain(on: sending) }
        handle.update { $0.outbox.startSending() }
        overlapSwitched()
        sending?.scheduleFlush()
      case .stopSending(let generation, let lastIsPoison):
        precondition(sending?.generation == generation, "\(generation) does not send")
        if let older = retiring { account(for: older) }
        retiring = sending
        sending = nil
        let begun = retiring?.begunMessage
        handle.update { $0.outbox.stopSending(lastIsPoison: lastIsPoison, begun: begun) }
      case .pauseSending(_, let successor):
        handle.update { $0.outbox.pause(now: loop.now) }
        armOutboxTimer()
        if let link = link(successor) { sayAgain(on: link) }
      case .resumeSending:
        handle.shared.withLock { $0.outbox.resume() }
        sending?.scheduleFlush()
      case .endOverlap:
        endOverlap()
      case .ping(let counter, let generation):
        sendBarrier(counter, generation)
      case .close(let generation, let code):
        link(generation)?.sendClose(code)
      case .discard(let generation):
        if let link = link(generation) { drop(link) }
      case .holdHost(let endpoint, let until):
        holdHost(endpoint, until: until)
      case .sendHeartbeat(let counter, let generation):
        sendHeartbeat(counter, generation)
      case .sendOpening(let step, let generation):
        if let link = link(generation) { sendOpening(step: step, link) }
      case .report(let transition):
        publish(transition)
      }
    }
    for (generation, until) in postponed { apply(machine.postponed(until: until, generation, now: loop.now)) }
    showNextDial()
    armTimer()
    finishIfOver()
    wakeIfIdle()
    reportLosses()
    guard isOutermost else { return }
    isApplying = false
    shutDownIfDue()
  }

  /// What a shutdown asks for once a decision is carried out.
  private func shutDownIfDue() {
    guard flushDeadline != nil else { return }
    // Its flush may be shorter than a cut.
    let cut = machine.endCut(now: loop.now)
    if !cut.isEmpty { apply(cut) }
    guard isCloseDue else { return }
    isCloseDue = false
    closeIfFlushed()
  }

  /// An on-demand session becomes idle when nothing is to be sent and no poll is held; what has come since, or come back, wakes it.
  private func wakeIfIdle() {
    guard machine.observed == .idle, sink.hasReaders || handle.shared.withLock({ $0.outbox.hasWaiting }) else { return }
    apply(machine.demand(now: loop.now))
  }

  /// It changes with the state, and when the network or a hold of the host moves it.
  private func showNextDial() {
    let next = machine.nextDial
    guard next != shownNextDial else { return }
    shownNextDial = next
    handle.shared.withLock { $0.status.nextDial = next }
  }

  /// New settings, from which the next connection is made.
  func reconfigure(_ settings: SharedSettings, because reason: ReplacementReason) {
    sharedSettings = settings
    handle.isOnDemand.store(self.settings.session.onDemand, ordering: .relaxed)
    subscriptions.rules = self.settings.conventions.subscriptions
    apply(machine.reconfigure(self.settings.session, because: reason, now: loop.now))
    if machine.isReplacementPostponed(now: loop.now) {
      logger.info("a hand-over is in progress: the next one begins when it is over", [])
    }
  }

  func link(_ generation: Generation) -> UpstreamLink? { links.first { $0.generation == generation } }

  /// Ends a link and settles the account of what it carried.
  func drop(_ link: UpstreamLink) {
    dialEnded(link)
    link.discard()
    links.removeAll { $0 === link }
    gone = (link.generation, link.url)
    overlapLost(link)
    if retiring === link { settle(link) }
  }

  /// The account of a predecessor is closed, since that of its successor begins. A message that it has begun goes to the next
  /// connection: so its rest must not be written.
  private func account(for predecessor: UpstreamLink) {
    if predecessor.hasUnwritten { drop(predecessor) } else { settle(predecessor) }
  }

  private func settle(_ link: UpstreamLink) {
    retiring = nil
    handle.update { $0.outbox.settle(begun: link.begunMessage) }
    // What came back waits again, and may have held up what came after it.
    sending?.scheduleFlush()
    armOutboxTimer()
  }

  func url(for target: Dial.Target) -> UpstreamURL {
    switch target {
    case .endpoint(let index): settings.urls[index]
    case .redirection(from: let index): redirection ?? settings.urls[index]
    }
  }

  // MARK: Time

  private func armTimer() {
    let deadline = machine.nextDeadline
    guard machineTimer?.deadline != deadline else { return }
    if let armed = machineTimer { loop.cancel(armed.timer) }
    machineTimer = nil
    guard deadline < .distantFuture else { return }
    let timer = loop.schedule(at: deadline, self, token: TimerToken.machine.rawValue)
    machineTimer = Armed(deadline: deadline, timer: timer)
  }

  private func machineTimerFired() {
    machineTimer = nil
    // What waits for its pace, its pong or the upstream's window is a use, and so is a held poll.
    if settings.session.onDemand,
      sink.hasReaders || handle.shared.withLock({ !$0.outbox.isEmpty || $0.outbox.unconfirmed > 0 })
    {
      apply(machine.demand(now: loop.now))
    }
    apply(machine.deadlineReached(now: loop.now, using: &entropy))
  }

  // MARK: The end

  private func finishIfOver() {
    guard flushDeadline != nil, machine.observed == .stopped, links.isEmpty else { return }
    if let barrierTimer { loop.cancel(barrierTimer) }
    if let outboxTimer { loop.cancel(outboxTimer.timer) }
    if let lossTimer { loop.cancel(lossTimer) }
    let signal = handle.update { shared in
      shared.outbox.close()
      shared.hasEnded = true
      let signal = shared.signal
      shared.signal = nil
      return signal
    }
    signal?.close()
    handle.logLosses()
  }
}

extension UpstreamDriver: TimerTarget {
  func timerFired(_ token: Int) {
    switch TimerToken(rawValue: token) {
    case .machine: machineTimerFired()
    case .barrier: barrierTimerFired()
    case .outbox: outboxTimerFired()
    case .losses: lossTimerFired()
    case .overlap: overlapTimerFired()
    case nil: preconditionFailure("no timer \(token)")
    }
  }
}
