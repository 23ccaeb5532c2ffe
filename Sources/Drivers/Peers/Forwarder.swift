import ByteStreams
import HTTPCodec
import Metrics
import Reactor
import Sessions
import Synchronization
import Upstream

/// Forwards requests of clients to the gateways that hold their sessions. One per event loop, used there only.
package final class Forwarder {
  /// Requests share notifiers, so that neither each has one of its own, nor the end of one concerns all others. A power of two.
  private static var laneCount: Int { 64 }
  /// Above this number of addresses, those without a connection are forgotten. Gateways get new addresses when they are replaced.
  private static var addressesKept: Int { 64 }

  package let network: PeerNetwork
  let loop: LoopContext
  private let resolver = Resolver()
  private let lanes = (0..<laneCount).map { _ in Notifier() }
  private var lastLane = 0
  private var pools: [SocketAddress: PeerConnections] = [:]
  /// Number of connections with a request.
  private var inUse = 0
  private var lastWait: UInt64 = 0
  private var watches: [ObjectIdentifier: PlaceWatch] = [:]

  package init(_ network: PeerNetwork, loop: LoopContext) {
    self.network = network
    self.loop = loop
  }

  /// Begins to forward a request. nil: the contents of those that wait take all the memory that they may.
  ///
  /// - Parameters:
  ///   - placement: that of the session. The exchange follows it until there is a response.
  ///   - notifier: is notified of the outcome; nil: one of the exchange.
  package func forward(
    _ request: ForwardedRequest, to placement: SessionPlacement, notifying notifier: Notifier? = nil
  ) -> ForwardedExchange? {
    let count = request.content.count
    guard count == 0 || network.metrics.bytes.current + count <= network.limits.requestBytes else { return nil }
    network.metrics.bytes.add(count)
    lastLane = (lastLane + 1) & (Self.laneCount - 1)
    let exchange = ForwardedExchange(request, placement, self, notifier ?? lanes[lastLane])
    network.metrics.waiting.add(1)
    loop.spawn(exchange)
    return exchange
  }

  /// The connections with the gateway at `address`; nil if no request can be sent there.
  func connections(with address: SocketAddress) -> PeerConnections? {
    if let pool = pools[address] { return pool }
    if pools.count >= Self.addressesKept { pools = pools.filter { $0.value.isInUse } }
    guard let endpoint = HTTPEndpoint(gatewayAt: address) else { return nil }
    let pool = PeerConnections(endpoint, network, resolver, loop)
    pools[address] = pool
    return pool
  }

  // MARK: Connections

  /// A connection for one request, after which `release` follows. nil: there are too many, and the request must wait.
  func take(from pool: PeerConnections) -> HTTPClient? {
    guard inUse < network.limits.connections, pool.hasRoom else { return nil }
    begin(in: pool)
    return client(of: pool)
  }

  /// The request waits until `ForwardedExchange.granted` is called: then it has a connection of `pool`, which is `client(of:)`, or `release` follows at once.
  /// Returns the number of the wait.
  func wait(_ exchange: ForwardedExchange, for pool: PeerConnections) -> UInt64 {
    lastWait += 1
    pool.add(exchange, lastWait)
    return lastWait
  }

  /// The connection of a request that has taken one.
  func client(of pool: PeerConnections) -> HTTPClient {
    if let client = pool.takeIdle() { return client }
    // Those with requests are never too many.
    if pools.values.reduce(0, { $0 + $1.open }) > network.limits.connections {
      pools.values.first { $0.hasIdle }?.closeIdle()
    }
    return pool.makeClient()
  }

  /// - Parameter client: nil: the request did not need one any more.
  func release(_ client: HTTPClient?, of pool: PeerConnections) {
    pool.end(client)
    inUse -= 1
    grant()
  }

  private func begin(in pool: PeerConnections) {
    pool.begin()
    inUse += 1
  }

  /// Gives free connections to the requests that have waited longest.
  private func grant() {
    while inUse < network.limits.connections {
      let waiting = pools.values.lazy.filter { $0.hasRoom }.compactMap { pool in pool.firstWait.map { ($0, pool) } }
      guard let (_, pool) = waiting.min(by: { $0.0 < $1.0 }), let next = pool.removeFirst() else { return }
      begin(in: pool)
      next.granted()
    }
  }

  func watch(_ placement: SessionPlacement, for exchange: ForwardedExchange) {
    let key = ObjectIdentifier(placement)
    let watch = watches[key] ?? PlaceWatch(placement, loop: loop)
    watches[key] = watch
    watch.add(exchange)
  }

  func endWatch(_ placement: SessionPlacement, for exchange: ForwardedExchange) {
    let key = ObjectIdentifier(placement)
    guard let watch = watches[key] else { return }
    watch.remove(exchange)
    guard watch.isEmpty else { return }
    watch.close()
    watches[key] = nil
  }

  /// Number of objects that exist because of requests in progress. For tests.
  package var held: Int { watches.count + pools.values.reduce(0) { $0 + $1.inUse + $1.waitingCount } }
}

/// Notifies the requests of one loop for one session that it has another place.
private final class PlaceWatch: SignalTarget {
  private let placement: SessionPlacement
  private var exchanges: [ObjectIdentifier: ForwardedExchange] = [:]
  private var signal: Signal?
  private var listener: Notifier.Listener?

  init(_ placement: SessionPlacement, loop: LoopContext) {
    self.placement = placement
    let signal = loop.makeSignal(for: self)
    let listener = Notifier.Listener(signal)
    listener.isWaiting.store(true, ordering: .sequentiallyConsistent)
    placement.notifier.add(listener)
    (self.signal, self.listener) = (signal, listener)
  }

  var isEmpty: Bool { exchanges.isEmpty }

  func add(_ exchange: ForwardedExchange) { exchanges[ObjectIdentifier(exchange)] = exchange }

  func remove(_ exchange: ForwardedExchange) { exchanges[ObjectIdentifier(exchange)] = nil }

  func signalled() {
    for exchange in Array(exchanges.values) { exchange.placeChanged() }
  }

  func close() {
    if let listener { placement.notifier.remove(listener) }
    signal?.close()
    (signal, listener) = (nil, nil)
  }
}

/// The connections of one loop with one gateway, which are kept for reuse, and the requests that wait for one, in order. `Forwarder` limits their number.
final class PeerConnections {
  private let endpoint: HTTPEndpoint
  private let limits: PeerNetwork.Limits
  private let received: Gauge
  private let resolver: Resolver
  private let loop: LoopContext
  /// Without a request; the one used last is at the end.
  private var idle: [HTTPClient] = []
  /// Number of those with a request.
  private(set) var inUse = 0
  /// With the numbers of their waits. Some of them have stopped waiting.
  private var waiting = RingDeque<(exchange: ForwardedExchange, number: UInt64)?>(filler: nil)

  init(_ endpoint: HTTPEndpoint, _ network: PeerNetwork, _ resolver: Resolver, _ loop: LoopContext) {
    self.endpoint = endpoint
    limits = network.limits
    received = network.metrics.responseBytes
    self.resolver = resolver
    self.loop = loop
  }

  var isInUse: Bool { inUse > 0 || firstWait != nil }
  var waitingCount: Int { waiting.count }
  var hasRoom: Bool { inUse < limits.connectionsPerPeer }
  var hasIdle: Bool { idle.contains { $0.isConnected } }
  /// Number of those that are open, or are about to be.
  var open: Int { inUse + idle.count { $0.isConnected } }
  /// The value of Host.
  var host: String { endpoint.url.hostField }

  func begin() { inUse += 1 }

  func end(_ client: HTTPClient?) {
    inUse -= 1
    // The longest idle ones are first, and have been closed.
    while let first = idle.first, !first.isConnected { idle.removeFirst() }
    if let client, client.isConnected { idle.append(client) }
  }

  func takeIdle() -> HTTPClient? {
    while let client = idle.popLast() {
      // The idle time of one may have ended.
      if client.isConnected { return client }
    }
    return nil
  }

  func closeIdle() {
    while !idle.isEmpty {
      let client = idle.removeFirst()
      guard client.isConnected else { continue }
      return client.cancel()
    }
  }

  func makeClient() -> HTTPClient {
    var limits = HTTPClient.Limits()
    limits.connectTimeout = self.limits.connect
    limits.userTimeout = self.limits.acknowledgement
    limits.contentBytes = self.limits.responseBytes
    limits.received = received
    return HTTPClient(endpoint, limits: limits, resolver: resolver, loop: loop)
  }

  func add(_ exchange: ForwardedExchange, _ number: UInt64) { waiting.append((exchange, number)) }

  /// The number of the first wait that has not ended; nil: nothing waits.
  var firstWait: UInt64? {
    while !waiting.isEmpty {
      if let first = waiting[waiting.front], first.exchange.awaited == first.number { return first.number }
      waiting.removeFirst()
    }
    return nil
  }

  func removeFirst() -> ForwardedExchange? {
    guard firstWait != nil, let first = waiting[waiting.front] else { return nil }
    waiting.removeFirst()
    return first.exchange
  }
}
