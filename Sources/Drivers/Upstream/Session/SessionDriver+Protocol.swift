import ByteStreams
import Configuration
import Continuity
import Events
import Journal
import Logging
import Reactor
import UpstreamProtocol
import UpstreamSession

extension UpstreamConnection {
  fileprivate func isJoined(to namespace: String) -> Bool {
    announced.namespaces.contains { $0.name == namespace && $0.state == .connected }
  }
}

extension UpstreamSettings {
  /// Whether the server cannot tell connections with these settings from those with the others.
  func isSameClient(as other: UpstreamSettings) -> Bool {
    let hasSameProtocol =
      switch (conventions.declaration, other.conventions.declaration) {
      case (nil, nil): true
      case (let own?, let other?): own.isEqual(to: other)
      default: false
      }
    return hasSameProtocol && urls == other.urls && fields == other.fields
      && conventions.credential == other.conventions.credential
  }
}

/// What an application protocol brings beside pushes: events, announced heartbeats, namespaces, and a state that outlives the connection.
extension SessionDriver {
  /// Pings without a pong after which an operator learns that the upstream answers none.
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
    // No client sees the event, so nothing of it is stored.
    if let acknowledgement = news.acknowledgement { send(acknowledgement, on: connection.generation) }
  }

  /// An optional namespace has not answered in time: the setup continues without it.
  func skipSetup(step: Int, on connection: UpstreamConnection) {
    guard let conversation = connection.conversation else { return }
    logger.warning(
      "the setup continues without an optional namespace",
      [.text("reason", "the server did not answer \(connection.sharedSettings.step(step).name) in time")])
    let time = loop.wallClock
    act(on: runner.skipSetup(step: step, on: connection, conversation), of: connection, time: time)
    act(on: .setupResponseReceived(step: step), of: connection, time: time)
    actOnRest(of: connection, conversation, time: time)
  }

  /// Those of a successor are shown when it sends.
  private func showNamespaces(of connection: UpstreamConnection) {
    let (namespaces, maximumPayload) = connection.announced
    handle.show(namespaces, maximumPayload: maximumPayload, on: connection.generation)
  }

  /// Passes on an event, and acknowledges it as soon as it is stored.
  func pass(_ push: ProtocolPush, time: Int64, from connection: UpstreamConnection) {
    let record = EventRecord(push.record.bytes)
    if !record.token.isEmpty { handle.expectAcknowledgement(of: record, from: connection.generation) }
    noteCursor()
    merger.pass(
      event: push.record, handle.journal == nil ? nil : push.recovery, from: connection.generation,
      mayRespond: connection.carriesMessages, time: time)
    guard let acknowledgement = push.acknowledgement else { return }
    guard handle.journal != nil else { return send(acknowledgement, on: connection.generation) }
    delayed.append(acknowledgement, of: record.namespace.text(), on: connection.generation)
    sendStoredAcknowledgements()
  }

  private func send(_ acknowledgement: SharedBytes, on generation: Generation) {
    _ = connection(generation)?.send(PriorityMessage(.acknowledgement, kind: .text, payload: acknowledgement))
  }

  /// Acknowledges the events that are stored by now. While the store has failed, none is: the rest is acknowledged when the store has
  /// caught up, if the connection is still open.
  func sendStoredAcknowledgements() {
    guard let journal = handle.journal, !delayed.isEmpty else { return }
    // What the merger holds has no ticket yet.
    if !merger.isHolding { delayed.setTicket(sink.lastTicket) }
    repeat {
      while let next = delayed.takeFirst(ifStoredIn: journal) {
        // The official server ends a connection that sends to a namespace that has ended.
        guard connection(next.connection)?.isJoined(to: next.namespace) == true else { continue }
        send(next.payload, on: next.connection)
      }
      // The store may have caught up before the handle has recorded that this session waits.
    } while handle.awaitsStore(!delayed.isEmpty) && delayed.isFirstStored(in: journal)
    resumeReading()
  }

  /// Fewer acknowledgements wait now. Each connection pauses again if it must.
  private func resumeReading() {
    guard !delayed.isFull else { return }
    notePausedReading()
    for connection in connections { connection.resumeReading() }
  }

  func notePing(on connection: UpstreamConnection) {
    let before = connection.unansweredPings
    connection.unansweredPings = (count: (before?.count ?? 0) + 1, since: before?.since ?? loop.now)
  }

  /// Some servers answer no ping of WebSocket, so that no message is ever confirmed.
  func warnOfUnansweredPings(_ connection: UpstreamConnection) {
    guard !hasWarnedOfPings, sharedSettings.capabilities.contains(.announcedHeartbeats),
      let unanswered = connection.unansweredPings,
      unanswered.count >= Self.unansweredPingLimit, loop.now - unanswered.since >= settings.session.liveness.timeout
    else { return }
    hasWarnedOfPings = true
    logger.warning(
      "the upstream answers no WebSocket ping, so no message is confirmed: set 'upstream.heartbeat.ping' to false, and 'written' is the final state",
      [.number("pings", unanswered.count)])
  }

  // MARK: Recovery

  /// Stores what another process continues from, if this one ends. While two connections deliver, that is still what the older one has
  /// stored with its pushes.
  func storeContinuations(of connection: UpstreamConnection) {
    guard let journal = handle.journal, !merger.isOverlapping, let conversation = connection.conversation else {
      return
    }
    let entries = conversation.state.continuations.sorted { $0.key < $1.key }.map { name, continuation in
      JournalEntry.memory(.continued(namespace: name, continuation))
    }
    guard hasStoredContinuations || !entries.isEmpty else { return }
    hasStoredContinuations = !entries.isEmpty
    journal.submit(contentsOf: [.memory(.discontinued)] + entries)
  }

  /// The next connection asks for nothing, so another process must not either.
  func forgetContinuations() {
    guard hasStoredContinuations, machine.sending == nil, !runner.hasState else { return }
    hasStoredContinuations = false
    handle.journal?.submit(.memory(.discontinued))
  }

  /// The connection stops sending, or has ended after that. Pushes that arrive between the two change its state.
  func saveState(of connection: UpstreamConnection) {
    guard connection.conversation?.can(.continuations) == true else { return }
    let isSameClient = connection.settings.isSameClient(as: settings)
    let isComplete = isSameClient && runner.saveState(of: connection)
    continuity.stateSaved(of: connection.number, isComplete: isComplete)
    if !isSameClient { runner.forgetState() }
  }

  /// Namespaces of the connection have joined or ended. Returns whether pushes are missing from here on.
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
        // A successor that has joined it has not missed anything.
        let isJoined = connections.contains {
          $0.generation > connection.generation && $0.isJoined(to: namespace.name)
        }
        if !isJoined { continuity.interrupt(namespace.name) }
      }
    }
    return isMissing
  }

  /// An attempt has ended that was connected to namespaces and never became ready. The events that it has brought are passed on: the next
  /// connection continues after them, or pushes may be missing.
  func noteFailedSetup(of connection: UpstreamConnection) {
    guard continuity.isSettingUp(connection.number),
      connection.announced.namespaces.contains(where: { $0.state == .connected || $0.state == .disconnected })
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

  /// The next connection is that of another client, or leads to another server. It must not get the state of the last one.
  func forgetState() {
    runner.forgetState()
    forgetContinuations()
  }

  /// The connection has ended: nobody gets its acknowledgements any more.
  func forgetEvents(of connection: UpstreamConnection) {
    delayed.connectionEnded(connection.generation)
    resumeReading()
    handle.forgetConnection(connection.generation)
    forgetContinuations()
  }

  /// A connection is ready, and sends from now on.
  func beginSending(on connection: UpstreamConnection) {
    showNamespaces(of: connection)
    storeContinuations(of: connection)
    continuity.sendingBegan(
      on: connection.number, without: connection.announced.namespaces.filter { $0.state != .connected }.map(\.name))
    runner.forgetState()
  }
}
