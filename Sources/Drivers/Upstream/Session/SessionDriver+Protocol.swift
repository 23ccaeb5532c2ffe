import ByteStreams
import Continuity
import Digests
import Events
import JSONCodec
import Journal
import Logging
import Reactor
import UpstreamProtocol
import UpstreamSession
import WebSocketCodec

extension UpstreamConnection {
  fileprivate func isJoined(to namespace: String) -> Bool {
    announced.namespaces.contains { $0.name == namespace && $0.state == .connected }
  }
}

extension UpstreamSettings {
  /// Whether the server sees connections with these settings and connections with `other` as the same client.
  func isSameClient(as other: UpstreamSettings) -> Bool {
    let hasSameProtocol =
      switch (conventions.declaration, other.conventions.declaration) {
      case (nil, nil): true
      case (let own?, let other?): own.isEqual(to: other)
      default: false
      }
    return hasSameProtocol && urls == other.urls && urlSource.isSameSource(as: other.urlSource)
      && fields == other.fields && conventions.credential == other.conventions.credential
      && conventions.onOpen == other.conventions.onOpen
  }

  /// The client identity: a digest of the values that identify this gateway to the server. A process compares it with
  /// the digest that another process has stored. Most parts of the digested text have no label, so the order of the
  /// parts must not change.
  var client: [UInt8] {
    let credential = conventions.credential
    var parts = urls.map(\.text)
    if urlSource.isSet {
      parts += ["url", urlSource.file, urlSource.pointer?.description ?? ""] + urlSource.command
    }
    parts += ["fields"] + fields.flatMap { [$0.name, $0.value] }
    parts += ["credential", credential.environmentVariable, credential.file, credential.header?.identity ?? ""]
    parts += [credential.query] + credential.command + ["on_open"] + conventions.onOpen.map { $0.send?.identity ?? "" }
    // The length before each part separates it from the next part.
    let text = parts.map { "\($0.utf8.count):\($0)" }.joined()
    return Array(Digest.sha256(Array(text.utf8).span).prefix(16))
  }
}

/// The features of an application protocol besides pushes: events, announced heartbeats, namespaces, and a state that
/// outlives the connection.
extension SessionDriver {
  /// After this many pings without a pong, the log says that the upstream does not respond to pings.
  private static var unansweredPingLimit: Int { 3 }

  func handle(_ news: ProtocolNews, of connection: UpstreamConnection) {
    if let heartbeats = news.heartbeats {
      var announced = HeartbeatSettings()
      announced.interval = heartbeats.interval
      announced.timeout = heartbeats.timeout
      announced.within = heartbeats.within
      machine.heartbeatAnnounced(announced, connection.generation, now: loop.now)
    }
    if let maximum = news.maximumPayload { connection.announced.maximumPayload = maximum }
    var isMissing = news.isStateLost && continuity.stateLost()
    if let namespaces = news.namespaces {
      let mask = connection.mask
      if noteChanges(from: connection.announced.namespaces, to: namespaces, of: connection, news) { isMissing = true }
      connection.announced.namespaces = namespaces.map { namespace in
        var namespace = namespace
        namespace.reason = namespace.reason.map { mask.applied(to: $0, isCut: true) }
        return namespace
      }
      if machine.sending == nil || machine.sending == connection.generation { showNamespaces(of: connection) }
      if machine.sending == connection.generation { storeContinuations(of: connection) }
    }
    if isMissing { sink.connectionLost() }
    // The event is not passed on to clients, so its acknowledgement need not wait until it is stored.
    if let acknowledgement = news.acknowledgement { send(ProtocolFrame(acknowledgement), on: connection.generation) }
  }

  /// The server has not confirmed an optional namespace in time: the setup continues without it.
  func skipSetup(step: Int, on connection: UpstreamConnection) {
    guard let conversation = connection.conversation else { return }
    logger.warning(
      "the setup continues without an optional namespace",
      [.text("reason", "the server did not respond to \(connection.preparedSettings.step(step).name) in time")])
    passOver(step: step, on: connection)
    actOnRest(of: connection, conversation, time: loop.wallClock)
  }

  /// The setup continues without this step.
  func passOver(step: Int, on connection: UpstreamConnection) {
    guard let conversation = connection.conversation else { return }
    let time = loop.wallClock
    act(on: runner.skipSetup(step: step, on: connection, conversation), of: connection, time: time)
    guard settings(of: connection, expectResponseTo: step) else { return }
    act(on: .setupResponseReceived(step: step), of: connection, time: time)
  }

  /// Whether the step expects a response. A step without one ends when its message is sent, so its end is not reported.
  private func settings(of connection: UpstreamConnection, expectResponseTo step: Int) -> Bool {
    let setup = connection.settings.session.setup
    return step < setup.count && setup[step].expectsResponse
  }

  /// Shows the namespaces of a connection. The namespaces of a successor are shown when it begins to send.
  private func showNamespaces(of connection: UpstreamConnection) {
    let (namespaces, maximumPayload) = connection.announced
    handle.show(namespaces, maximumPayload: maximumPayload, on: connection.generation)
  }

  /// Passes on an event. The acknowledgement is sent as soon as the event is stored.
  func pass(_ push: ProtocolPush, time: Int64, from connection: UpstreamConnection) {
    let prepared = preparedEvent.take()
    let record = EventRecord(push.record.bytes)
    if !record.token.isEmpty { handle.expectAcknowledgement(of: record, from: connection.generation) }
    noteCursor()
    merger.pass(
      event: push.record, handle.journal == nil ? nil : push.recovery, from: connection.generation,
      mayRespond: connection.carriesMessages, time: time, prepared)
    guard let acknowledgement = push.acknowledgement else { return }
    let frame = ProtocolFrame(acknowledgement)
    guard handle.journal != nil else { return send(frame, on: connection.generation) }
    delay(frame, of: record.namespace.text(), on: connection.generation)
  }

  /// Acknowledges the push that was passed on last (`upstream.acknowledge`).
  ///
  /// - Parameter prepared: the acknowledgement, if another thread has made it.
  func acknowledgePush(
    of connection: UpstreamConnection, _ conversation: Conversation,
    _ prepared: Result<PushAcknowledgement?, TemplateError>? = nil
  ) {
    guard let acknowledgement = runner.takeAcknowledgement(of: connection, conversation, prepared) else { return }
    guard acknowledgement.isAfterStoring, handle.journal != nil else {
      return send(acknowledgement.frame, on: connection.generation)
    }
    delay(acknowledgement.frame, of: nil, on: connection.generation)
  }

  /// Sends an acknowledgement as soon as its event is stored.
  private func delay(_ acknowledgement: ProtocolFrame, of namespace: String?, on generation: Generation) {
    let delayed = delayed ?? DelayedAcknowledgements()
    self.delayed = delayed
    delayed.append(acknowledgement, of: namespace, on: generation)
    sendStoredAcknowledgements()
  }

  private func send(_ acknowledgement: ProtocolFrame, on generation: Generation) {
    _ = connection(generation)?.send(
      PriorityMessage(.acknowledgement, kind: acknowledgement.kind, payload: acknowledgement.payload))
  }

  /// Sends the acknowledgements of the events that are stored by now. While the store has failed, no acknowledgement is
  /// sent. When the store works again and has stored an event, its acknowledgement is sent if the connection is still
  /// open.
  func sendStoredAcknowledgements() {
    guard let journal = handle.journal, let delayed, !delayed.isEmpty else { return }
    // Events that the merger delays have no ticket yet.
    if !merger.isDelaying { delayed.setTicket(sink.lastTicket) }
    repeat {
      while let next = delayed.takeFirst(ifStoredIn: journal) {
        // The official server ends a connection that sends a packet to a namespace after the namespace has ended.
        guard let connection = connection(next.connection), next.namespace.map(connection.isJoined(to:)) != false else {
          continue
        }
        send(next.frame, on: next.connection)
      }
      // The event may have been stored just before the handle recorded that this session waits, so the loop checks
      // again.
    } while handle.awaitsStore(!delayed.isEmpty) && delayed.isFirstStored(in: journal)
    resumeReading()
  }

  /// Resumes reading when the number of waiting acknowledgements has fallen. A connection pauses again if it still must
  /// not read.
  private func resumeReading() {
    guard delayed?.isFull != true else { return }
    notePausedReading()
    for connection in connections { connection.resumeReading() }
  }

  func notePing(on connection: UpstreamConnection) {
    let before = connection.unansweredPings
    connection.unansweredPings = (count: (before?.count ?? 0) + 1, since: before?.since ?? loop.now)
  }

  /// Logs a warning, once, if the server does not respond to WebSocket pings. With such a server, no message is ever
  /// confirmed.
  func warnOfUnansweredPings(_ connection: UpstreamConnection) {
    guard !hasWarnedOfPings, preparedSettings.capabilities.contains(.announcedHeartbeats),
      let unanswered = connection.unansweredPings,
      unanswered.count >= Self.unansweredPingLimit, loop.now - unanswered.since >= settings.session.liveness.timeout
    else { return }
    hasWarnedOfPings = true
    logger.warning(
      "the upstream responds to no WebSocket ping, so no message is confirmed: set 'upstream.heartbeat.ping' to false, and 'written' is the final state",
      [.number("pings", unanswered.count)])
  }

  // MARK: Recovery

  /// Stores the data from which another process can continue after the end of this process. Does nothing while two
  /// connections deliver pushes: the data that was stored with the pushes of the older connection remains valid.
  func storeContinuations(of connection: UpstreamConnection) {
    guard let journal = handle.journal, !merger.isOverlapping, let conversation = connection.conversation else {
      return
    }
    // An attempt has moved the cursor, but may fail before it is known whether pushes are missing before the cursor.
    guard !continuity.isCursorUncertain else { return }
    let entries = ResumedProtocol.stored(conversation.state.continuations, of: connection.preparedSettings)
    guard hasStoredContinuations || !entries.isEmpty else { return }
    hasStoredContinuations = !entries.isEmpty
    journal.submit(contentsOf: [.memory(.discontinued)] + entries)
  }

  /// Deletes the stored data if the next connection of this process will not request a state. Another process must not
  /// request that state either.
  func forgetContinuations() {
    guard hasStoredContinuations, machine.sending == nil, !runner.hasState else { return }
    voidContinuations()
  }

  /// Saves the state of a connection when it stops sending, and again when it has ended, since pushes that arrive in
  /// between change the state.
  func saveState(of connection: UpstreamConnection) {
    guard connection.conversation?.can(.continuations) == true else { return }
    let isSameClient = connection.settings.isSameClient(as: settings)
    let isComplete = isSameClient && runner.saveState(of: connection)
    continuity.stateSaved(of: connection.number, isComplete: isComplete)
    if !isSameClient { runner.forgetState() }
  }

  /// Records which namespaces the connection has joined and which have ended. Returns whether pushes may be missing
  /// from this point on.
  private func noteChanges(
    from before: [NamespaceStatus], to namespaces: [NamespaceStatus], of connection: UpstreamConnection,
    _ news: ProtocolNews
  ) -> Bool {
    var isMissing = false
    for (index, namespace) in namespaces.enumerated() {
      let wasConnected = index < before.count && before[index].state == .connected
      let isConnected = namespace.state == .connected
      if isConnected, !wasConnected {
        if continuity.join(namespace.name, isRecovered: !news.isStateLost) { isMissing = true }
      } else if wasConnected, !isConnected, machine.sending == connection.generation {
        // If a successor has joined the namespace, no push of the namespace is missing.
        let isJoined = connections.contains {
          $0.generation > connection.generation && $0.isJoined(to: namespace.name)
        }
        if !isJoined { continuity.interrupt(namespace.name) }
      }
    }
    return isMissing
  }

  /// An attempt that had joined namespaces has ended before its connection was ready. The events that it received were
  /// passed on. So either the next connection continues after these events, or pushes may be missing.
  func noteFailedSetup(of connection: UpstreamConnection) {
    guard continuity.isSettingUp(connection.number),
      connection.announced.namespaces.contains(where: { $0.state == .connected || $0.state == .disconnected })
        || continuity.hasBroughtPushesEarly(connection.number)
    else { return }
    if let sending {
      for namespace in connection.announced.namespaces where !sending.isJoined(to: namespace.name) {
        continuity.interrupt(namespace.name)
      }
    } else {
      saveState(of: connection)
      if continuity.setupFailed(on: connection.number) { sink.connectionLost() }
    }
  }

  /// Forgets the state and the kept values of the last connection. Called when the next connection identifies itself as
  /// another client or leads to another server, to which the state and the values must not be sent. If the report of a
  /// loss was delayed, the loss is now definite: the next connection may resume, but does not get the pushes of the
  /// former client.
  func forgetClient() {
    if continuity.stateLost() { sink.connectionLost() }
    runner.forgetState()
    forgetContinuations()
    runner.forgetCaptures()
  }

  /// If an earlier process had another client identity, or used another protocol, its connection is not continued.
  func forgetOtherClient() {
    if handle.resumed.isOfOtherClient { discontinue() }
  }

  /// A push was passed on, or is about to be, before its connection is ready. It moves the cursor, so another process
  /// could not continue without a gap.
  func noteEarlyPush() { voidContinuations() }

  private func voidContinuations() {
    guard hasStoredContinuations else { return }
    hasStoredContinuations = false
    handle.journal?.submit(.memory(.discontinued))
  }

  /// The connection has ended, so the acknowledgements of its pushes cannot be sent any more.
  func forgetAcknowledgements(of connection: UpstreamConnection) {
    guard let delayed, !delayed.isEmpty else { return }
    delayed.connectionEnded(connection.generation)
    resumeReading()
  }

  /// Whether an upstream may restore the state of a connection on the next connection.
  var restoresState: Bool { handle.restoresState || preparedSettings.capabilities.contains(.continuations) }

  /// The connection cannot restore a state. If an earlier connection has left a state, that state is lost.
  func discontinue() {
    if continuity.stateLost() { sink.connectionLost() }
    voidContinuations()
  }

  /// The connection has ended, so clients cannot acknowledge its events any more.
  func forgetEvents(of connection: UpstreamConnection) {
    handle.forgetConnection(connection.generation)
    forgetContinuations()
  }

  /// A connection is ready, and begins to send.
  func beginSending(on connection: UpstreamConnection) {
    showNamespaces(of: connection)
    continuity.sendingBegan(
      on: connection.number, without: connection.announced.namespaces.filter { $0.state != .connected }.map(\.name))
    storeContinuations(of: connection)
    runner.forgetState()
  }
}
