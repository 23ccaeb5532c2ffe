import ByteStreams
import Configuration
import Inbox
import HTTPCodec
import Logging
import Metrics
import Reactor
import Sessions

/// What the client connections of one event loop share.
final class HTTPWorker: TurnEndTarget {
  /// How often a loop tells that it refuses connections.
  private static var warningInterval: TimeSpan { .seconds(10) }
  /// Bytes of answers that may wait for the end of a turn.
  private static var postponedPerTurn: Int { 256 * 1024 }

  let loop: LoopContext
  let shared: GatewayShared
  let pool: HTTPHeadPool
  let room: PollRoom
  let slowReaders: SlowReaders
  /// Answers on their way out. A connection fills and flushes it without waiting in between, so one serves all; what the
  /// kernel does not take at once moves to the connection's own.
  var output = OutputQueue()
  var scratch = ByteQueue()
  var preparedAnswers = PreparedAnswers()
  /// Answers that go out when the turn ends, one connection's behind another's, and where each one's end.
  private var postponed = ByteQueue()
  private var owed: [(connection: HTTPConnection, end: Int)] = []
  private(set) var isDraining = false

  private var connections: [ObjectIdentifier: HTTPConnection] = [:]
  private var acceptors: [HTTPAcceptor] = []
  private var date = SharedBytes([])
  private var dateSecond: Int64 = -1
  private var nextWarning = MonotonicTime.zero
  private var nextShortageWarning = MonotonicTime.zero
  private var requestCounter: UInt64 = 0
  private let requestPrefix = UInt32.random(in: .min ... .max)

  init(loop: LoopContext, shared: GatewayShared) {
    self.loop = loop
    self.shared = shared
    pool = HTTPHeadPool(limits: shared.httpLimits)
    room = PollRoom(bell: shared.session.inbox.bell, loop: loop)
    slowReaders = SlowReaders(shared.unsentResponses, loop: loop)
  }

  // MARK: Connections

  /// Starts serving a listening socket on this loop.
  func listen(_ listener: Channel, _ role: HTTPConnection.Role, _ reach: ListenerReach) {
    let acceptor = HTTPAcceptor(listener: listener, role: role, reach: reach, worker: self)
    acceptors.append(acceptor)
    loop.spawn(acceptor)
  }

  /// Takes a fresh connection, or drops it where there are too many.
  func welcome(
    _ descriptor: Int32, from peer: SocketAddress, _ role: HTTPConnection.Role, _ reach: ListenerReach
  ) {
    let origin = ClientOrigin(peer)
    let verdict = shared.admit(origin, to: role)
    guard verdict == .admitted else {
      // No word: an answer for each would cost the flooded more than the flood.
      Sockets.reset(descriptor)
      shared.refusedConnections.add()
      warn(of: verdict, role)
      return
    }
    guard let channel = try? Channel(descriptor: descriptor, loop: loop) else {
      shared.refusedConnections.add()
      shared.leave(origin, from: role)
      return
    }
    let connection = HTTPConnection(channel: channel, origin: origin, role: role, reach: reach, worker: self)
    connections[ObjectIdentifier(connection)] = connection
    shared.openConnections.add(1)
    shared.acceptedConnections.add()
    loop.spawn(connection)
  }

  func farewell(_ connection: HTTPConnection) {
    guard connections.removeValue(forKey: ObjectIdentifier(connection)) != nil else { return }
    shared.openConnections.add(-1)
    shared.leave(connection.origin, from: connection.role)
  }

  /// Tells the operator which limit was reached; seldom, since a flood must not fill the log.
  private func warn(of verdict: ConnectionCensus.Verdict, _ role: HTTPConnection.Role) {
    guard loop.now >= nextWarning else { return }
    nextWarning = loop.now + Self.warningInterval
    let key =
      switch (verdict, role) {
      case (.tooManyFromOrigin, _): "http.connections_per_address"
      case (_, .client): "http.connections"
      case (_, .management): "http.management_connections"
      }
    shared.logger.warning(
      "connections are refused: a limit is reached; raise it, or see who holds them", [.text("limit", key)])
  }

  /// Logs that accepting failed for lack of descriptors or memory; seldom, since every attempt fails until some are given back.
  func warnOfShortage(_ code: Int32) {
    guard loop.now >= nextShortageWarning else { return }
    nextShortageWarning = loop.now + Self.warningInterval
    shared.logger.warning(
      "cannot accept connections for now: the system is short of something",
      [.text("reason", SystemError.reason(of: code))])
  }

  // MARK: Ending

  /// Stops accepting, answers held polls, and lets every connection end with the answer it owes.
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

  var connectionCount: Int { connections.count }

  // MARK: Answers at the end of the turn

  /// Takes what stands in `output` for `connection`, to be sent when the turn ends; not if it is large or lies elsewhere.
  func postpone(_ connection: HTTPConnection) -> Bool {
    guard output.isText, postponed.count + output.count <= Self.postponedPerTurn else { return false }
    if owed.isEmpty { loop.atEndOfTurn(self) }
    output.moveText(to: &postponed)
    owed.append((connection, postponed.count))
    return true
  }

  func turnEnded() { sendPostponed() }

  func sendPostponed() {
    var start = 0
    let count = owed.count
    for index in 0..<count {
      let (connection, end) = owed[index]
      connection.sendPostponed(postponed.bytes.extracting(start..<end))
      start = end
    }
    owed.removeAll(keepingCapacity: true)
    postponed.removeAll()
  }

  // MARK: Small things that answers need

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

  /// A name for one request in errors and logs.
  func nextRequestID() -> String {
    requestCounter += 1
    return String(requestPrefix, radix: 16) + "-" + String(loop.index) + "-" + String(requestCounter)
  }
}

/// Accepts connections from one listening socket on one loop.
final class HTTPAcceptor: LoopTask {
  /// Connections taken in one go before others get their turn.
  private static var burst: Int { 64 }
  /// How long accepting rests when the process is out of descriptors or memory.
  private static var rest: TimeSpan { .milliseconds(100) }

  private let listener: Channel
  private let role: HTTPConnection.Role
  private let reach: ListenerReach
  private unowned let worker: HTTPWorker
  private var isStopped = false

  init(listener: Channel, role: HTTPConnection.Role, reach: ListenerReach, worker: HTTPWorker) {
    self.listener = listener
    self.role = role
    self.reach = reach
    self.worker = worker
  }

  func stop() {
    isStopped = true
    // What the kernel has completed already is served, not reset.
    acceptBurst(limit: 4096)
    listener.close()
  }

  func run() async {
    while !isStopped {
      guard await listener.readable() == .ready, !isStopped else { continue }
      if acceptBurst(limit: Self.burst) {
        await worker.loop.yieldTurn()
      } else {
        // Each connection that arrives meanwhile ends the wait: no reason to try again yet.
        let end = worker.loop.now + Self.rest
        while !isStopped, worker.loop.now < end { _ = await listener.readEvent(until: end) }
      }
    }
  }

  /// Takes what waits. False where the process is short of something, so that trying on would only burn time.
  @discardableResult
  private func acceptBurst(limit: Int) -> Bool {
    for _ in 0..<limit {
      switch Sockets.accept(from: listener) {
      case .connection(let descriptor, let peer): worker.welcome(descriptor, from: peer, role, reach)
      case .wouldBlock: return true
      case .failed(let code):
        if Sockets.isShortage(code) {
          worker.warnOfShortage(code)
          return false
        }
      }
    }
    return true
  }
}
