import ByteStreams
import Dialing
import HTTPCodec
import Host
import Metrics
import Reactor
import Sessions
import Synchronization
import Totals

/// Forwards requests of clients to the holders of their sessions. Each event loop has its own forwarder.
package final class Forwarder {
  /// The number of notifiers, which requests use in turn; a power of two. A request needs no notifier of its own, and
  /// an outcome wakes only few other requests.
  private static var laneCount: Int { 64 }
  /// Above this number of addresses, addresses without a connection are dropped. Without this limit, the number would
  /// grow, since a gateway that replaces another gateway may have a new address.
  private static var addressesKept: Int { 64 }

  package let network: PeerNetwork
  let loop: LoopContext
  private let resolver = Resolver()
  private let lanes = (0..<laneCount).map { _ in Notifier() }
  private var lastLane = 0
  private var pools: [SocketAddress: PeerConnections] = [:]
  /// Counts the connections that carry a request, by the client of the request.
  private var inUse: ReservedTotal
  private var lastWait: UInt64 = 0
  private var watches: [ObjectIdentifier: PlaceWatch] = [:]

  package init(_ network: PeerNetwork, loop: LoopContext) {
    self.network = network
    self.loop = loop
    inUse = .connections(network.limits.connections)
  }

  /// Begins to forward a request. Returns nil if there is no memory for the content of the request: the contents of all
  /// waiting requests have used up the limit, or the contents of this client have used up its share.
  ///
  /// - Parameter placement: the place of the session. The exchange follows it until there is a response.
  package func forward(_ request: ForwardedRequest, to placement: SessionPlacement) -> ForwardedExchange? {
    guard network.keep(request.content.count, of: request.client) else { return nil }
    lastLane = (lastLane + 1) & (Self.laneCount - 1)
    let exchange = ForwardedExchange(request, placement, self, lanes[lastLane])
    network.metrics.waiting.add(1)
    loop.spawn(exchange)
    return exchange
  }

  /// The connections to the gateway at `address`; nil if no request can be sent there.
  func connections(with address: SocketAddress) -> PeerConnections? {
    if let pool = pools[address] { return pool }
    if pools.count >= Self.addressesKept { pools = pools.filter { $0.value.isInUse } }
    guard let endpoint = HTTPEndpoint(gatewayAt: address) else { return nil }
    let pool = PeerConnections(endpoint, network, resolver, loop)
    pools[address] = pool
    return pool
  }

  // MARK: Connections

  /// Returns a connection for one request. `release` must be called for it later. Returns nil if there are too many
  /// connections, so that the request must wait.
  func take(from pool: PeerConnections, by user: UInt64 = 0) -> HTTPClient? {
    guard inUse.admits(by: user), pool.hasRoom(for: user) else { return nil }
    begin(in: pool, by: user)
    return client(of: pool)
  }

  /// Makes the request wait until `ForwardedExchange.granted` is called. After that call, the request must either take
  /// its connection of `pool` with `client(of:)`, or call `release` at once. Returns the number of the wait.
  func wait(_ exchange: ForwardedExchange, for pool: PeerConnections, by user: UInt64) -> UInt64 {
    lastWait += 1
    pool.add(PeerConnections.Wait(exchange: exchange, number: lastWait, user: user))
    return lastWait
  }

  /// Returns the connection for a request whose `granted` was called.
  func client(of pool: PeerConnections) -> HTTPClient {
    if let client = pool.takeIdle() { return client }
    // The connections with requests are within the limit, so it suffices to close one idle connection.
    if pools.values.reduce(0, { $0 + $1.open }) > network.limits.connections {
      pools.values.first { $0.hasIdle }?.closeIdle()
    }
    return pool.makeClient()
  }

  /// - Parameter client: the connection of the request; nil if it did not use a connection.
  func release(_ client: HTTPClient?, of pool: PeerConnections, by user: UInt64 = 0) {
    pool.end(client, by: user)
    inUse.remove(by: user)
    grant()
  }

  private func begin(in pool: PeerConnections, by user: UInt64) {
    pool.begin(by: user)
    inUse.add(by: user)
  }

  /// Gives each free connection to a request that waits. Clients get connections in turn. Clients that have reached
  /// their share are skipped.
  private func grant() {
    while inUse.used < inUse.reserve.maximum, let (wait, pool) = nextWait {
      pool.remove(wait)
      begin(in: pool, by: wait.user)
      wait.exchange.granted()
    }
  }

  /// For each peer, one client has the next turn. Of the waits of these clients, this is the wait that began first.
  private var nextWait: (PeerConnections.Wait, PeerConnections)? {
    var first: (wait: PeerConnections.Wait, pool: PeerConnections)?
    for pool in pools.values {
      guard let wait = pool.nextWait(where: { inUse.admits(by: $0) }) else { continue }
      if wait.number < first?.wait.number ?? .max { first = (wait, pool) }
    }
    return first
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
  package var held: Int { watches.count + pools.values.reduce(0) { $0 + $1.inUse.used + $1.waitingCount } }
}

extension ReservedTotal {
  /// A total that allows at most `number` connections. The number includes the reserve, since each connection needs a
  /// descriptor.
  fileprivate static func connections(_ number: Int) -> ReservedTotal {
    ReservedTotal(limit: Reserve(maximum: number).limit)
  }
}

/// Notifies the requests of one loop for one session when the session moves.
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

/// The connections of one loop to one gateway, and the requests that wait for such a connection. Connections are kept
/// for reuse. `Forwarder` limits their number.
final class PeerConnections {
  private let endpoint: HTTPEndpoint
  private let limits: PeerNetwork.Limits
  private let received: ReceivedContents
  private let resolver: Resolver
  private let loop: LoopContext
  /// Connections without a request, the most recently used last.
  private var idle: [HTTPClient] = []
  /// Counts the connections that carry a request, by the client of the request.
  private(set) var inUse: ReservedTotal
  private var waiting = TurnQueue<Wait>()

  struct Wait {
    let exchange: ForwardedExchange
    /// Incremented with each wait on the loop.
    let number: UInt64
    /// The client whose request waits.
    let user: UInt64
  }

  init(_ endpoint: HTTPEndpoint, _ network: PeerNetwork, _ resolver: Resolver, _ loop: LoopContext) {
    self.endpoint = endpoint
    limits = network.limits
    received = network.received
    inUse = .connections(network.limits.connectionsPerPeer)
    self.resolver = resolver
    self.loop = loop
  }

  var isInUse: Bool { inUse.used > 0 || !waiting.isEmpty }
  var waitingCount: Int { waiting.count }
  func hasRoom(for user: UInt64) -> Bool { inUse.admits(by: user) }
  var hasIdle: Bool { idle.contains { $0.isConnected } }
  /// Number of connections that are open or are about to be opened.
  var open: Int { inUse.used + idle.count { $0.isConnected } }
  /// The value of Host.
  var host: String { endpoint.url.hostField }

  func begin(by user: UInt64) { inUse.add(by: user) }

  func end(_ client: HTTPClient?, by user: UInt64) {
    inUse.remove(by: user)
    // The connections that have been idle longest are at the front, and some of them are already closed.
    while let first = idle.first, !first.isConnected { idle.removeFirst() }
    if let client, client.isConnected { idle.append(client) }
  }

  func takeIdle() -> HTTPClient? {
    while let client = idle.popLast() {
      // A connection is not connected any more if its idle timeout has passed.
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

  func add(_ wait: Wait) { waiting.append(wait, by: Self.user(wait.user)) }

  /// The next wait whose client may have one more connection of this loop (`mayHave`), and one more connection to this
  /// gateway.
  func nextWait(where mayHave: (UInt64) -> Bool) -> Wait? {
    waiting.first { mayHave($0.principal) && hasRoom(for: $0.principal) }?.element
  }

  /// Removes a wait, which must be the next wait of its client. The turn of this client ends.
  func remove(_ wait: Wait) { _ = waiting.removeFirst(of: Self.user(wait.user)) }

  /// Removes the wait of a request that has stopped waiting.
  func removeWait(_ number: UInt64, by user: UInt64) {
    waiting.removeAll(of: Self.user(user)) { $0.number == number }
  }

  private static func user(_ client: UInt64) -> TotalUser { TotalUser(principal: client, address: 0) }
}
