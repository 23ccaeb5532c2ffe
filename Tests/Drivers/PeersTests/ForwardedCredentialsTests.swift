import Access
import ByteStreams
import Configuration
import LoopbackSupport
import Metrics
import Outbox
import Sessions
import Testing
import Upstream

@testable import API
@testable import Peers

/// Credentials that end while the client's gateway receives a request for the holder.
@Suite struct ForwardedCredentialsTests {
  private static let token = "token-of-the-client"
  /// The file of tokens, with the digest of `token`.
  private static let file =
    "me sha256:cbee9ddeb19ce1090630bea7229a6a3b2655bae3c9d89140b8b6f669468c50bc scopes=send,receive,call,admin\n"

  private static let operations = [
    ("POST", "/v1/messages", "abc"), ("POST", "/v1/messages?until=written&wait=0", "abc"),
    ("PATCH", "/v1/session", #"{"desired":"down"}"#), ("PUT", "/v1/consumers/new", #"{"share":true}"#),
    ("GET", "/v1/session", "abc"),
  ]

  @Test(arguments: operations, [false, true])
  func aSlowBodyHasNoEffectAtTheHolderAfterItsTokenWasRemoved(
    operation: (method: String, target: String, body: String), isRemoved: Bool
  ) throws {
    let pair = try ForwardingTests.Pair(settings: {
      $0.authentication.certificates = [.init(name: "dns:other", scopes: ["send"])]
    })
    let gateway = pair.follower
    try gateway.use(tokens: Self.file)
    let (method, target, body) = operation
    let client = try gateway.connect()
    client.send(
      "\(method) \(target) HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer \(Self.token)\r\n"
        + "Content-Length: \(body.utf8.count)\r\n\r\n\(body.dropLast())")
    #expect(try eventually { try gateway.onLoop { $0.pendingRequests } == 1 }, "the head was judged")
    if isRemoved { try gateway.use(tokens: "") }
    client.send(String(body.suffix(1)))
    let response = try client.response(to: method)
    if isRemoved {
      #expect(
        response.status == 401 && response.text("detail")?.contains("nothing was done") == true, "\(response.body)")
    } else {
      #expect((200..<300).contains(response.status), "\(response.body)")
    }
    #expect(gateway.network.metrics.attempts.total == (isRemoved ? 0 : 1))
    #expect(try pair.holder.session().consumers.statuses.isEmpty || !isRemoved)
    #expect(pair.holder.metric("drawbridge_messages_accepted_total") == (isRemoved || method != "POST" ? 0 : 1))
  }

  private static let other = "token-of-another-client"

  private func pair(
    _ place: SessionPlace? = nil, limits: (inout PeerNetwork.Limits) -> Void
  ) throws -> (holder: TestGateway, follower: TestGateway, request: (String, String, String?) -> String) {
    let settings: (inout GatewaySettings) -> Void = {
      $0.authentication.certificates = [.init(name: "dns:other", scopes: ["send"])]
    }
    let holder = try TestGateway(settings: settings)
    let follower = try TestGateway(place ?? .at(holder.peerAddress), limits: limits, settings: settings)
    try follower.use(
      tokens: Self.file
        + "other sha256:3c7fbdfc55fbbe1a0348a5a969ea9e46413146ca5e1d0a295e83eddf53293da5 scopes=send,receive,call\n")
    return (
      holder, follower,
      { token, target, body in
        "POST \(target) HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer \(token)\r\n"
          + "Content-Length: \(body?.utf8.count ?? 0)\r\n\r\n\(body ?? "")"
      }
    )
  }

  @Test func onePrincipalCannotUseUpTheMemoryOfForwardedRequests() throws {
    let (holder, follower, request) = try pair(.nowhere) { $0.requestBytes = 640 }
    let clients = try (0..<3).map { _ in try follower.connect() }
    clients[0].send(request(Self.token, "/v1/messages", String(repeating: "m", count: 640)))
    #expect(eventually { follower.network.metrics.bytes.current == 640 })
    let refused = try follower.connect()
    refused.send(request(Self.token, "/v1/messages", "m"))
    #expect(try refused.response().problem == "too-many-bodies")
    clients[1].send(request(Self.other, "/v1/messages", "0123456789"))
    #expect(eventually { follower.network.metrics.bytes.current == 650 })
    refused.send(request(Self.other, "/v1/messages", "m"))
    #expect(try refused.response().problem == "too-many-bodies")
    follower.move(to: .at(holder.peerAddress))
    #expect(try clients[0].response().status == 202 && clients[1].response().status == 202)
    #expect(eventually { follower.network.metrics.bytes.current == 0 })
  }

  @Test func onePrincipalCannotUseUpTheConnectionsBetweenGateways() throws {
    // With one peer, one principal may use 12 of the connections. One further connection remains for other principals.
    let (holder, follower, request) = try pair { ($0.connections, $0.patience) = (18, .seconds(30)) }
    let first = try follower.connect()
    first.send(request(Self.token, "/v1/messages", "m"))
    #expect(try first.response().status == 202)
    let clients = try (0..<14).map { _ in try follower.connect() }
    for client in clients { client.send(request(Self.token, "/v1/messages?until=confirmed&wait=30s", "m")) }
    #expect(eventually { holder.metric("drawbridge_messages_accepted_total") == 13 })
    let light = try follower.connect()
    light.send(request(Self.other, "/v1/messages", "m"))
    #expect(try light.response().status == 202)
    #expect(holder.metric("drawbridge_messages_accepted_total") == 14, "two of the first one wait for a connection")
    for client in clients { client.close() }
    #expect(try eventually { try follower.isIdle() })
  }

  /// The first principal has more connections than its share, and waits for more. All other principals together can
  /// open one more connection.
  @Test func aClientBelowItsShareDoesNotWaitBehindAClientAboveIt() throws {
    let (holder, follower, request) = try pair { ($0.connections, $0.patience) = (18, .seconds(30)) }
    let third = "token-of-a-third-client"
    try follower.use(
      tokens: Self.file
        + "other sha256:3c7fbdfc55fbbe1a0348a5a969ea9e46413146ca5e1d0a295e83eddf53293da5 scopes=send\n"
        + "third sha256:c969e19b87f993c0fc7d43371fcab2b3fa230ba954ceafeb8c897b57f2070394 scopes=send\n")
    let first = try follower.connect()
    first.send(request(Self.token, "/v1/messages", "m"))
    #expect(try first.response().status == 202)
    let waiting = "/v1/messages?until=confirmed&wait=30s"
    let heavy = try (0..<14).map { _ in try follower.connect() }
    for client in heavy { client.send(request(Self.token, waiting, "m")) }
    #expect(eventually { holder.metric("drawbridge_messages_accepted_total") == 13 })
    let light = try follower.connect()
    light.send(request(Self.other, waiting, "m"))
    #expect(eventually { holder.metric("drawbridge_messages_accepted_total") == 14 })
    let last = try follower.connect()
    last.send(request(third, "/v1/messages", "m"))
    #expect(eventually { follower.network.metrics.waiting.current == 16 })
    light.close()
    #expect(try last.response().status == 202)
    #expect(follower.network.metrics.waiting.current >= 14, "no request of the first one has ended")
    #expect(holder.metric("drawbridge_messages_accepted_total") == 15, "two of the first one wait for a connection")
    for client in heavy { client.close() }
    #expect(try eventually { try follower.isIdle() })
  }

  /// The holder counts queued messages per client, also for clients of the other gateway.
  @Test func onePrincipalCannotUseUpTheQueueThroughAnotherGateway() throws {
    let pair = try ForwardingTests.Pair(settings: {
      $0.authentication.certificates = [.init(name: "dns:other", scopes: ["send"])]
      $0.session.upstream.outbox.maximumMessages = 16
    })
    let other = Self.other
    try pair.follower.use(
      tokens: Self.file
        + "other sha256:3c7fbdfc55fbbe1a0348a5a969ea9e46413146ca5e1d0a295e83eddf53293da5 scopes=send\n")
    func post(_ token: String) throws -> Int {
      try pair.follower.request("POST", "/v1/messages", "Authorization: Bearer \(token)\r\n", "m").status
    }
    for _ in 0..<16 { #expect(try post(Self.token) == 202) }
    #expect(try [post(Self.token), post(other), post(other)] == [503, 202, 503])
  }
}
