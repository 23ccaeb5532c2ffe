import ByteStreams
import HTTPCodec
import Logging
import Metrics
import Reactor
import Synchronization
import Threading

/// The part of an HTTP/1.1 server that its event loops have in common. It has no routes: each loop has an
/// `HTTPApplication`.
package final class HTTPServer: Sendable {
  /// Maximum numbers of open connections. Each role has its own limit, so that probes are accepted even when clients
  /// have used up their limit.
  package struct ConnectionLimits: Sendable {
    package let clients: Int
    package let management: Int
    package let peers: Int

    package init(clients: Int, management: Int, peers: Int = 0) {
      self.clients = clients
      self.management = management
      self.peers = peers
    }
  }

  let settings: HTTPServerSettings
  let limits: HTTPLimits
  let logger: Logger
  let metrics: HTTPServerMetrics
  /// The responses that clients have not read, in bytes. An unsent response keeps its pushes in memory, even after the
  /// inbox has dropped them. A response is added again each time that it must wait for its client. So the oldest part
  /// is the response that has made no progress for the longest time.
  let unsentResponses: ProcessTotal
  /// The partially received bodies of requests, in bytes.
  let pendingBodies: ProcessTotal
  package let accessLog: AccessLog
  let refusalLog = LogLineLimiter()
  /// The TLS handshakes in progress. A client's first message announces its size, and OpenSSL allocates this size
  /// before the message has arrived. So even a handshake that has only begun may cost 120 KiB.
  let handshakes: ProcessTotal
  /// Maximum number of handshakes in progress, which need up to 240 MiB together. In normal operation there are fewer:
  /// handshakes take one or two round trips, and their computations limit how many can begin in that time.
  static var maximumHandshakes: Int { 2_048 }
  let handshakeLog = LogLineLimiter()
  /// How long a large body waits for its preparation.
  let preparationWait: TimeSpan
  /// Limits the log lines about connections that begin with another protocol to one a minute. The usual cause is a
  /// wrong configuration, which more lines would not correct sooner.
  let tlsOnPlainLog = LogLineLimiter(lines: 1, per: .seconds(60))
  let plainOnTLSLog = LogLineLimiter(lines: 1, per: .seconds(60))
  let proxyHeaderLog = LogLineLimiter(lines: 1, per: .seconds(60))
  let noProxyHeaderLog = LogLineLimiter(lines: 1, per: .seconds(60))
  /// The certificate of the HTTPS listeners; nil without HTTPS listeners.
  package let certificate: CurrentCertificate?
  /// The open connections of each role. They are counted for the process and not for each loop, since the kernel
  /// distributes the connections of one client over the loops.
  private let clients: ProcessTotal
  private let management: ProcessTotal
  private let peers: ProcessTotal
  /// The number of loops whose acceptors have not stopped yet; -1 while the server does not drain.
  private let loopsToDrain = Atomic(-1)
  private let drainEnd = Locked<(@Sendable () -> Void)?>(nil)

  package init(
    _ settings: HTTPServerSettings, _ connections: ConnectionLimits, logger: Logger, access: AccessLog.Mode = .off,
    certificate: CurrentCertificate? = nil, metrics: HTTPServerMetrics, preparationWait: TimeSpan? = nil
  ) {
    self.settings = settings
    self.preparationWait = preparationWait ?? BodyThread.longestWait
    self.certificate = certificate
    self.logger = logger
    self.metrics = metrics
    accessLog = AccessLog(access, logger)
    limits = settings.limits
    unsentResponses = ProcessTotal(
      limit: settings.unsentBytes, .oldestFirst, used: metrics.unsentBytes, yielded: metrics.slowReaders)
    // The newest bodies yield first, so that bodies that have almost arrived are completed.
    pendingBodies = ProcessTotal(limit: settings.pendingBodyBytes, .newestFirst, used: metrics.pendingBodyBytes)
    // The oldest handshakes yield first: a handshake takes one or two round trips, so the oldest handshakes have
    // probably stalled.
    handshakes = ProcessTotal(
      limit: Self.maximumHandshakes, .oldestFirst, yielded: metrics.refusedConnections)
    clients = ProcessTotal(
      limit: connections.clients, limitPerAddress: settings.connectionsPerAddress, .newestFirst,
      yielded: metrics.refusedConnections)
    management = ProcessTotal(limit: connections.management, .newestFirst, yielded: metrics.refusedConnections)
    // Another gateway opens at most this many connections to this gateway. The remaining connections are for the other
    // gateways.
    let perPeer = max(1, connections.peers - connections.peers / 4)
    peers = ProcessTotal(
      limit: connections.peers, limitPerAddress: perPeer, .newestFirst, yielded: metrics.refusedConnections)
  }

  /// Starts accepting connections: of clients and peers on every loop, and of management on the first loop.
  ///
  /// - Parameter application: creates the application of a loop; called on that loop.
  package func start(
    clients: [BoundListener], secure: [BoundListener] = [], management: [BoundListener],
    peers: [BoundListener] = [], on loops: [EventLoop],
    application: @escaping @Sendable (LoopContext) -> any HTTPApplication
  ) {
    for (index, loop) in loops.enumerated() {
      var sockets: [(descriptor: Int32, listener: HTTPListener, isInherited: Bool)] = []
      for bound in clients where index < bound.descriptors.count {
        sockets.append(
          (bound.descriptors[index], HTTPListener(.client, reach: bound.address.reach), bound.isInherited))
      }
      for bound in secure where index < bound.descriptors.count {
        let listener = HTTPListener(.client, reach: bound.address.reach, isSecure: true)
        sockets.append((bound.descriptors[index], listener, bound.isInherited))
      }
      for bound in peers where index < bound.descriptors.count {
        sockets.append((bound.descriptors[index], HTTPListener(.peer, reach: bound.address.reach), bound.isInherited))
      }
      for bound in management where index == 0 {
        let listener = HTTPListener(.management, reach: bound.address.reach)
        for descriptor in bound.descriptors { sockets.append((descriptor, listener, bound.isInherited)) }
      }
      loop.submit { [sockets] context in
        let worker = HTTPWorker(loop: context, server: self, application: application(context))
        context.userObject = worker
        for (descriptor, listener, isInherited) in sockets {
          worker.listen(descriptor, listener, isInherited: isInherited)
        }
        return nil
      }
    }
  }

  /// Stops accepting clients, ends their waits, and closes each of their connections after its pending response.
  /// Connections of management and of peers are served until the loops stop.
  ///
  /// - Parameters:
  ///   - spread: the time over which held requests and streams end.
  ///   - end: called when `isDrained` becomes true, on any thread.
  package func drain(
    _ loops: [EventLoop], releasingOver spread: TimeSpan, whenDrained end: @escaping @Sendable () -> Void
  ) {
    drainEnd.withLock { $0 = end }
    loopsToDrain.store(loops.count, ordering: .sequentiallyConsistent)
    for loop in loops {
      loop.submit { [self] context in
        (context.userObject as? HTTPWorker)?.drain(releasingOver: spread)
        // The loop counts as drained only now, when the totals include the connections that the kernel had already
        // established.
        loopsToDrain.subtract(1, ordering: .sequentiallyConsistent)
        reportIfDrained()
        return nil
      }
    }
  }

  /// Number of open connections of clients.
  package var clientConnections: Int { clients.count }

  /// Whether a drain has ended: all connections of clients are closed.
  package var isDrained: Bool { loopsToDrain.load(ordering: .sequentiallyConsistent) == 0 && clientConnections == 0 }

  private func reportIfDrained() {
    if isDrained { drainEnd.withLock { $0 }?() }
  }

  func connections(of role: HTTPListener.Role) -> ProcessTotal {
    switch role {
    case .client: clients
    case .management: management
    case .peer: peers
    }
  }

  /// Called when an admitted connection has ended.
  func released(_ role: HTTPListener.Role) {
    if role == .client, loopsToDrain.load(ordering: .sequentiallyConsistent) == 0 { reportIfDrained() }
  }
}

/// Metrics of the HTTP server.
package struct HTTPServerMetrics: Sendable {
  package let openConnections: Gauge
  let acceptedConnections: Counter
  let refusedConnections: Counter
  let malformedRequests: Counter
  let slowRequests: Counter
  let slowReaders: Counter
  let pendingBodyBytes: Gauge
  let unsentBytes: Gauge
  let handshakes: Counter
  let resumedHandshakes: Counter
  let failedHandshakes: Counter
  let refusedProxyHeaders: Counter

  package init(_ registry: MetricsRegistry) {
    openConnections = registry.gauge("drawbridge_http_connections", "Open client connections.")
    acceptedConnections = registry.counter("drawbridge_http_connections_accepted_total", "Client connections accepted.")
    refusedConnections = registry.counter(
      "drawbridge_http_connections_refused_total", "Client connections refused because a connection limit was reached.")
    malformedRequests = registry.counter(
      "drawbridge_http_requests_malformed_total", "Requests that violated HTTP or a size limit.")
    slowRequests = registry.counter(
      "drawbridge_http_requests_slow_total", "Requests that did not arrive within their timeout.")
    slowReaders = registry.counter(
      "drawbridge_http_readers_slow_total", "Connections closed because the client did not read its response.")
    pendingBodyBytes = registry.gauge(
      "drawbridge_http_body_bytes", "Memory used by partially received request bodies, in bytes.")
    handshakes = registry.counter(
      "drawbridge_http_tls_handshakes_total", "TLS handshakes completed on the HTTPS listeners.")
    resumedHandshakes = registry.counter(
      "drawbridge_http_tls_handshakes_resumed_total", "TLS handshakes that resumed an earlier TLS connection.")
    failedHandshakes = registry.counter(
      "drawbridge_http_tls_handshakes_failed_total", "TLS handshakes that failed or did not end in time.")
    refusedProxyHeaders = registry.counter(
      "drawbridge_http_proxy_headers_refused_total",
      "Connections refused because the header of the PROXY protocol was malformed, or the peer is not trusted.")
    unsentBytes = registry.gauge("drawbridge_http_unsent_bytes", "Memory used by unsent responses, in bytes.")
  }
}
