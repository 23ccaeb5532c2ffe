import Access
import ByteStreams
import Configuration
import Foundation
import Forwarding
import HTTPCodec
import HTTPServer
import Host
import Inbox
import Logging
import LoopbackSupport
import Metrics
import Reactor
import Testing
import Upstream
import WebSocketCodec

@testable import API
@testable import Peers
@testable import Sessions

/// Two gateways: one is the holder of the sessions, and the other forwards requests to it.
@Suite struct ForwardingTests {
  /// A holder, and a gateway that knows it.
  struct Pair {
    let holder: TestGateway
    let follower: TestGateway

    init(
      startsSessions: Bool = false, limits: (inout PeerNetwork.Limits) -> Void = { _ in },
      settings: (inout GatewaySettings) -> Void = { _ in }
    ) throws {
      holder = try TestGateway(startsSessions: startsSessions, limits: limits, settings: settings)
      follower = try TestGateway(.at(holder.peerAddress), limits: limits, settings: settings)
    }
  }

  // MARK: Routes

  struct Request {
    let method: String
    let target: String
    var fields = ""
    var body: String?

    init(_ method: String, _ target: String, _ fields: String = "", _ body: String? = nil) {
      (self.method, self.target, self.fields, self.body) = (method, target, fields, body)
    }
  }

  /// A request for every route of a session, and requests with errors.
  static let requests = [
    Request("GET", "/v1/session"), Request("HEAD", "/v1/session"), Request("GET", "/v1/session?x=1"),
    Request("GET", "/v1/sessions/market", "Accept: text/html\r\n"),
    Request("POST", "/v1/messages", "", "one"), Request("POST", "/v1/messages", "Topic: a\r\nTTL: 60\r\n", "two"),
    Request("POST", "/v1/messages?until=written&wait=0", "", "x"), Request("POST", "/v1/messages", "TTL: 0\r\n", "x"),
    Request("POST", "/v1/messages", "Content-Type: application/x-ndjson\r\n", "1\n2\n3\n"),
    Request("POST", "/v1/messages", "Content-Type: text/plain\r\n", "caf\u{E9}"),
    Request("POST", "/v1/messages", "Content-Type: multipart/form-data\r\n", "x"),
    Request("POST", "/v1/messages", "Idempotency-Key: k\r\n", "keyed"),
    Request("POST", "/v1/messages", "Idempotency-Key: k\r\n", "keyed"),
    Request("POST", "/v1/messages", "Idempotency-Key: k\r\n", "other"),
    Request("POST", "/v1/sessions/market/messages", "", "x"), Request("POST", "/v1/call?wait=0", "", "{}"),
    Request("GET", "/v1/deliveries/nothing"), Request("DELETE", "/v1/deliveries/nothing"),
    Request("PATCH", "/v1/session", "", #"{"desired":"down"}"#), Request("PATCH", "/v1/session", "", "{"),
    Request("PATCH", "/v1/session", "", #"{"desired":"up"}"#), Request("DELETE", "/v1/sessions/market"),
    Request("PUT", "/v1/sessions/market", "", #"{"profile":"p"}"#),
    Request("PUT", "/v1/consumers/c", "", #"{"share":true}"#), Request("GET", "/v1/consumers"),
    Request("GET", "/v1/consumers/c"), Request("HEAD", "/v1/consumers/c"), Request("GET", "/v1/consumers/none"),
    Request("POST", "/v1/consumers/c/receive?wait=0"), Request("POST", "/v1/consumers/c/receive?wait=x"),
    Request("POST", "/v1/consumers/c/settle", "", #"{"ack":["l-1.1.0123456789abcdef"]}"#),
    Request("GET", "/v1/consumers/c/dead"), Request("POST", "/v1/consumers/c/dead/retry"),
    Request("DELETE", "/v1/consumers/c/dead"), Request("DELETE", "/v1/consumers/c"),
    Request("DELETE", "/v1/consumers/c"),
  ]

  /// `POST /v1/echo/{word}`, which only the holder of the session executes.
  enum Echo: ImmediateEndpoint {
    static var route: Route {
      Route(
        method: .post, path: "/v1/echo/{word}", sessionPath: "/v1/sessions/{name}/echo/{word}", scope: .send,
        place: .holder(HolderRules(repetition: .harmful, wait: .always)))
    }

    static func read(
      _ head: borrowing HTTPRequestHead, _ word: Span<UInt8>, of request: ReceivedRequest, _ api: API
    ) -> String { word.text() }

    static func respond(_ word: String, to request: ReceivedRequest, _ turn: Turn, into response: inout Response) {
      response.begin(.ok, .plainText)
      response.content.text.append("\(word) at \(request.isFromPeer ? "the holder" : "this gateway")\n")
    }
  }

  @Test func aRouteThatATestAddsIsForwardedByItsRow() throws {
    let holder = try TestGateway(endpoints: API.endpoints + [Echo.self])
    let follower = try TestGateway(.at(holder.peerAddress), endpoints: API.endpoints + [Echo.self])
    #expect(try holder.request("POST", "/v1/echo/a").body == "a at this gateway\n")
    #expect(try follower.request("POST", "/v1/sessions/market/echo/%61").body == "a at the holder\n")
    #expect(try follower.request("POST", "/v1/echo/a?x=1").problem == "invalid-parameter")
  }

  @Test func everyRouteRespondsThroughAnotherGatewayAsWithoutIt() throws {
    let (pair, alone) = (try Pair(), try TestGateway())
    for request in Self.requests {
      let expected = try alone.request(request.method, request.target, request.fields, request.body)
      let response = try pair.follower.request(request.method, request.target, request.fields, request.body)
      let name = "\(request.method) \(request.target) \(request.fields)"
      #expect(response.status == expected.status, "\(name): \(response.body) instead of \(expected.body)")
      #expect(response.problem == expected.problem && response.text("detail") == expected.text("detail"), "\(name)")
      let names = Set(response.fields.map { $0.name.lowercased() })
      #expect(names == Set(expected.fields.map { $0.name.lowercased() }), "\(name)")
      for field in ["Content-Type", "Retry-After", "Allow", "Vary", "Idempotency-Replayed", "TTL"] {
        #expect(response.all(field) == expected.all(field), "\(name): \(field)")
      }
      #expect(response.body.isEmpty == expected.body.isEmpty, "\(name)")
      #expect(response.json.keys.sorted() == expected.json.keys.sorted(), "\(name): \(response.body)")
    }
    // The client's gateway itself handles a path that lacks parameters, the methods of a delivery, and a DELETE of a
    // session.
    #expect(pair.follower.network.metrics.responses.total == UInt64(Self.requests.count - 3))
    #expect(
      pair.holder.metric("drawbridge_messages_accepted_total") == alone.metric("drawbridge_messages_accepted_total"))
    #expect(pair.follower.metric("drawbridge_messages_accepted_total") == 0)
    #expect(try eventually { try pair.follower.isIdle() && pair.holder.isIdle() })
  }

  @Test func theIdOfAForwardedMessageIdentifiesItsDelivery() throws {
    let pair = try Pair()
    let sent = try pair.follower.request("POST", "/v1/messages", "", "x")
    let path = try #require(sent.field("Location"))
    let delivery = try pair.follower.request("GET", path)
    #expect(delivery.status == 200 && delivery.text("state") == "queued" && delivery.text("id") == sent.text("id"))
    #expect(try pair.holder.request("GET", path).body == delivery.body)
  }

  @Test func pollsAndDocumentsAreNotForwarded() throws {
    let pair = try Pair()
    pair.follower.move(to: .nowhere)
    for target in ["/v1/messages?wait=0", "/v1/messages?last=1&wait=0", "/v1/sessions", "/openapi.yaml"] {
      #expect(try pair.follower.request("GET", target).status < 300, "\(target)")
    }
    #expect(try pair.follower.request("OPTIONS", "/v1/call").status == 204)
    #expect(pair.follower.network.metrics.attempts.total == 0)
  }

  // MARK: Connections

  /// A request that arrives while the holder closes the connection has an unknown outcome. The holder thus keeps idle
  /// connections of gateways open. The client's connection became idle later, so its end shows that the timeout has
  /// passed for both.
  @Test(arguments: [false, true]) func idleConnectionsOfOtherGatewaysAreKept(whileDraining: Bool) throws {
    let holder = try TestGateway(settings: { if !whileDraining { $0.http.idleTimeout = .milliseconds(50) } })
    let (peer, client) = (try holder.connectAsPeer(), try holder.connect())
    peer.send(TestGateway.forwarded("GET", "/v1/session"))
    #expect(try peer.response().status == 200)
    client.send("GET", "/v1/session")
    #expect(try client.response().status == 200)
    if whileDraining { holder.drain() }
    #expect(client.readToEnd().isEmpty)
    #expect(!peer.isReadable)
    peer.send(TestGateway.forwarded("GET", "/v1/session"))
    #expect(try peer.response().status == 200)
  }

  // MARK: What is forwarded

  private static func respond(_ body: String = "{}", _ fields: String = "") -> String {
    "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\(fields)Content-Length: \(body.utf8.count)\r\n\r\n\(body)"
  }

  @Test func onlyMeaningfulFieldsAreForwarded() throws {
    let echo = try echo()
    defer { echo.stop() }
    let follower = try TestGateway(.at(echo.address))
    let response = try follower.request(
      "POST", "/v1/sessions/market/messages?until=written",
      "X-Request-Id: mine\r\nTraceparent: 00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01\r\nTopic: t\r\n"
        + "X-Other: x\r\nCookie: a=b\r\nDrawbridge-Client: ;15;Kg==;Kg==;;local\r\nDrawbridge-Forwarded: x\r\n",
      "content")
    #expect(response.status == 200)
    let head = try #require(echo.requests.first)
    let lines = Set(head.lowercased().components(separatedBy: "\r\n").filter { !$0.isEmpty })
    #expect(lines.contains("post /v1/sessions/market/messages?until=written http/1.1"))
    for line in [
      "x-request-id: mine", "topic: t", "content-length: 7", "authorization: drawbridge \(TestGateway.secret)",
    ] {
      #expect(lines.contains(line), "\(line): \(head)")
    }
    #expect(lines.contains { $0.hasPrefix("traceparent: 00-0af7651916cd43dd8448eb211c80319c") })
    #expect(!lines.contains { $0.hasPrefix("x-other") || $0.hasPrefix("cookie") })
    #expect(lines.filter { $0.hasPrefix("drawbridge-client:") }.count == 1)
    #expect(lines.contains("drawbridge-client: ;15;kg==;kg==;;4:7f000001"), "\(head)")
    let ids = lines.filter { $0.hasPrefix("drawbridge-forwarded: ") }
    #expect(ids.count == 1 && ids.allSatisfy { $0.count == "drawbridge-forwarded: ".count + 32 })
  }

  /// A peer that responds to every request with 200.
  private func echo() throws -> ScriptedPeer {
    let holder = Holder()
    let peer = try ScriptedPeer { client in
      while let (head, _) = client.readMessage() {
        holder.peer?.note(head)
        client.send(
          Self.respond("{}", "X-Request-Id: other\r\nConnection: keep-alive, X-Hop\r\nX-Hop: 1\r\nX-End: 2\r\n"))
      }
    }
    holder.peer = peer
    return peer
  }

  /// A box through which the steps of a peer refer to that peer.
  private final class Holder: @unchecked Sendable { var peer: ScriptedPeer? }

  @Test func connectionFieldsAreNotForwarded() throws {
    let echo = try echo()
    defer { echo.stop() }
    let follower = try TestGateway(.at(echo.address), settings: { $0.api.origins = ["https://app.example"] })
    let response = try follower.request("GET", "/v1/session", "Origin: https://app.example\r\n")
    #expect(response.field("X-Hop") == nil && response.field("X-End") == "2")
    #expect(response.all("Content-Length") == ["2"] && response.all("Date").count == 1)
    #expect(response.all("Access-Control-Allow-Origin") == ["https://app.example"])
    #expect(response.field("X-Request-Id") == nil)
  }

  @Test func theGatewayOfTheClientLimitsTheBody() throws {
    let pair = try Pair(settings: { $0.http.limits.bodyBytes = 100_000 })
    let full = String(repeating: "x", count: 100_000)
    #expect(try pair.follower.request("POST", "/v1/messages", "", full).status == 202)
    let before = pair.follower.network.metrics.attempts.total
    #expect(try pair.follower.request("POST", "/v1/messages", "", full + "x").problem == "content-too-large")
    #expect(pair.follower.network.metrics.attempts.total == before)
    #expect(pair.holder.metric("drawbridge_messages_accepted_total") == 1)
  }

  @Test func theLongestHeadFitsTogetherWithTheFieldsOfTheGateways() throws {
    let pair = try Pair(settings: { $0.http.limits.headBytes = 4 * 1024 })
    let long = "Accept: application/json, " + String(repeating: "text/x, ", count: 480) + "text/y\r\n"
    #expect(try pair.follower.request("GET", "/v1/session", long).status == 200)
  }

  /// A wait that continues at another gateway lasts no longer than the client has requested.
  @Test func theNextGatewayLearnsHowLongTheClientHasWaited() throws {
    let peer = try ScriptedPeer { client in
      let first = client.readMessage()?.head ?? ""
      client.send("HTTP/1.1 421 Misdirected Request\r\nContent-Length: 0\r\n\r\n")
      // After a pause of 100 ms.
      let second = client.readMessage()?.head ?? ""
      client.send(Self.respond("\(first.contains("drawbridge-waited: ")) \(second.contains("drawbridge-waited: 1"))"))
    }
    defer { peer.stop() }
    let follower = try TestGateway(.at(peer.address))
    #expect(try follower.request("POST", "/v1/consumers/c/receive?wait=9", "").body == "false true")
  }

  @Test func aLargeResponseArrivesWhole() throws {
    let body = #"{"a":""# + String(repeating: "y", count: 3 << 20) + #""}"#
    let peer = try ScriptedPeer { client in
      while client.readMessage() != nil { client.send(Self.respond(body)) }
    }
    defer { peer.stop() }
    let follower = try TestGateway(.at(peer.address))
    #expect(try follower.request("GET", "/v1/session").body == body)
    let small = try TestGateway(.at(peer.address), limits: { $0.responseBytes = 1 << 20 })
    #expect(try small.request("GET", "/v1/session").problem == "holder-unavailable")
    #expect(try small.request("POST", "/v1/call", "", "{}").problem == "outcome-unknown")
    #expect(small.network.metrics.attempts.total == 2)
  }

  /// A push of control characters, which JSON makes six times as long, and the receipts of a batch. Both responses must
  /// leave room for the longest name of a session, 64 bytes.
  @Test func theLargestResponsesFitWithTheSmallestLimit() throws {
    var settings = GatewaySettings()
    settings.session.upstream.url = try WebSocketURL("ws://127.0.0.1:1/")
    settings.http.unsentBytes = 64 << 10
    settings.session.upstream.limits.messageBytes = 256 << 10
    (settings.api.delivery.maximumAnswerBytes, settings.api.delivery.answerBytes) = (64 << 10, 64 << 10)
    (settings.api.delivery.maximumLimit, settings.api.delivery.limit) = (1, 1)
    let bytes = settings.peerResponseBytes
    let pair = try Pair(limits: { $0.responseBytes = bytes })
    #expect(try pair.holder.request("PUT", "/v1/consumers/c", "", #"{"share":true}"#).status == 201)
    let push = String(repeating: "\u{1}", count: 256 << 10)
    try pair.holder.push(push)
    let received = try pair.follower.request("POST", "/v1/consumers/c/receive?limit=1")
    #expect(received.status == 200 && received.body.utf8.count > 6 * (256 << 10))
    #expect(received.body.utf8.count < bytes)
    let lines = String(repeating: "1\n", count: settings.api.batchMessages)
    let batch = try pair.follower.request(
      "POST", "/v1/messages?until=written&wait=0", "Content-Type: application/x-ndjson\r\n", lines)
    #expect(batch.status == 202 && batch.body.utf8.count < settings.api.batchMessages * (384 - 64))
  }

  /// Each response alone is within the limit. The peer withholds the last byte, so that several responses are
  /// incomplete at once.
  @Test func allResponsesTogetherAreLimited() throws {
    let (pipe, mayEnd) = (Pipe(), DispatchSemaphore(value: 0))
    let body = String(repeating: "y", count: 600 << 10)
    let peer = try ScriptedPeer { client in
      if client.readMessage()?.head.contains("/v1/deliveries/") == true {
        return client.send(Self.respond(String(body.prefix(50_000))))
      }
      client.send(String(Self.respond(body).dropLast()))
      mayEnd.wait()
      client.send("y")
      _ = client.readMessage()
    }
    defer { peer.stop() }
    let follower = try TestGateway(
      .at(peer.address), log: pipe.fileHandleForWriting.fileDescriptor, limits: { $0.responseBytes = body.count })
    let received = follower.network.metrics.responseBytes
    let first = try follower.connect()
    first.send("GET", "/v1/consumers/c")
    #expect(eventually { received.current == body.count - 1 })
    #expect(try follower.request("GET", "/v1/consumers/c").problem == "holder-unavailable")
    #expect(try follower.request("POST", "/v1/call", "", "{}").problem == "outcome-unknown")
    #expect(try follower.request("GET", "/v1/deliveries/small").body.count == 50_000)
    #expect(received.current == body.count - 1)
    for _ in 0..<4 { mayEnd.signal() }
    #expect(try first.response().body == body)
    #expect(eventually { received.current == 0 })
    #expect(try follower.request("GET", "/v1/consumers/c").body == body)
    // The gateway has logged one line, with the reason.
    follower.network.logger?.flush()
    pipe.fileHandleForWriting.closeFile()
    let log = String(decoding: pipe.fileHandleForReading.readDataToEndOfFile(), as: UTF8.self)
    #expect(log.split(separator: "\n").count == 1 && log.contains("together exceed 614400 bytes"), "\(log)")
  }

  @Test func theLogsOfBothGatewaysHaveTheSameId() throws {
    let pair = try Pair()
    let fields = "X-Request-Id: mine\r\nAccept: text/x\r\n"
    #expect(try pair.follower.request("GET", "/v1/session", fields).text("request_id") == "mine")
    // The client's gateway chooses an id if the client has not.
    let ids = try (0..<2).map { _ in try pair.follower.request("GET", "/v1/deliveries/x").text("request_id") }
    #expect(ids[0] != nil && ids[0] != ids[1])
    let alone = try pair.follower.request("GET", "/nowhere").text("request_id")
    #expect(alone?.split(separator: "-").first == ids[0]?.split(separator: "-").first)
  }

  // MARK: Who is admitted

  @Test func onlyGatewaysAreServedOnTheListenerForPeers() throws {
    let gateway = try TestGateway()
    let good = TestGateway.forwarded("GET", "/v1/session")
    for (wrong, status) in [
      (good, 200), (good.replacing("Authorization: Drawbridge \(TestGateway.secret)\r\n", with: ""), 403),
      (good.replacing(TestGateway.secret, with: TestGateway.secret + "x"), 403),
      (good.replacing(TestGateway.secret, with: ""), 403), (good.replacing("Drawbridge s", with: "Bearer s"), 403),
      (good.replacing("drawbridge-client", with: "x"), 400), (good.replacing(";15;", with: ";16;"), 400),
      (good.replacing("drawbridge-forwarded: 00", with: "drawbridge-forwarded: zz"), 400),
      ("GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n", 403), ("GET /openapi.yaml HTTP/1.1\r\nHost: x\r\n\r\n", 403),
    ] {
      let client = try gateway.connectAsPeer()
      client.send(wrong)
      #expect(try client.response().status == status, "\(wrong)")
      // Only connections of gateways stay open after a refusal.
      if status == 403 { #expect(client.readToEnd().isEmpty) }
      client.send(good)
      #expect((try? client.response().status) == (status == 403 ? nil : 200), "\(wrong)")
    }
    #expect(gateway.network.metrics.refused.total == 6)
    // The listener for clients ignores the field.
    let client = try gateway.connect()
    client.send(good.replacing(";15;", with: ";0;"))
    #expect(try client.response().status == 200)
    let other = PeerNetwork(MetricsRegistry())
    let recognises = other.recognises(Array("Drawbridge ".utf8).span) || other.recognises(nil)
    #expect(!recognises)
  }

  @Test func oneAddressCannotUseUpTheConnectionsOfGateways() throws {
    let gateway = try TestGateway(peerConnections: 4)
    let clients = try (0..<4).map { _ in try gateway.connectAsPeer() }
    #expect(eventually { gateway.metric("drawbridge_http_connections_refused_total") == 1 })
    #expect(clients.count == 4)
    #expect(gateway.metric("drawbridge_http_connections ") == 3)
  }

  @Test func aGatewayWithoutTheSecretIsNotServed() throws {
    let (pipe, holder) = (Pipe(), try TestGateway())
    let follower = try TestGateway(
      .at(holder.peerAddress), log: pipe.fileHandleForWriting.fileDescriptor,
      limits: { $0.patience = .milliseconds(300) })
    follower.network.use(secret: String(repeating: "x", count: 40))
    for _ in 0..<2 {
      #expect(try follower.request("POST", "/v1/messages", "", "x").problem == "holder-unavailable")
    }
    #expect(holder.network.metrics.refused.total > 0)
    #expect(holder.metric("drawbridge_messages_accepted_total") == 0)
    // The gateway has logged one line, which names the other gateway.
    follower.network.logger?.flush()
    pipe.fileHandleForWriting.closeFile()
    let log = String(decoding: pipe.fileHandleForReading.readDataToEndOfFile(), as: UTF8.self)
    #expect(log.split(separator: "\n").count == 1 && log.contains("\"address\":\"\(holder.peerAddress)\""), "\(log)")
  }

  @Test func theClientsGatewayCountsRequestsAndTheHolderCountsMessages() throws {
    let pair = try Pair(settings: {
      $0.api.limits.address.requests = RateLimit(4, per: .hours(1))
      $0.api.limits.address.messages = RateLimit(2, per: .hours(1))
    })
    let statuses = try (0..<3).map { _ in try pair.follower.request("POST", "/v1/messages", "", "x") }
    #expect(statuses.map(\.status) == [202, 202, 429])
    #expect(statuses[2].problem == "too-many-requests" && statuses[2].all("RateLimit").count == 1)
    // The holder counts messages, so the response shows the holder's limit and not this gateway's limit.
    let limit = try #require(statuses[2].field("RateLimit"))
    #expect(limit.contains("messages") && limit.contains("r=0") && !limit.contains("requests"), "\(limit)")
    #expect(statuses[2].all("RateLimit-Policy").count == 1)
    #expect(statuses[2].text("detail")?.contains("limit of messages") == true, "\(statuses[2].body)")
    let attempts = pair.follower.network.metrics.attempts.total
    #expect(try pair.follower.request("GET", "/v1/session").status == 200)
    let refused = try pair.follower.request("GET", "/v1/session")
    #expect(refused.status == 429 && refused.text("detail")?.contains("limit of requests") == true)
    #expect(pair.follower.network.metrics.attempts.total == attempts + 1)
    // The holder has counted none of the forwarded requests.
    for _ in 0..<4 { #expect(try pair.holder.request("GET", "/v1/session").status == 200) }
  }

  // MARK: Waiting

  @Test func aHeldReceiveGetsAPushOfTheHolder() throws {
    let pair = try Pair()
    _ = try pair.follower.request("PUT", "/v1/consumers/c", "", #"{"share":true}"#)
    let client = try pair.follower.connect()
    client.send("POST", "/v1/consumers/c/receive?wait=30s")
    #expect(eventually { pair.holder.metric("drawbridge_receives_held") == 1 })
    #expect(!client.isReadable)
    let session = try pair.holder.session()
    session.inbox.append(
      Array("push".utf8).span, kind: .text, time: 0, now: ProcessInformation.monotonicTime())
    session.consumers.pushed()
    let response = try client.response()
    #expect(response.status == 200 && response.body.contains("push"))
  }

  @Test func aRequestOfADisconnectedClientEndsAtTheHolder() throws {
    let pair = try Pair()
    _ = try pair.follower.request("PUT", "/v1/consumers/c", "", #"{"share":true}"#)
    let client = try pair.follower.connect()
    client.send("POST", "/v1/consumers/c/receive?wait=30s")
    #expect(eventually { pair.holder.metric("drawbridge_receives_held") == 1 })
    client.close()
    #expect(eventually { pair.holder.metric("drawbridge_receives_held") == 0 })
    #expect(try eventually { try pair.follower.isIdle() && pair.holder.isIdle() })
    #expect(pair.follower.network.metrics.abandoned.total == 1)
  }

  @Test func aWaitForADeliveryEndsWithItsState() throws {
    let pair = try Pair(startsSessions: true)
    let sent = try pair.follower.request("POST", "/v1/messages?ttl=300ms", "", "x")
    let path = try #require(sent.field("Location"))
    let response = try pair.follower.request("GET", path + "?wait=20s")
    #expect(response.status == 200 && response.text("state") == "expired")
  }

  @Test func aDrainEndsAReceiveAndWaitsForAMessage() throws {
    let pair = try Pair(startsSessions: true)
    _ = try pair.follower.request("PUT", "/v1/consumers/c", "", #"{"share":true}"#)
    let (receive, send) = (try pair.follower.connect(), try pair.follower.connect())
    receive.send("POST", "/v1/consumers/c/receive?wait=30s")
    send.send("POST", "/v1/messages?until=written&wait=20s&ttl=500ms", "", "x")
    #expect(try eventually { try pair.holder.onLoop { $0.pendingRequests } == 2 })
    pair.follower.drain()
    #expect(try receive.response().problem == "holder-unavailable")
    #expect(eventually { pair.holder.metric("drawbridge_receives_held") == 0 })
    let response = try send.response()
    #expect(response.status == 200 && response.text("state") == "expired", "\(response.body)")
  }
}
