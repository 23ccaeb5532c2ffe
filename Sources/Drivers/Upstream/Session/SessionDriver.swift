import ByteStreams
import Configuration
import Logging
import Metrics
import Outbox
import Reactor
import Threading
import UpstreamSession
import WebSocketCodec

/// Carries out what a session's machine decides, on one loop: dials, sockets, timers.
///
/// `apply` is the only place where a decision becomes I/O. What connections report comes in through `SessionDriver+Events`, what other
/// loops ask through `SessionDriver+Commands`. The machine owns which connection sends; this looks connections up by their generation.
final class SessionDriver {
  var sharedSettings: SharedSettings
  let handle: SessionHandle
  let sink: any UpstreamSink
  let logger: Logger
  let metrics: UpstreamMetrics
  let dialer: any Dialer
  let loop: LoopContext
  var machine: SessionStateMachine
  let pump: OutboxPump
  let runner: ProtocolRunner
  let merger: PushMerger
  let status: StatusBoard

  /// Every attempt and connection that is not yet gone: one, or two during a replacement, or a third that lingers.
  private(set) var connections: [UpstreamConnection] = []
  /// Where the last attempt was redirected to.
  var redirection: WebSocketURL?
  /// Our place among the attempts of a host, while we wait for it.
  private var ticket: HostDials.Ticket?
  /// Whose response is being dealt with.
  var refusedBy: WebSocketURL?
  private var isApplying = false
  private var timer: (deadline: MonotonicTime, timer: LoopTimer)?

  /// Starts a session on `loop`. `makeDialer`: makes what opens its transports.
  static func start(
    _ handle: SessionHandle, on loop: EventLoop, makeDialer: @escaping @Sendable (LoopContext) -> any Dialer
  ) {
    loop.submit { context in
      let driver = SessionDriver(handle, dialer: makeDialer(context), loop: context)
      // The signal holds the driver, and the handle the signal.
      let signal = context.makeSignal(for: driver)
      handle.shared.withLock { $0.signal = signal }
      driver.signalled()
      return nil
    }
  }

  private init(_ handle: SessionHandle, dialer: any Dialer, loop: LoopContext) {
    self.handle = handle
    self.dialer = dialer
    self.loop = loop
    sharedSettings = handle.settings
    sink = handle.sink
    logger = handle.logger
    metrics = handle.metrics
    let settings = handle.settings.value
    machine = SessionStateMachine(settings.session)
    let relay = Relay()
    pump = OutboxPump(handle, settings.outbox, loop: loop) { relay.driver?.pumpReports($0) }
    merger = PushMerger(handle.sink, delay: settings.outbox.barrierDelay, loop: loop) {
      relay.driver?.requestPong(from: $0)
    }
    runner = ProtocolRunner(settings, loop: loop, logger: handle.logger, metrics: handle.metrics)
    status = StatusBoard(handle)
    relay.driver = self
  }

  /// The way of the parts' reports, which are made before their driver.
  private final class Relay {
    weak var driver: SessionDriver?
  }

  var settings: UpstreamSettings {
    _read { yield sharedSettings.value }
  }

  func connection(_ generation: Generation?) -> UpstreamConnection? {
    connections.first { $0.generation == generation }
  }

  /// The connection that the outbox flows into.
  var sending: UpstreamConnection? { connection(machine.sending) }

  // MARK: Decisions

  /// Turns decisions into I/O, in their order.
  func apply(_ actions: [SessionAction]) {
    let isOutermost = !isApplying
    isApplying = true
    var postponed: [(Generation, until: MonotonicTime)] = []
    for action in actions {
      if case .dial(let dial) = action {
        if let until = start(dial) { postponed.append((dial.generation, until)) }
      } else {
        carryOut(action)
      }
    }
    for (generation, until) in postponed { apply(machine.postponed(until: until, generation, now: loop.now)) }
    status.show(machine)
    armTimer()
    finishIfOver()
    wakeIfIdle()
    pump.reportLosses()
    guard isOutermost else { return }
    isApplying = false
    endIfFlushed()
  }

  private func carryOut(_ action: SessionAction) {
    switch action {
    case .dial:
      preconditionFailure("`apply` starts attempts")
    case .startSending(let generation):
      if let connection = connection(generation) { resubscribe(on: connection) }
      pump.startSending(on: generation)
      merger.switched()
      connection(generation)?.scheduleFlush()
    case .stopSending(let generation, let lastIsPoison):
      if let older = pump.retiringConnection { closeAccount(of: older) }
      pump.stopSending(lastIsPoison: lastIsPoison, begun: connection(generation)?.begunMessage)
    case .pauseSending(_, let successor):
      pump.pause()
      if let connection = connection(successor) { resubscribe(on: connection) }
    case .resumeSending(let generation):
      pump.resume()
      connection(generation)?.scheduleFlush()
    case .beginOverlap(let older, let newer):
      merger.begin(older: older, newer: newer, holds: settings.session.liveness.isEnabled)
    case .endOverlap:
      merger.end()
    case .ping(let counter, let generation):
      guard let connection = connection(generation) else { break }
      pump.pinged(counter, on: generation)
      merger.pinged(counter, on: generation)
      connection.sendPing(counter)
    case .sendHeartbeat(let counter, let generation):
      if let connection = connection(generation), runner.sendHeartbeat(counter, on: connection) { merger.sent(1) }
    case .sendSetup(let step, let generation):
      if let connection = connection(generation), runner.sendSetup(step: step, on: connection) { merger.sent(1) }
    case .close(let generation, let code):
      connection(generation)?.sendClose(code)
    case .discard(let generation):
      if let connection = connection(generation) { drop(connection) }
    case .holdHost(let endpoint, let until):
      // The host that responded, which a redirection may have led to, is left alone by all sessions.
      handle.dials.hold((refusedBy ?? settings.urls[endpoint]).server, until: until)
    case .report(let transition):
      publish(transition)
    }
  }

  // MARK: Connections

  /// Starts an attempt. Where the host's limit does not allow it yet: until when it has to wait.
  private func start(_ dial: Dial) -> MonotonicTime? {
    let url =
      switch dial.target {
      case .endpoint(let index): settings.urls[index]
      case .redirection(from: let index): redirection ?? settings.urls[index]
      }
    switch handle.dials.ask(url.server, ticket, overridesHold: dial.overridesHold, now: loop.now) {
    case .wait(let ticket):
      self.ticket = ticket
      metrics.postponedDials.add()
      return ticket.slot
    case .go:
      if ticket?.host == url.server { ticket = nil }
      let connection = UpstreamConnection(
        dial, url: url, sharedSettings, metrics: metrics, flushesAfterEachMessage: sink.answersAtOnce, owner: self,
        loop: loop)
      connections.append(connection)
      // While another connection serves, that one's is shown.
      if machine.sending == nil { status.use(connection) }
      connection.open(with: dialer)
      return nil
    }
  }

  /// An attempt is over, however it ended: another may take its place.
  func endAttempt(_ connection: UpstreamConnection) {
    guard connection.isCountedAttempt else { return }
    connection.isCountedAttempt = false
    handle.dials.ended(connection.url.server)
  }

  /// A connection is not ours any more: it brings nothing, and has no place among the attempts.
  func forget(_ connection: UpstreamConnection) {
    endAttempt(connection)
    connections.removeAll { $0 === connection }
    status.forget(connection)
    merger.ended(connection.generation)
  }

  /// Ends a connection, and closes the account of what it carried.
  private func drop(_ connection: UpstreamConnection) {
    connection.discard()
    forget(connection)
    settle(connection.generation, begun: connection.begunMessage)
  }

  /// The account of a predecessor is closed, since that of its successor begins. A message that it has begun goes to the next
  /// connection: so its rest must not be written.
  private func closeAccount(of generation: Generation) {
    let connection = connection(generation)
    if let connection, connection.marks.hasUnwritten {
      drop(connection)
    } else {
      settle(generation, begun: connection?.begunMessage)
    }
  }

  private func settle(_ generation: Generation, begun: UInt64?) {
    guard pump.settle(generation, begun: begun) else { return }
    // What came back waits again, and may have held up what came after it.
    sending?.scheduleFlush()
    armOutboxTimer()
  }

  private func resubscribe(on connection: UpstreamConnection) {
    let count = runner.resubscribe(on: connection)
    if count > 0 { merger.sent(count) }
  }

  // MARK: Time

  private func armTimer() {
    let deadline = machine.nextDeadline
    guard timer?.deadline != deadline else { return }
    if let timer { loop.cancel(timer.timer) }
    timer = nil
    guard deadline < .distantFuture else { return }
    timer = (deadline, loop.schedule(at: deadline, self))
  }

  func armOutboxTimer() { pump.armTimer(keepsPace: sending?.isBlocked == false) }

  /// An on-demand session becomes idle when nothing is to be sent and no poll is held; what has come since, or come back, wakes it.
  private func wakeIfIdle() {
    guard machine.observed == .idle, sink.hasReaders || handle.shared.withLock({ $0.outbox.hasWaiting }) else { return }
    apply(machine.demand(now: loop.now))
  }

  // MARK: The end

  /// Ends the session once a shutdown has begun and the outbox is empty, has had its time, or cannot be emptied.
  func endIfFlushed() {
    // Not amid the actions of a decision: those that follow would no longer fit the state. `apply` looks once they are carried out.
    guard machine.isShuttingDown, !isApplying, pump.closeIfFlushed(mayWait: machine.awaitsFlush(now: loop.now)) else {
      return
    }
    let actions = machine.flushed(now: loop.now)
    if !actions.isEmpty { apply(actions) }
  }

  private func finishIfOver() {
    guard machine.isShuttingDown, machine.observed == .stopped, connections.isEmpty else { return }
    pump.stop()
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

extension SessionDriver: TimerTarget {
  /// The machine's next deadline.
  func timerFired(_ token: Int) {
    timer = nil
    // What waits for its pace, its pong or the upstream's window is a use, and so is a held poll.
    if settings.session.onDemand,
      sink.hasReaders || handle.shared.withLock({ !$0.outbox.isEmpty || $0.outbox.unconfirmed > 0 })
    {
      apply(machine.demand(now: loop.now))
    }
    apply(machine.deadlineReached(now: loop.now, using: &loop.entropy))
    endIfFlushed()
  }
}
