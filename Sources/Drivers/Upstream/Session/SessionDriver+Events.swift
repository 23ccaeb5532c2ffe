import ByteStreams
import Continuity
import Metrics
import Outbox
import Reactor
import UpstreamProtocol
import UpstreamSession
import WebSocketCodec

/// Events of connections and of the outbox's timers. Events that need a decision are passed to the machine.
extension SessionDriver {
  func connection(_ connection: UpstreamConnection, reports event: ConnectionEvent) {
    let generation = connection.generation
    switch event {
    case .message(let kind, let time):
      if let conversation = connection.conversation, conversation.can(.examination) {
        examine(kind, time: time, from: connection, conversation)
      } else {
        pass(kind, time: time, from: connection)
      }
    case .largeMessage(let message, let time):
      pass(message, time: time, from: connection)
    case .bytesReceived:
      let actions = machine.bytesReceived(generation, now: loop.now)
      if !actions.isEmpty { apply(actions) }
    case .readingResumes:
      machine.readingIsPaused(generation, now: loop.now)
    case .writable(let room):
      if machine.sending == generation { fill(connection, room: room) }
    case .flushed(let outcome):
      guard machine.sending == generation else { break }
      if let returned = outcome.returned { merger.sent(-returned.count) }
      let keepsSubscriptions = settings.keepsSubscriptions
      let correlation = keepsSubscriptions ? settings.conventions.correlation : nil
      pump.flushed(outcome, sent: keepsSubscriptions ? { [runner] in runner.recordSent($0, correlation) } : nil)
    case .written(let sequence):
      written(through: sequence)
    case .pong(let counter):
      pongReceived(connection, counter)
    case .located(let url, let time):
      located(connection, at: url, after: time)
    case .prepared:
      machine.prepared(generation, now: loop.now)
      apply([])
    case .advanced(let phase):
      apply(machine.advanced(to: phase, generation, now: loop.now))
    case .upgraded(let agreement):
      endAttempt(connection)
      status.setAgreement(agreement)
      if restoresState || !settings.session.setup.isEmpty { continuity.setupBegan(on: connection.number) }
      if let report = runner.prepareSetup(connection) { return fail(connection, report) }
      apply(machine.upgraded(generation, now: loop.now, using: &loop.entropy))
    case .redirected(let location):
      // A server that got a secret URL may repeat a part of it.
      let url = connection.url?.hasSecretPath == true ? location.withSecretPath : location
      guard permitsRedirection(of: connection, to: url) else {
        forget(connection)
        let report = AttemptReport(
          .upgrading, .network,
          "redirected from a URL of the upstream to \(url.redacted), which 'upstream.captured_hosts' does not allow")
        return fail(connection, report)
      }
      isRedirectedFromCapturedURL = connection.hasCapturedURL
      connection.hasCapturedURL = false
      forget(connection)
      redirection = url
      redirectingURL = connection.settings.readURL.map { Boxed($0) }
      let limit = SessionStateMachine.redirectionLimit
      status.withExplanation("redirected more than \(limit) times, the last time to \(url.redacted)") {
        apply(machine.redirected(generation, now: loop.now, using: &loop.entropy))
      }
    case .failed(let report):
      forget(connection)
      refusingURL = connection.url
      fail(connection, report)
      refusingURL = nil
    case .closed(let code, let reason):
      // The next attempt, which may begin at once, must not use the values. An upstream repeats the code of a close
      // frame that this gateway has sent. Such a frame says nothing about the values.
      if connection.sentCloseCode != code, connection.settings.session.closing.forgets(after: code) {
        forgetCaptures(of: connection)
      }
      status.withExplanation(closingText(code, reason, connection)) {
        apply(machine.closeReceived(code: code, generation, now: loop.now, using: &loop.entropy))
      }
    case .lost(let loss, let reason):
      lost(connection, loss, reason)
    }
  }

  /// The attempt or its setup failed.
  private func fail(_ connection: UpstreamConnection, _ report: AttemptReport) {
    let failure = failure(report, of: connection)
    status.withExplanation(report.detail, report) {
      apply(machine.attemptFailed(failure, connection.generation, now: loop.now, using: &loop.entropy))
    }
  }

  /// The connection has ended, or must be ended.
  func lost(_ connection: UpstreamConnection, _ loss: ConnectionLoss, _ reason: String) {
    guard connections.contains(where: { $0 === connection }) else { return }
    // The reason of a closing handshake was already reported at its beginning, so it is not reported again at its end.
    status.withExplanation(machine.observed == .closing ? nil : reason) {
      apply(machine.connectionLost(loss, connection.generation, now: loop.now, using: &loop.entropy))
    }
  }

  private func closingText(_ code: UInt16, _ reason: String, _ connection: UpstreamConnection) -> String {
    let text = "the upstream closed the connection with \(code)"
    if reason.isEmpty { return text }
    // An upstream truncates a reason that is too long for a close frame, possibly in the middle of a character.
    let isCut = reason.utf8.count > CloseFrame.maximumReason - 4
    return text + ": \(connection.mask.applied(to: reason, isCut: isCut))"
  }

  // MARK: Messages

  /// Passes a push on unchanged.
  @inline(__always)
  private func pass(_ kind: MessageKind, time: Int64, from connection: UpstreamConnection) {
    let (generation, mayRespond) = (connection.generation, connection.carriesMessages)
    merger.pass(connection.socket.payload, kind, from: generation, mayRespond: mayRespond, time: time)
    // This use keeps the connection alive until here. Without it, the compiler could release the object while its
    // property is still being used.
    withExtendedLifetime(connection) {}
  }

  private func examine(
    _ kind: MessageKind, time: Int64, from connection: UpstreamConnection, _ conversation: Conversation
  ) {
    let generation = connection.generation
    let kind = conversation.kind(of: connection.socket.payload, kind)
    withExtendedLifetime(connection) {}
    var outcome = runner.receive(kind, from: connection, conversation, isCurrent: machine.sending == generation)
    if conversation.can(.captures) { noteCaptures(of: connection, conversation) }
    if case .reply(let call, let range, let unpackedKind) = outcome {
      // Replies are passed to calls before the merger gets the message. The merger compares only the contents of
      // replies, and two connections use the same numbers, so the merger could mistake two different replies for the
      // same reply.
      let isTaken =
        unpackedKind == nil
        ? handle.receiveReply(connection.socket.payload, to: call, range, now: loop.now)
        : handle.receiveReply(conversation.decoder.decompressed, to: call, range, now: loop.now)
      withExtendedLifetime((connection, conversation)) {}
      outcome = isTaken ? .nothing : .push(unpackedKind: unpackedKind)
    }
    if case .push(let unpackedKind) = outcome {
      noteExaminedPush(of: connection)
      let mayRespond = connection.carriesMessages
      if let kind = unpackedKind {
        merger.pass(conversation.decoder.decompressed, kind, from: generation, mayRespond: mayRespond, time: time)
        withExtendedLifetime(conversation) {}
      } else {
        pass(kind, time: time, from: connection)
      }
      if conversation.can(.acknowledgements) { acknowledgePush(of: connection, conversation) }
    }
    finish(outcome, of: connection, conversation, time: time)
  }

  /// Like `examine` or `pass`, for a large message that another thread has processed.
  private func pass(_ message: PreparedMessage, time: Int64, from connection: UpstreamConnection) {
    let generation = connection.generation
    guard let reading = message.reading, let conversation = connection.conversation else {
      guard let push = message.push else { return }
      return merger.pass(push, from: generation, mayRespond: connection.carriesMessages, time: time)
    }
    var outcome = runner.receive(reading, from: connection, conversation, isCurrent: machine.sending == generation)
    if conversation.can(.captures) { noteCaptures(of: connection, conversation) }
    if case .reply(_, _, let unpackedKind) = outcome, let push = message.push {
      outcome = handle.receiveReply(push, now: loop.now) ? .nothing : .push(unpackedKind: unpackedKind)
    }
    if case .push = outcome, let push = message.push {
      noteExaminedPush(of: connection)
      merger.pass(push, from: generation, mayRespond: connection.carriesMessages, time: time)
      if conversation.can(.acknowledgements) { acknowledgePush(of: connection, conversation, reading.acknowledgement) }
    }
    preparedEvent = message.event
    finish(outcome, of: connection, conversation, time: time)
    preparedEvent = nil
  }

  private func noteExaminedPush(of connection: UpstreamConnection) {
    if continuity.pushReceived(on: connection.number), restoresState { noteEarlyPush() }
    if connection.hasCapturedURL { (connection.hasCapturedURL, capturedURLFailures) = (false, 0) }
    noteCursor()
  }

  /// Acts on an examined message that was passed on if it is a push.
  private func finish(
    _ outcome: ProtocolRunner.Outcome, of connection: UpstreamConnection, _ conversation: Conversation, time: Int64
  ) {
    if conversation.can(.anyMessageIsHeartbeat) {
      machine.heartbeatReceived(connection.generation, now: loop.now)
    }
    act(on: outcome, of: connection, time: time)
    if conversation.can(.severalMeanings) { actOnRest(of: connection, conversation, time: time) }
    if conversation.can(.captures) { storeCaptures() }
  }

  /// The work on a large message of `connection`, for another thread.
  func preparation(of connection: UpstreamConnection) -> MessagePreparation {
    let conversation = connection.conversation.flatMap { $0.can(.examination) ? $0.snapshot : nil }
    return MessagePreparation(
      conversation: conversation, memory: conversation == nil ? nil : runner.memoryCopy, settings: merger.settings,
      handle: handle)
  }

  /// Acts on the other meanings of a message. Each of them may end the connection.
  func actOnRest(of connection: UpstreamConnection, _ conversation: Conversation, time: Int64) {
    while connections.contains(where: { $0 === connection }), let outcome = runner.next(from: connection, conversation)
    {
      act(on: outcome, of: connection, time: time)
    }
  }

  /// Makes the store record the cursor with the next push. Does nothing while two connections deliver pushes, since
  /// pushes before the cursor may still be delayed.
  func noteCursor() {
    if handle.journal != nil, !merger.isOverlapping, let cursor = runner.cursor { sink.resumes(from: cursor) }
  }

  func act(on outcome: ProtocolRunner.Outcome, of connection: UpstreamConnection, time: Int64) {
    let generation = connection.generation
    switch outcome {
    case .push, .reply, .nothing: break
    case .lost(let loss, let reason): lost(connection, loss, reason)
    case .news(let news): handle(news, of: connection)
    case .setupResponseReceived(let step):
      if handle.journal != nil, !merger.isOverlapping { runner.storeCursorOfSetup() }
      if let report = runner.prepareSetup(connection, from: step + 1) { return fail(connection, report) }
      apply(machine.setupResponseReceived(generation, now: loop.now, using: &loop.entropy))
    case .refused(let report): fail(connection, report)
    case .heartbeat:
      machine.heartbeatReceived(generation, now: loop.now)
      if runner.reply(on: connection) { merger.sent(1) }
      warnOfUnansweredPings(connection)
    case .heartbeatResponseReceived: machine.heartbeatResponseReceived(generation)
    case .event(let push): pass(push, time: time, from: connection)
    case .acknowledged(let reply): if !handle.receive(reply, now: loop.now) { metrics.ignoredPackets.add() }
    case .pong(let counter):
      machine.heartbeatResponseReceived(generation)
      if let counter { pongReceived(connection, counter) }
    case .ended(let reason, let forgetsCaptures):
      // The next attempt, which may begin at once, must not use the values.
      if forgetsCaptures { forgetCaptures(of: connection) }
      isEnding = true
      defer { isEnding = false }
      status.withExplanation(reason) {
        apply(
          machine.closeReceived(
            code: 1000, respondingWith: settings.session.closeCode, generation, now: loop.now, using: &loop.entropy))
      }
    case .callsEnded(let ids): handle.endCalls(withReplies: ids)
    }
  }

  private func fill(_ connection: UpstreamConnection, room: Int) {
    let generation = connection.generation
    let (count, ping) = pump.fill(connection, room: room) { nextPing(on: generation) }
    guard count > 0 else { return }
    connection.carriesMessages = true
    if let conversation = connection.conversation, conversation.can(.numberedIDs) {
      checkNumbers(of: conversation, generation)
    }
    merger.sent(count)
    merger.messagesSent(on: generation)
    if let ping { sendBarrier(ping, on: connection) }
  }

  /// Messages were sent, each with the next number of the connection.
  private func checkNumbers(of conversation: Conversation, _ generation: Generation) {
    handle.noteNumbers(conversation.state.takeAssignedNumbers())
    if conversation.state.mustForgetCalls { conversation.state.forgetCalls { handle.isKnown($0) } }
    guard conversation.state.takeExhaustion() else { return }
    machine.replaceSoon(generation, now: loop.now)
    armTimer()
  }

  private func written(through sequence: UInt64) {
    let (isEmpty, isRetiring) = pump.written(through: sequence)
    if isEmpty { endIfFlushed() }
    // While messages of an earlier connection are at the front of the outbox, its successor takes no messages. No other
    // event wakes the successor when they are settled.
    if isRetiring { sending?.scheduleFlush() }
  }

  // MARK: Pings

  private func pongReceived(_ connection: UpstreamConnection, _ counter: UInt64) {
    let generation = connection.generation
    connection.unansweredPings = nil
    merger.pongReceived(counter, on: generation)
    let isOurs = machine.pongReceived(counter, generation, now: loop.now)
    let sending = sending
    let figures = machine.figures
    let result = pump.pongReceived(
      counter, on: generation, isOurs: isOurs, sending: sending?.generation,
      ping: { sending.flatMap { nextPing(on: $0.generation) } }, publish: { status.show(figures, in: &$0) })
    guard let result else { return }
    if let sending {
      if let ping = result.ping { sendBarrier(ping, on: sending) }
      if result.isRetiring { sending.scheduleFlush() }
    }
    let actions = machine.handOverPongReceived(counter, generation, now: loop.now, using: &loop.entropy)
    if !actions.isEmpty { apply(actions) }
  }

  /// The counter of a ping whose pong confirms the messages before it; nil after the closing handshake has started.
  private func nextPing(on generation: Generation) -> UInt64? {
    machine.barrierPing(generation, now: loop.now, using: &loop.entropy)
  }

  /// Sends a ping that the outbox has recorded. In the machine, the ping changes only the next deadline.
  private func sendBarrier(_ counter: UInt64, on connection: UpstreamConnection) {
    sendPing(counter, on: connection)
    armTimer()
  }

  func sendBarrierIfDue(on connection: UpstreamConnection) {
    let generation = connection.generation
    if let ping = pump.barrierIfDue(on: generation, ping: { nextPing(on: generation) }) {
      sendBarrier(ping, on: connection)
    }
  }
}

/// Called by the parts of the session.
extension SessionDriver {
  /// The merger has passed on the pushes that it delayed, or only one connection delivers pushes from now on.
  func pushesReleased() {
    sendStoredAcknowledgements()
    if preparedSettings.capabilities.contains(.captures) { storeCaptures() }
    if restoresState, let sending { storeContinuations(of: sending) }
  }

  /// Sends a ping whose pong shows that the connection has delivered its earlier pushes. Does nothing after its closing
  /// handshake has started.
  func requestPong(from generation: Generation) {
    guard let counter = nextPing(on: generation) else { return }
    apply([.ping(counter, generation)])
  }

  func pump(_ pump: OutboxPump, reports event: OutboxPump.Event) {
    switch event {
    case .barrierDue:
      if let generation = machine.sending { requestPong(from: generation) }
    case .timePassed:
      sending?.scheduleFlush()
      endIfFlushed()
      armOutboxTimer()
      pump.reportLosses()
    }
  }
}
