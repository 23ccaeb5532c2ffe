import ByteStreams
import HTTPCodec
import Logging
import Metrics
import Reactor

/// What the HTTP connections of one event loop share.
final class HTTPWorker: TurnEndTarget {
  /// How often a loop logs that it refuses connections.
  private static var warningInterval: TimeSpan { .seconds(10) }
  /// Bytes of responses that may wait for the end of a turn.
  private static var postponedPerTurn: Int { 256 * 1024 }

  let loop: LoopContext
  let server: HTTPServer
  let application: any HTTPApplication
  let pool: HTTPHeadPool
  let room: WaitingRoom
  let slowReaders: SlowReaders
  /// Responses to be sent. A connection fills and flushes it without waiting in between, so one serves all; what the
  /// kernel does not take at once moves to the connection's own queue.
  var output = OutputQueue()
  /// The response that the application is writing.
  var response = Response()
  /// Responses that are sent when the turn ends, one connection's behind another's, and where each one's end.
  private var postponed = ByteQueue()
  private var postponedEnds: [(connection: HTTPConnection, end: Int)] = []
  private(set) var isDraining = false

  private var connections: [ObjectIdentifier: HTTPConnection] = [:]
  private var acceptors: [HTTPAcceptor] = []
  private var date = SharedBytes([])
  private var dateSecond: Int64 = -1
  private var nextWarning = MonotonicTime.zero
  private var nextShortageWarning = MonotonicTime.zero

  init(loop: LoopContext, server: HTTPServer, application: any HTTPApplication) {
    self.loop = loop
    self.server = server
    self.application = application
    pool = HTTPHeadPool(limits: server.limits)
    room = WaitingRoom(loop: loop)
    slowReaders = SlowReaders(server.unsentResponses, loop: loop)
  }

  // MARK: Connections

  /// Starts serving a listening socket on this loop.
  func listen(_ descriptor: Int32, _ listener: HTTPListener) {
    do throws(SystemError) {
      let acceptor = HTTPAcceptor(
        socket: try Channel(descriptor: descriptor, loop: loop), listener: listener, worker: self)
      acceptors.append(acceptor)
      loop.spawn(acceptor)
    } catch {
      server.logger.error("cannot listen", [.text("reason", error.description)])
    }
  }

  /// Serves a fresh connection, or drops it where there are too many.
  func accept(_ descriptor: Int32, from peer: SocketAddress, on listener: HTTPListener) {
    let origin = ClientOrigin(peer)
    let verdict = server.admit(origin, to: listener.role)
    guard verdict == .admitted else {
      // No response: one for each would cost the server more than the flood costs its sender.
      Sockets.reset(descriptor)
      server.metrics.refusedConnections.add()
      warn(of: verdict, listener.role)
      return
    }
    guard let channel = try? Channel(descriptor: descriptor, loop: loop) else {
      server.metrics.refusedConnections.add()
      server.release(origin, from: listener.role)
      return
    }
    let connection = HTTPConnection(channel: channel, origin: origin, listener: listener, worker: self)
    connections[ObjectIdentifier(connection)] = connection
    server.metrics.openConnections.add(1)
    server.metrics.acceptedConnections.add()
    loop.spawn(connection)
  }

  /// A connection has ended.
  func remove(_ connection: HTTPConnection) {
    guard connections.removeValue(forKey: ObjectIdentifier(connection)) != nil else { return }
    server.metrics.openConnections.add(-1)
    server.release(connection.origin, from: connection.listener.role)
  }

  /// Logs which limit was reached; seldom, since a flood must not fill the log.
  private func warn(of verdict: ConnectionLimiter.Verdict, _ role: HTTPListener.Role) {
    guard loop.now >= nextWarning else { return }
    nextWarning = loop.now + Self.warningInterval
    let key =
      switch (verdict, role) {
      case (.tooManyFromOrigin, _): "http.connections_per_address"
      case (_, .client): "http.connections"
      case (_, .management): "http.management_connections"
      }
    server.logger.warning(
      "connections are refused: a limit is reached; raise it, or see who holds them", [.text("limit", key)])
  }

  /// Logs that accepting failed for lack of descriptors or memory; seldom, since every attempt fails until some are given back.
  func warnOfShortage(_ code: Int32) {
    guard loop.now >= nextShortageWarning else { return }
    nextShortageWarning = loop.now + Self.warningInterval
    server.logger.warning(
      "cannot accept connections for now: the system is short of something",
      [.text("reason", SystemError.reason(of: code))])
  }

  // MARK: Ending

  /// Stops accepting, ends all waits, and closes every connection after the response it owes.
  func drain() {
    guard !isDraining else { return }
    isDraining = true
    // Responses of this turn leave before their connections, idle by now, are closed.
    sendPostponed()
    for acceptor in acceptors { acceptor.stop() }
    acceptors = []
    room.drain()
    for connection in connections.values { connection.drain() }
  }

  // MARK: Responses at the end of the turn

  /// Takes `connection`'s responses out of `output`, to be sent when the turn ends. False if they are large or shared.
  func postpone(_ connection: HTTPConnection) -> Bool {
    guard output.isText, postponed.count + output.count <= Self.postponedPerTurn else { return false }
    if postponedEnds.isEmpty { loop.atEndOfTurn(self) }
    output.moveText(to: &postponed)
    postponedEnds.append((connection, postponed.count))
    return true
  }

  func turnEnded() { sendPostponed() }

  func sendPostponed() {
    var start = 0
    let count = postponedEnds.count
    for index in 0..<count {
      let (connection, end) = postponedEnds[index]
      connection.sendPostponed(postponed.bytes.extracting(start..<end))
      start = end
    }
    postponedEnds.removeAll(keepingCapacity: true)
    postponed.removeAll()
  }

  // MARK: The date

  /// Seconds of UNIX time.
  var wallSecond: Int64 { loop.wallClock / 1000 }

  /// The value of the Date field, rendered once a second.
  func withDate<Result>(_ body: (Span<UInt8>) -> Result) -> Result {
    let second = wallSecond
    if second != dateSecond {
      dateSecond = second
      var text = ByteQueue()
      HTTPDate.append(second, to: &text)
      date = SharedBytes(copying: text.bytes)
    }
    let date = date
    return body(date.bytes)
  }
}
