import ByteStreams
import Calls
import Continuity
import Dialing
import Logging
import Metrics
import Outbox
import Reactor
import Threading
import UpstreamProtocol
import UpstreamSession
import WebSocketCodec

/// Performs the actions of a session's state machine on one loop: connection attempts, socket I/O, timers.
///
/// `apply` is the only place where an action becomes I/O. `SessionDriver+Events` handles the events of connections,
/// `SessionDriver+Commands` the commands of other loops. The machine decides which connection sends, and names
/// connections by their generations.
final class SessionDriver {
  var preparedSettings: PreparedSettings
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

  /// All attempts and connections that have not ended. Usually there is one. During a replacement there are two, and
  /// possibly a third that is closing.
  var connections: [UpstreamConnection] = []
  /// The URL to which the last attempt was redirected.
  var redirection: WebSocketURL?
  /// Whether this redirection began at a captured URL.
  var isRedirectedFromCapturedURL = false
  /// The URL that was read for the attempt that was redirected; nil if its URL was configured or captured.
  var redirectingURL: Boxed<WebSocketURL>?
  /// The time that is reserved for the next attempt, if the limit of the host has delayed this attempt.
  var ticket: HostAttemptLimiter.Ticket?
  /// The URL that was read for an attempt that the limit of the host has delayed; nil if there is none.
  var delayedURL: Boxed<DelayedURL>?
  /// The URL whose failure is being handled.
  var refusingURL: WebSocketURL?
  private var isApplying = false
  /// Whether the upstream has announced the end of the connection by a message instead of a close frame. The upstream
  /// continues to send until it has received the gateway's close frame.
  var isEnding = false
  var continuity: PushContinuity
  var hasWarnedOfPings = false
  /// Number of attempts in a row that have failed with a captured URL.
  var capturedURLFailures = 0
  /// Acknowledgements that the upstream gets when its events are stored; nil before the first.
  var delayed: DelayedAcknowledgements?
  /// Whether the journal contains continuations for another process.
  var hasStoredContinuations: Bool
  /// The event in the large message that is being handled; nil if it was passed on.
  var preparedEvent: PreparedPush?
  private var timer: (deadline: MonotonicTime, timer: LoopTimer)?

  /// Starts a session on `loop`. `makeDialer` creates the dialer of its transports, on `loop`.
  static func start(
    _ handle: SessionHandle, on loop: EventLoop, makeDialer: @escaping @Sendable (LoopContext) -> any Dialer
  ) {
    loop.submit { context in
      let driver = SessionDriver(handle, dialer: makeDialer(context), loop: context)
      // The handle keeps the signal alive, and the signal keeps the driver alive.
      let signal = context.makeSignal(for: driver)
      handle.guarded.withLock { $0.signal = signal }
      driver.forgetOtherClient()
      driver.signalled()
      return nil
    }
  }

  private init(_ handle: SessionHandle, dialer: any Dialer, loop: LoopContext) {
    self.handle = handle
    self.dialer = dialer
    self.loop = loop
    preparedSettings = handle.settings
    sink = handle.sink
    logger = handle.logger
    metrics = handle.metrics
    let settings = handle.settings.value
    machine = SessionStateMachine(settings.session)
    pump = OutboxPump(handle, settings.outbox, loop: loop)
    merger = PushMerger(handle, loop: loop)
    runner = ProtocolRunner(
      handle.settings, resuming: handle.resumed, handle.journal, loop: loop, logger: handle.logger,
      metrics: handle.metrics)
    status = StatusBoard(handle)
    continuity = PushContinuity(
      mayBeContinued: handle.resumed.mayBeContinued, namespaces: handle.resumed.recoveries.keys)
    hasStoredContinuations = !handle.resumed.recoveries.isEmpty || handle.resumed.isOfOtherClient
    pump.owner = self
    merger.owner = self
  }

  var settings: UpstreamSettings {
    _read { yield preparedSettings.value }
  }

  func connection(_ generation: Generation?) -> UpstreamConnection? {
    connections.first { $0.generation == generation }
  }

  /// The connection that sends the messages of the outbox.
  var sending: UpstreamConnection? { connection(machine.sending) }

  // MARK: Actions

  /// Performs the actions in their order.
  func apply(_ actions: [SessionAction]) {
    let isOutermost = !isApplying
    isApplying = true
    var delayed: [(Generation, until: MonotonicTime)] = []
    var skipped: (step: Int, connection: UpstreamConnection)?
    for action in actions {
      switch action {
      case .dial(let dial):
        if let until = start(dial) { delayed.append((dial.generation, until)) }
      case .sendSetup(let step, let generation):
        perform(action)
        if let connection = connection(generation), runner.skips(step, on: connection) { skipped = (step, connection) }
      default:
        perform(action)
      }
    }
    for (generation, until) in delayed { apply(machine.postponed(until: until, generation, now: loop.now)) }
    if let (step, connection) = skipped { passOver(step: step, on: connection) }
    // In these states, the session does not use its reserved time: the next attempt, if there is one, is at another
    // time.
    switch machine.observed {
    case .stopped, .idle, .parked, .offline: giveBackTicket()
    default: break
    }
    status.publish(machine)
    armTimer()
    finishIfStopped()
    wakeIfIdle()
    pump.reportLosses()
    guard isOutermost else { return }
    isApplying = false
    endIfFlushed()
  }

  private func perform(_ action: SessionAction) {
    switch action {
    case .dial:
      preconditionFailure("`apply` starts attempts")
    case .startSending(let generation):
      if let connection = connection(generation) {
        if connection.conversation?.can(.continuations) != true { discontinue() }
        if restoresState { beginSending(on: connection) } else { continuity.ended(connection.number) }
        if connection.conversation?.can(.captures) == true {
          keepCaptures(of: connection)
          storeCaptures()
          showCaptures()
        }
        resubscribe(on: connection)
      }
      pump.startSending(on: generation, confirms: (connection(generation)?.settings ?? settings).outbox.confirms)
      merger.sendingMoved()
      connection(generation)?.scheduleFlush()
    case .stopSending(let generation, let closedAsTooBig):
      if let older = pump.retiringConnection { settlePredecessor(older) }
      if let connection = connection(generation) { saveState(of: connection) }
      pump.stopSending(
        closedAsTooBig: closedAsTooBig, partiallyWritten: connection(generation)?.partiallyWrittenMessage)
    case .pauseSending(_, let successor):
      pump.pause()
      if let connection = connection(successor) { resubscribe(on: connection) }
    case .resumeSending(let generation):
      pump.resume()
      connection(generation)?.scheduleFlush()
    case .beginOverlap(let older, let newer):
      merger.begin(older: older, newer: newer, delays: settings.session.liveness.isEnabled)
    case .endOverlap:
      merger.end()
    case .ping(let counter, let generation):
      guard let connection = connection(generation) else { break }
      pump.pingSent(counter, on: generation)
      sendPing(counter, on: connection)
    case .skipSetup(let step, let generation):
      if let connection = connection(generation) { skipSetup(step: step, on: connection) }
    case .sendHeartbeat(let counter, let generation):
      guard let connection = connection(generation) else { break }
      noteQueued(.heartbeat, on: connection)
      if runner.sendHeartbeat(counter, on: connection) {
        merger.sent(1)
      } else if preparedSettings.capabilities.contains(.announcedHeartbeats) {
        // The heartbeat's namespace is not connected, so no response will arrive. The server's own heartbeats show
        // whether the connection is alive.
        machine.heartbeatResponseReceived(generation)
      }
    case .sendSetup(let step, let generation):
      guard let connection = connection(generation) else { break }
      if runner.sendSetup(step: step, on: connection) { merger.sent(1) }
      noteQueued(.setup(step: step), on: connection)
    case .close(let generation, let code):
      guard let connection = connection(generation) else { break }
      // The messages of `on_close` are sent neither during the setup, nor after the upstream has ended the session.
      if connection.hasResubscribed, !isEnding { merger.sent(runner.sendLastMessages(on: connection)) }
      noteQueued(.close, on: connection)
      connection.sendClose(code)
    case .discard(let generation):
      if let connection = connection(generation) { drop(connection) }
    case .pauseHost(let endpoint, let until):
      // Until this time, no session connects to the host that responded. After a redirection, the host that responded
      // is not the configured host.
      guard let url = refusingURL ?? (settings.urls.isEmpty ? nil : settings.urls[endpoint]) else { break }
      handle.attemptLimiter.pause(handle.attemptKey(of: url.server), until: until)
    case .report(let transition):
      publish(transition)
    }
  }

  // MARK: Connections

  /// Removes a connection that has ended.
  func forget(_ connection: UpstreamConnection) {
    endAttempt(connection)
    if continuity.hasSavedState(of: connection.number) { saveState(of: connection) }
    forgetAcknowledgements(of: connection)
    if restoresState {
      noteFailedSetup(of: connection)
      forgetEvents(of: connection)
    } else if machine.sending == nil, continuity.hasBroughtPushesEarly(connection.number),
      continuity.setupFailed(on: connection.number)
    {
      // The connection had delivered pushes during its setup. Pushes that the upstream sent after them are missing.
      sink.connectionLost()
    }
    continuity.ended(connection.number)
    connections.removeAll { $0 === connection }
    noteCapturedURLFailed(connection)
    if connection.conversation?.can(.captures) == true { showCaptures() }
    status.connectionEnded(connection)
    merger.ended(connection.generation)
  }

  /// Ends a connection and settles its messages.
  func drop(_ connection: UpstreamConnection) {
    connection.discard()
    forget(connection)
    settle(connection.generation, partiallyWritten: connection.partiallyWrittenMessage)
    handle.endCalls(of: connection.generation)
  }

  /// Settles the messages of a predecessor. Also called when its successor stops sending. A message that the
  /// predecessor has written in part returns to the queue, so the rest of that message must not be written any more.
  private func settlePredecessor(_ generation: Generation) {
    let connection = connection(generation)
    if let connection, connection.marks.hasUnwritten {
      drop(connection)
    } else {
      settle(generation, partiallyWritten: connection?.partiallyWrittenMessage)
    }
  }

  private func settle(_ generation: Generation, partiallyWritten: UInt64?) {
    guard pump.settle(generation, partiallyWritten: partiallyWritten) else { return }
    // Messages that have returned to the queue can be sent now. So can the messages behind them, which could not be
    // sent before.
    sending?.scheduleFlush()
    armOutboxTimer()
  }

  private func resubscribe(on connection: UpstreamConnection) {
    let count = runner.resubscribe(on: connection) { message in
      handle.guarded.withLock { $0.outbox.progress(of: message) }
    }
    if count > 0 { merger.sent(count) }
  }

  // MARK: Time

  func armTimer() {
    let deadline = machine.nextDeadline
    guard timer?.deadline != deadline else { return }
    if let timer { loop.cancel(timer.timer) }
    timer = nil
    guard deadline < .distantFuture else { return }
    timer = (deadline, loop.schedule(at: deadline, self))
  }

  func armOutboxTimer() { pump.armTimer(includesPermits: sending?.isBlocked == false) }

  /// An on-demand session becomes idle when no message is pending, no poll is held and no stream is open. If there is a
  /// message, a poll or a stream again, this function wakes the session.
  private func wakeIfIdle() {
    guard machine.observed == .idle, sink.hasReaders || handle.guarded.withLock({ $0.outbox.hasWaiting }) else {
      return
    }
    apply(machine.demand(now: loop.now))
  }

  // MARK: The end

  /// During a shutdown, ends the session when the outbox is empty, when the deadline of the shutdown has passed, or
  /// when the outbox cannot be emptied.
  func endIfFlushed() {
    // The session does not end while `apply` performs actions, since the remaining actions would not fit the new state.
    // `apply` calls this function again at its end.
    guard machine.isShuttingDown, !isApplying, pump.closeIfFlushed(mayWait: machine.isAwaitingFlush(now: loop.now))
    else {
      return
    }
    let actions = machine.flushed(now: loop.now)
    if !actions.isEmpty { apply(actions) }
  }

  private func finishIfStopped() {
    guard machine.isShuttingDown, machine.observed == .stopped, connections.isEmpty else { return }
    pump.stop()
    runner.end()
    let (signal, whenEnded, isFirst) = handle.update { guarded in
      guarded.outbox.close()
      let isFirst = !guarded.hasEnded
      guarded.hasEnded = true
      let result = (guarded.signal, guarded.whenEnded, isFirst)
      (guarded.signal, guarded.whenEnded) = (nil, nil)
      return result
    }
    signal?.close()
    handle.logLosses()
    if isFirst { sink.sessionEnded() }
    whenEnded?()
  }
}

extension SessionDriver {
  /// Reports paused reading to the machine: an upstream whose messages are not being read must not count as silent.
  func notePausedReading() {
    for connection in connections where connection.isReadingPaused {
      machine.readingIsPaused(connection.generation, now: loop.now)
    }
  }

  func sendPing(_ counter: UInt64, on connection: UpstreamConnection) {
    merger.pingSent(counter, on: connection.generation)
    notePing(on: connection)
    noteQueued(.ping, on: connection)
    connection.sendPing(counter)
  }

  private func noteQueued(_ sent: SentControl, on connection: UpstreamConnection) {
    machine.outputQueued(sent, at: connection.outputEnd, connection.generation)
  }

  /// Reports acknowledged output to the machine: an upstream that still acknowledges earlier output must not count as
  /// silent.
  private func noteAcknowledgedOutput() {
    for connection in connections {
      guard let (position, time) = connection.acknowledgedOutput else { continue }
      let actions = machine.outputAcknowledged(through: position, at: time, connection.generation, now: loop.now)
      if !actions.isEmpty { apply(actions) }
    }
  }
}

extension SessionDriver: TimerTarget {
  /// The machine's next deadline has passed.
  func timerFired(_ token: Int) {
    timer = nil
    // A session is in use while messages wait for the rate limit, a pong or the upstream's window. It is also in use
    // while a poll is held, a stream is open, or a call waits for its reply.
    if settings.session.onDemand,
      sink.hasReaders
        || handle.guarded.withLock({ !$0.outbox.isEmpty || $0.outbox.unconfirmed > 0 || $0.calls.pending > 0 })
    {
      apply(machine.demand(now: loop.now))
    }
    notePausedReading()
    noteAcknowledgedOutput()
    apply(machine.deadlineReached(now: loop.now, using: &loop.entropy))
    endIfFlushed()
  }
}
