import ByteStreams
import Configuration
import Logging
import Reactor
import SocketIO
import UpstreamProtocol
import UpstreamSession

/// What only an upstream of Socket.IO brings: events, announced heartbeats, and namespaces.
extension SessionDriver {
  /// Pings without a pong after which an operator learns that the upstream answers none.
  private static var unansweredPingLimit: Int { 3 }

  func handle(_ news: ProtocolNews, of connection: UpstreamConnection, time: Int64) {
    if let heartbeats = news.heartbeats {
      var announced = HeartbeatSettings()
      announced.interval = heartbeats.interval
      announced.timeout = heartbeats.timeout
      announced.within = heartbeats.within
      machine.heartbeatAnnounced(announced, connection.generation)
    }
    if let maximum = news.maximumPayload { connection.announced.maximumPayload = maximum }
    if let namespaces = news.namespaces {
      let mask = connection.mask
      connection.announced.namespaces = namespaces.map { namespace in
        var namespace = namespace
        namespace.reason = namespace.reason.map { mask.applied(to: $0, isCut: true) }
        return namespace
      }
      if machine.sending == nil || machine.sending == connection.generation { showNamespaces(of: connection) }
    }
    if news.isStateLost { reportDelayedLoss() }
    if let acknowledgement = news.acknowledgement { send(acknowledgement, on: connection) }
  }

  /// Those of a successor are shown when it sends.
  private func showNamespaces(of connection: UpstreamConnection) {
    let (namespaces, maximumPayload) = connection.announced
    handle.show(namespaces, maximumPayload: maximumPayload, on: connection.generation)
  }

  /// Passes on an event, and then acknowledges it.
  func pass(_ push: ProtocolPush, time: Int64, from connection: UpstreamConnection) {
    let record = SocketIORecord(push.record.bytes)
    if !record.token.isEmpty { handle.expectAcknowledgement(of: record, from: connection.generation) }
    merger.pass(
      event: push.record, from: connection.generation, mayRespond: connection.carriesMessages, time: time)
    if let acknowledgement = push.acknowledgement { send(acknowledgement, on: connection) }
  }

  private func send(_ acknowledgement: SharedBytes, on connection: UpstreamConnection) {
    _ = connection.send(PriorityMessage(.acknowledgement, kind: .text, payload: acknowledgement))
  }

  func notePing(on connection: UpstreamConnection) {
    let before = connection.unansweredPings
    connection.unansweredPings = (count: (before?.count ?? 0) + 1, since: before?.since ?? loop.now)
  }

  /// Some servers answer no ping of WebSocket, so that no message is ever confirmed.
  func warnOfUnansweredPings(_ connection: UpstreamConnection) {
    guard !hasWarnedOfPings, settings.conventions.kind == .socketIO, let unanswered = connection.unansweredPings,
      unanswered.count >= Self.unansweredPingLimit, loop.now - unanswered.since >= settings.session.liveness.timeout
    else { return }
    hasWarnedOfPings = true
    logger.warning(
      "the upstream answers no WebSocket ping, so no message is confirmed: set 'upstream.heartbeat.ping' to false, and 'written' is the final state",
      [.number("pings", unanswered.count)])
  }

  // MARK: Recovery

  /// The connection stops sending, or has ended after that. Pushes that arrive between the two change its state.
  func saveState(of connection: UpstreamConnection) {
    guard connection.conversation?.encodesMessages == true else { return }
    savedState = (connection.generation, runner.saveState(of: connection))
  }

  /// Pushes may be missing from here on, unless the upstream restores the state of the last connection on the next one.
  func connectionLost() {
    if savedState?.isComplete == true {
      isLossDelayed = true
    } else {
      isLossDelayed = false
      sink.connectionLost()
    }
  }

  /// The next connection does not continue where the last one ended.
  private func reportDelayedLoss() {
    guard isLossDelayed else { return }
    isLossDelayed = false
    sink.connectionLost()
  }

  /// An attempt has ended that was connected to namespaces and never became ready. The events that it has brought are passed on: the next
  /// connection continues after them, or pushes may be missing.
  func noteFailedSetup(of connection: UpstreamConnection) {
    guard !connection.hasSent, connection.conversation?.hasState == true else { return }
    saveState(of: connection)
    connectionLost()
  }

  /// A connection is ready, and sends from now on.
  func beginSending(on connection: UpstreamConnection) {
    connection.hasSent = true
    showNamespaces(of: connection)
    isLossDelayed = false
    savedState = nil
    runner.forgetState()
  }
}
