import Access
import ByteStreams
import Configuration
import Dialing
import Foundation
import Host
import Inbox
import Journal
import Logging
import LoopbackSupport
import Metrics
import Reactor
import RedisStore
import Synchronization
import Testing
import Upstream
import WebSocketCodec

@testable import API
@testable import HTTPServer
@testable import Peers
@testable import Sessions

/// The parts of a gateway that serve requests, on a loop of its own, with listeners for clients and for other gateways.
/// Its sessions cannot connect to an upstream.
final class TestGateway {
  static let secret = String(repeating: "s3cret-", count: 6)

  let sessions: SessionDirectory
  let registry = MetricsRegistry()
  let network: PeerNetwork
  let clientAddress: SocketAddress
  let peerAddress: SocketAddress
  let id = String(UInt64.random(in: 0...UInt64.max), radix: 16)
  /// The slot of the default session, and the object that manages the slot. Both are nil unless gateways share the
  /// session.
  let slot: SharedSlot?
  let shared: SharedSessions?
  private let access: AccessState
  private let journal: SharedJournal?
  private let loop: EventLoop
  private let server: HTTPServer

  /// - Parameters:
  ///   - isShared: whether the only session is in a slot.
  ///   - place: the holder of the sessions; nil if it is this gateway.
  ///   - startsSessions: whether messages expire.
  ///   - journal: the journal of the default session.
  ///   - common: the journal of the default session, if another gateway is its holder at the start.
  ///   - peerConnections: maximum number of connections of other gateways.
  ///   - forwardedIDs: maximum number of remembered ids of forwarded requests.
  ///   - log: the descriptor for warnings of forwarded requests.
  ///   - endpoints: the operations of the API.
  ///   - limits: the limits of forwarded requests.
  init(
    _ place: SessionPlace? = nil, isShared: Bool = false, startsSessions: Bool = false, journal: SharedJournal? = nil,
    sharing common: SharedJournal? = nil, peerConnections: Int = 1_000, log: Int32? = nil,
    forwardedIDs: Int = CommonState.forwardedIDs,
    endpoints: [any Endpoint.Type] = API.endpoints,
    limits: (inout PeerNetwork.Limits) -> Void = { _ in },
    settings change: (inout GatewaySettings) -> Void = { _ in }
  ) throws {
    var settings = GatewaySettings()
    settings.session.upstream.url = try WebSocketURL("ws://127.0.0.1:1/")
    if journal != nil || common != nil { settings.store.engine = .sqlite }
    change(&settings)
    let logger = Logger(level: .error, format: .json)
    let upstream = try PreparedSettings(settings.session.upstream)
    let registry = registry
    self.journal = common
    if isShared || common != nil {
      let slot = SharedSlot(
        SharedSlot.Plan(
          "default", upstream, retention: Retention(), logger: logger, attemptLimiter: ConcurrentAttemptLimiter()),
        metrics: registry)
      (self.slot, shared) = (slot, SharedSessions([slot]))
      sessions = SessionDirectory(
        configured: [.shared(slot)], logger: logger, registry: registry, attemptLimiter: ConcurrentAttemptLimiter())
    } else {
      (slot, shared) = (nil, nil)
      sessions = SessionDirectory(
        ["default", "market"].map {
          Session(
            $0, upstream, retention: Retention(), logger: logger, metrics: registry,
            attemptLimiter: ConcurrentAttemptLimiter(), opened: $0 == "default" ? journal?.open() : nil)
        }, logger: logger, registry: registry, attemptLimiter: ConcurrentAttemptLimiter())
    }
    if let place { for session in sessions.all { session.move(to: place) } }
    loop = try EventLoop(index: 0)
    let clients = try BoundListener(.ipv4(0x7F00_0001, port: 0), loops: 1)
    let peers = try BoundListener(.ipv4(0x7F00_0001, port: 0), loops: 1)
    (clientAddress, peerAddress) = (clients.address, peers.address)
    var peerLimits = PeerNetwork.Limits()
    limits(&peerLimits)
    network = PeerNetwork(
      address: peers.address, limits: peerLimits,
      logger: log.map { Logger(level: .warning, format: .json, output: $0) }, registry)
    network.use(secret: Self.secret)
    let httpMetrics = HTTPServerMetrics(registry)
    server = HTTPServer(
      settings.http, HTTPServer.ConnectionLimits(clients: 1_000, management: 10, peers: peerConnections),
      logger: logger,
      metrics: httpMetrics)
    access = AccessState(settings.authentication, Credentials(tokens: nil, jwt: nil), openManagement: [], registry)
    let api = CommonState(
      settings.api, http: settings.http, store: settings.store, lease: settings.sharedStore.lease, access: access,
      sessions: sessions, lifecycle: Lifecycle(), registry: registry, managementConnections: 10,
      openConnections: httpMetrics.openConnections, version: "1.2.3",
      gateway: GatewayIdentity(id: id, address: peers.address.description), forwardedIDs: forwardedIDs)
    server.start(clients: [clients], management: [], peers: [peers], on: [loop]) { [network] loop in
      API(api, loopIndex: 0, forwarder: Forwarder(network, loop: loop), endpoints: endpoints)
    }
    if startsSessions { sessions.start(on: [loop]) }
  }

  deinit {
    loop.stop()
    loop.join()
  }

  func session(_ name: String = "default") throws -> Session { try #require(sessions.all.first { $0.name == name }) }

  /// Reads the file of tokens.
  func use(tokens file: String) throws {
    let tokens = try TokenTable(Array(file.utf8), sharingGrantsOf: access.credentials.tokens)
    access.use(Credentials(tokens: tokens, jwt: nil, replacing: access.credentials))
  }

  func move(to place: SessionPlace) { for session in sessions.all { session.move(to: place) } }

  /// Makes this gateway the holder of the shared session.
  ///
  /// - Parameter permission: until when it may write; nil for no limit.
  func becomeHolder(while permission: WritePermission? = nil) {
    if let journal { shared?.becomeHolder(of: "default", journal.open(), permission) }
  }

  /// Makes this gateway lose the shared session.
  func lose() {
    journal?.end()
    shared?.lose("default")
  }

  /// Appends a push of the upstream to the session, and stores it.
  func push(_ text: String) throws {
    let session = try session()
    session.inbox.append(
      Array(text.utf8).span, kind: .text, time: ProcessInformation.wallClockMilliseconds(),
      now: ProcessInformation.monotonicTime())
    session.journalChanged()
  }

  func locate(at address: SocketAddress?, _ status: HolderStatus? = nil) {
    shared?.locate("default", at: address, status)
  }

  func drain() { server.drain([loop], releasingOver: .zero) {} }

  /// Returns the sum of the series of a metric whose lines begin with `name`.
  func metric(_ name: String) -> Int {
    var page = ByteQueue()
    registry.render(into: &page)
    return page.bytes.text().split(separator: "\n").reduce(0) { sum, line in
      guard line.hasPrefix(name), let value = line.split(separator: " ").last.flatMap({ Double($0) }) else {
        return sum
      }
      return sum + Int(value)
    }
  }

  /// Returns a fact that is read on the loop's thread.
  func onLoop<Fact: Sendable>(_ fact: @escaping @Sendable (API) -> Fact) throws -> Fact {
    let done = DispatchSemaphore(value: 0)
    let result = Mutex<Fact?>(nil)
    loop.submit { context in
      let found = ((context.userObject as? HTTPWorker)?.application as? API).map(fact)
      result.withLock { $0 = found }
      done.signal()
      return nil
    }
    done.wait()
    return try #require(result.withLock { $0 })
  }

  /// Whether all requests have ended without leaving any state.
  func isIdle() throws -> Bool {
    try onLoop { $0.pendingRequests + ($0.forwarder?.held ?? 0) } == 0 && network.metrics.waiting.current == 0
  }

  func connect() throws -> LoopbackClient { try LoopbackClient(to: clientAddress) }

  func connectAsPeer() throws -> LoopbackClient { try LoopbackClient(to: peerAddress) }

  /// Sends one request on its own connection.
  func request(_ method: String, _ target: String, _ fields: String = "", _ body: String? = nil) throws
    -> ReceivedResponse
  {
    let client = try connect()
    client.send(method, target, fields, body)
    return try client.response(to: method)
  }

  /// Returns a request as another gateway sends it.
  static func forwarded(
    _ method: String, _ target: String, id: String = String(repeating: "0", count: 32), fields: String = "",
    body: String? = nil
  ) -> String {
    var text = "\(method) \(target) HTTP/1.1\r\nHost: localhost\r\nAuthorization: Drawbridge \(secret)\r\n"
    text += "drawbridge-client: ;15;Kg==;Kg==;;4:7f000001\r\ndrawbridge-forwarded: \(id)\r\n\(fields)"
    if let body { text += "Content-Length: \(body.utf8.count)\r\n" }
    return text + "\r\n" + (body ?? "")
  }
}

/// A response as a client has received it.
struct ReceivedResponse {
  let status: Int
  let fields: [(name: String, value: String)]
  let body: String

  func all(_ name: String) -> [String] { fields.filter { $0.name.lowercased() == name.lowercased() }.map(\.value) }
  func field(_ name: String) -> String? { all(name).first }

  var json: [String: Any] {
    (try? JSONSerialization.jsonObject(with: Data(body.utf8))) as? [String: Any] ?? [:]
  }

  func text(_ member: String) -> String? { json[member] as? String }
  var problem: String? { text("type").map { String($0.dropFirst("/errors/".count)) } }
}

extension LoopbackClient {
  func send(_ method: String, _ target: String, _ fields: String = "", _ body: String? = nil) {
    let length =
      body.map { "Content-Length: \($0.utf8.count)\r\n" } ?? (method == "POST" ? "Content-Length: 0\r\n" : "")
    send("\(method) \(target) HTTP/1.1\r\nHost: localhost\r\n\(fields)\(length)\r\n\(body ?? "")")
  }

  func response(to method: String = "GET") throws -> ReceivedResponse {
    guard let (head, body) = readMessage(hasContent: method != "HEAD") else { throw Failed() }
    let lines = head.components(separatedBy: "\r\n")
    if lines[0].hasPrefix("HTTP/1.1 100") { return try response(to: method) }
    let fields = lines.dropFirst().filter { !$0.isEmpty }.map { line in
      let parts = line.split(separator: ":", maxSplits: 1)
      return (name: String(parts[0]), value: parts[1].trimmingCharacters(in: .whitespaces))
    }
    return ReceivedResponse(status: Int(lines[0].split(separator: " ")[1]) ?? 0, fields: fields, body: body)
  }
}
