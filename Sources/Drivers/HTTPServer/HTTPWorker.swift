import ByteStreams
import HTTPCodec
import Host
import Logging
import Metrics
import ProxyCodec
import Reactor

/// The state of one event loop that its HTTP connections have in common.
final class HTTPWorker: TurnEndTarget {
  /// Minimum interval between two log lines about refused connections, per loop.
  private static var warningInterval: TimeSpan { .seconds(10) }
  /// Bytes of responses that may be deferred to the end of a turn.
  private static var deferredBytesPerTurn: Int { 256 * 1024 }
  /// During a drain, a connection without a request is closed at its `drainEnd`, but not before it has been idle for
  /// this time. A client that has just received a response often sends its next request at once. If the connection were
  /// closed at that moment, this request could be lost.
  static var drainIdle: TimeSpan { .seconds(1) }
  /// Maximum memory, in bytes, that `output` keeps. Only an exceptional response needs more memory, which is released
  /// when the response is sent.
  private static var retainedOutputBytes: Int { 512 * 1024 }

  let loop: LoopContext
  let server: HTTPServer
  let application: any HTTPApplication
  private let pool: HTTPHeadPool
  /// The pool for heads of requests from other gateways. Its limits are higher, since gateways add fields to the
  /// client's fields.
  private lazy var peerPool = HTTPHeadPool(limits: server.limits.forPeers)
  let heldRequests: HeldRequests
  /// Clients that do not read their responses.
  let slowReaders: LoopParts<Channel>
  private(set) lazy var handshakes = LoopParts<Channel>(server.handshakes, loop: loop) { [unowned self] channel in
    channel.reset()
    warnOfHandshakes()
  }
  let pendingBodies: LoopParts<HTTPConnection>
  /// Prepares large bodies, and wakes their connections by `preparedBodies`.
  let bodyThread = BodyThread()
  let preparedBodies = Notifier()
  private let clients: LoopParts<HTTPConnection>
  private let management: LoopParts<HTTPConnection>
  private let peers: LoopParts<HTTPConnection>
  let accessLog: AccessLog
  let timeouts: ConnectionTimeouts
  /// The timeouts for connections of other gateways.
  let peerTimeouts: ConnectionTimeouts
  /// Responses to send. A connection fills and flushes this queue without a wait in between, so all connections can use
  /// the same queue. Bytes that the kernel does not accept at once are moved to a queue of the connection.
  var output = OutputQueue()
  /// The principal of the last response in `output`; 0 without credentials.
  var responder: UInt64 = 0
  /// The principals of responses that clients have not read, by connection. They are not stored in the connections,
  /// since most connections have no such response.
  private var unsentResponders: [ObjectIdentifier: UInt64] = [:]
  /// The input that was last read on a connection with TLS or the PROXY protocol. The plaintext that such a connection
  /// encrypts is also gathered here.
  var plaintext = ByteQueue()
  /// The response being written by the application.
  var response = Response()
  /// The responses that are deferred to the end of the turn, one after another, and the end offset of each connection's
  /// part.
  private var deferredOutput = ByteQueue()
  private var deferredEnds: [(connection: HTTPConnection, end: Int, responder: UInt64)] = []
  private(set) var isDraining = false
  /// During a drain, held requests, streams and idle connections end between `drainStart` and `drainStart` +
  /// `drainSpread`.
  private var drainStart = MonotonicTime.zero
  private var drainSpread = TimeSpan.zero

  /// Each connection stores its index in this array, so that no hash table is needed to add or remove a connection.
  private(set) var connections: [HTTPConnection] = []
  private var acceptors: [HTTPAcceptor] = []
  private var renderedDate = ByteString([])
  private var dateSecond: Int64 = -1
  private var nextWarning = MonotonicTime.zero
  private var nextShortageWarning = MonotonicTime.zero

  init(loop: LoopContext, server: HTTPServer, application: any HTTPApplication) {
    self.loop = loop
    self.server = server
    self.application = application
    pool = HTTPHeadPool(limits: server.limits)
    heldRequests = HeldRequests(loop: loop)
    slowReaders = LoopParts(server.unsentResponses, loop: loop) { $0.reset() }
    pendingBodies = LoopParts(server.pendingBodies, loop: loop) { $0.dropBody() }
    clients = LoopParts(server.connections(of: .client), loop: loop) { $0.channel.reset() }
    management = LoopParts(server.connections(of: .management), loop: loop) { $0.channel.reset() }
    peers = LoopParts(server.connections(of: .peer), loop: loop) { $0.channel.reset() }
    timeouts = ConnectionTimeouts(server.settings)
    peerTimeouts = ConnectionTimeouts(server.settings, for: .peer)
    accessLog = server.accessLog
  }

  // MARK: Connections

  func pool(for role: HTTPListener.Role) -> HTTPHeadPool { role == .peer ? peerPool : pool }

  /// Starts serving a listening socket on this loop.
  func listen(_ descriptor: Int32, _ listener: HTTPListener, isInherited: Bool = false) {
    do throws(SystemError) {
      let acceptor = HTTPAcceptor(
        socket: try Channel(descriptor: descriptor, loop: loop), listener: listener, isInherited: isInherited,
        worker: self)
      acceptors.append(acceptor)
      acceptor.start()
    } catch {
      server.logger.error("cannot accept connections on a listener", [.text("reason", error.description)])
    }
  }

  /// Serves a new connection, or resets it if a limit is reached.
  func accept(_ descriptor: Int32, from peer: SocketAddress, on listener: HTTPListener) {
    let settings = server.settings
    let isTrusted = !settings.trustedProxies.isEmpty && settings.trustedProxies.contains(peer.ip)
    let expectsHeader = listener.role == .client && settings.proxyProtocol == .required
    if expectsHeader, !isTrusted {
      Sockets.reset(descriptor)
      server.metrics.refusedProxyHeaders.add()
      warnOfUntrusted(peer)
      return
    }
    // A proxy opens the connections of many clients, so no limit per origin applies until the header of the PROXY
    // protocol has named the client.
    let origin = expectsHeader ? ClientOrigin.local : ClientOrigin(peer)
    let places = places(of: listener.role)
    let admission = places.add(nil, 1, by: origin)
    guard case .admitted(let place) = admission else {
      // The connection is reset without a response: during a flood, responses would cost the server more than the
      // connections cost the attacker.
      Sockets.reset(descriptor)
      if case .tooManyOfAddress = admission { server.metrics.refusedConnections.add() }
      warn(of: admission, listener.role)
      return
    }
    guard let channel = try? Channel(descriptor: descriptor, loop: loop) else {
      server.metrics.refusedConnections.add()
      release(place, listener.role)
      return
    }
    let connection = HTTPConnection(
      channel: channel, origin: origin, listener: listener,
      layers: expectsHeader || listener.isSecure
        ? ConnectionLayers(
          from: peer, expectsHeader: expectsHeader, certificate: listener.isSecure ? server.certificate : nil,
          handshakes: handshakes)
        : nil,
      isBehindProxy: isTrusted && listener.role == .client && !expectsHeader, worker: self, place: place,
      index: connections.count)
    places.assign(place, to: connection)
    connections.append(connection)
    server.metrics.openConnections.add(1)
    server.metrics.acceptedConnections.add()
    connection.begin()
  }

  /// Removes a connection that has ended.
  func remove(_ connection: HTTPConnection) {
    // The last connection of the array takes the place of the removed connection.
    let last = connections.removeLast()
    if last !== connection {
      connections[connection.index] = last
      last.index = connection.index
    }
    server.metrics.openConnections.add(-1)
    forgetResponder(of: connection)
    release(connection.place, connection.listener.role)
  }

  private func places(of role: HTTPListener.Role) -> LoopParts<HTTPConnection> {
    switch role {
    case .client: clients
    case .management: management
    case .peer: peers
    }
  }

  private func release(_ place: LoopPart?, _ role: HTTPListener.Role) {
    if let place { places(of: role).remove(place) }
    server.released(role)
  }

  /// Counts a connection for the client that the header of the PROXY protocol names, or for its peer if the header
  /// names none. If that client has too many connections, resets `connection` and returns false.
  func recount(_ connection: HTTPConnection, behind layers: ConnectionLayers) -> Bool {
    let origin = ClientOrigin(layers.client ?? layers.peer)
    if origin != connection.origin {
      if let place = connection.place { clients.remove(place) }
      let admission = clients.add(connection, 1, by: origin)
      guard case .admitted(let place) = admission else {
        if case .tooManyOfAddress = admission { server.metrics.refusedConnections.add() }
        warn(of: admission, .client)
        connection.channel.reset()
        return false
      }
      connection.place = place
      connection.origin = origin
    }
    // `X-Forwarded-For` is used only if the client that the header names is a trusted proxy itself. If the header names
    // no client, the field is ignored, since the bytes after the header may come from any client.
    connection.isBehindProxy = layers.client.map { server.settings.trustedProxies.contains($0.ip) } ?? false
    return true
  }

  /// Logs that handshakes were reset because there are too many.
  private func warnOfHandshakes() {
    guard loop.now >= nextWarning else { return }
    nextWarning = loop.now + Self.warningInterval
    server.logger.warning(
      "too many TLS handshakes are in progress: the oldest handshakes of the client with the most are reset",
      [.number("limit", HTTPServer.maximumHandshakes)])
  }

  /// Logs that a peer has connected to a listener that requires the PROXY protocol, but is not trusted to send it.
  private func warnOfUntrusted(_ peer: SocketAddress) {
    guard loop.now >= nextWarning else { return }
    nextWarning = loop.now + Self.warningInterval
    server.logger.warning(
      "a connection was refused: its peer is not in http.trusted_proxies, and http.proxy_protocol is required",
      [.text("peer", peer.description)])
  }

  /// Logs which limit was reached. Rate-limited, since a flood must not fill the log.
  private func warn(of admission: ProcessTotal.Admission, _ role: HTTPListener.Role) {
    guard loop.now >= nextWarning else { return }
    nextWarning = loop.now + Self.warningInterval
    let key =
      switch (admission, role) {
      case (.tooManyOfAddress, .peer): "connections of one other gateway"
      case (.tooManyOfAddress, _): "http.connections_per_address"
      case (_, .client): "http.connections"
      case (_, .management): "http.management_connections"
      case (_, .peer): "connections of other gateways"
      }
    server.logger.warning(
      "a connection limit is reached: new connections are refused", [.text("limit", key)])
  }

  /// Logs that a connection could not be accepted for lack of descriptors or memory. Rate-limited, since every attempt
  /// fails until resources are freed.
  func warnOfShortage(_ code: Int32) {
    guard loop.now >= nextShortageWarning else { return }
    nextShortageWarning = loop.now + Self.warningInterval
    server.logger.warning(
      "cannot accept connections: a system resource is exhausted",
      [.text("reason", SystemError.reason(of: code))])
  }

  // MARK: Draining

  /// Stops accepting clients, ends all waits, and closes every connection after its pending response.
  ///
  /// - Parameter spread: the time over which held requests, streams and idle connections end. Clients of held requests
  ///   and streams reconnect at once, to another instance or to the next process, so they must not all do so at the
  ///   same time.
  func drain(releasingOver spread: TimeSpan) {
    guard !isDraining else { return }
    isDraining = true
    (drainStart, drainSpread) = (loop.now, spread)
    sendDeferred()
    // Probes and metrics are served until the end.
    for acceptor in acceptors where acceptor.listener.role == .client { acceptor.stop() }
    acceptors.removeAll { $0.listener.role == .client }
    heldRequests.drain()
    for connection in connections { connection.drain() }
  }

  /// The time at which a wait on `channel` must end because the server drains. The wait ends in the next turn at the
  /// earliest, since a timer fires after the input of its turn was read.
  func drainEnd(of channel: Channel) -> MonotonicTime {
    guard isDraining else { return .distantFuture }
    return drainStart + drainSpread / 1024 * Int64(Self.drainShare(of: channel.descriptor))
  }

  /// The part of the spread, in 1024ths, that passes before a wait ends. Descriptors are small consecutive numbers.
  /// This function multiplies them by 2^32 divided by the golden ratio, modulo 2^32 (Fibonacci hashing). The products
  /// are spread evenly, however many descriptors there are.
  static func drainShare(of descriptor: Int32) -> UInt32 {
    (UInt32(truncatingIfNeeded: descriptor) &* 2_654_435_769) >> 22
  }

  // MARK: Responses at the end of the turn

  /// Moves `connection`'s responses from `output` to the buffer that is sent at the end of the turn. Returns false if
  /// they are too large or contain a `ByteSlice`.
  func deferOutput(of connection: HTTPConnection) -> Bool {
    guard output.isText, deferredOutput.count + output.count <= Self.deferredBytesPerTurn else { return false }
    if deferredEnds.isEmpty { loop.atEndOfTurn(self) }
    output.moveText(to: &deferredOutput)
    deferredEnds.append((connection, deferredOutput.count, responder))
    responder = 0
    return true
  }

  // MARK: Responses that clients do not take

  /// Remembers the principal of the responses in `output`, because the client of `connection` does not read them.
  func noteResponder(of connection: HTTPConnection) {
    if responder != 0 { unsentResponders[ObjectIdentifier(connection)] = responder }
    responder = 0
  }

  /// The principal of the responses that the client has not read; 0 without credentials.
  func responder(of connection: HTTPConnection) -> UInt64 { unsentResponders[ObjectIdentifier(connection)] ?? 0 }

  func forgetResponder(of connection: HTTPConnection) {
    if !unsentResponders.isEmpty { unsentResponders[ObjectIdentifier(connection)] = nil }
  }

  /// Releases the memory of `output`, which must be empty, if a large response was sent from it.
  func releaseLargeOutput() {
    if output.memoryBytes > Self.retainedOutputBytes { output.releaseStorage() }
  }

  func turnEnded() { sendDeferred() }

  func sendDeferred() {
    var start = 0
    let count = deferredEnds.count
    for index in 0..<count {
      let (connection, end, responder) = deferredEnds[index]
      self.responder = responder
      connection.sendDeferred(deferredOutput.bytes.extracting(start..<end))
      start = end
    }
    responder = 0
    deferredEnds.removeAll(keepingCapacity: true)
    deferredOutput.removeAll()
  }

  // MARK: The date

  /// UNIX time in seconds.
  var wallSecond: Int64 { loop.wallClock / 1000 }

  /// The value of the Date field, rendered once per second.
  var date: ByteString {
    let second = wallSecond
    if second != dateSecond {
      dateSecond = second
      var text = ByteQueue()
      HTTPDate.append(second, to: &text)
      renderedDate = ByteString(copying: text.bytes)
    }
    return renderedDate
  }
}
