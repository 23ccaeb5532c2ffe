import ByteStreams
import HTTPCodec
import TestSupport
import Testing

@testable import WebSocketCodec

@Suite struct UpgradeRequestTests {
  @Test func writesEveryFieldOfTheRequest() {
    var generator = SeededGenerator(seed: 3)
    var request = ClientHandshake.Request(target: "/feed?x=1", host: "example.org:8443")
    request.subprotocols = ["v2.feed", "v1.feed"]
    request.compression = CompressionOffer()
    request.fields = [("Origin", "https://example.org"), ("Cookie", "a=b; c=d"), ("Authorization", "Basic YTpi")]
    let handshake = ClientHandshake(request, using: &generator)
    var output = ByteQueue()
    handshake.write(into: &output)
    let lines = output.bytes.text().split(separator: "\r\n", omittingEmptySubsequences: false).map(String.init)
    #expect(lines[0] == "GET /feed?x=1 HTTP/1.1")
    #expect(lines[1] == "Host: example.org:8443")
    #expect(lines.contains("Upgrade: websocket"))
    #expect(lines.contains("Connection: Upgrade"))
    #expect(lines.contains("Sec-WebSocket-Version: 13"))
    #expect(lines.contains("Sec-WebSocket-Protocol: v2.feed, v1.feed"))
    #expect(lines.contains("Sec-WebSocket-Extensions: permessage-deflate; client_max_window_bits=12"))
    #expect(lines.contains("Cookie: a=b; c=d"))
    #expect(lines.contains("Authorization: Basic YTpi"))
    #expect(lines.suffix(2) == ["", ""])
    let key = lines.first { $0.hasPrefix("Sec-WebSocket-Key: ") }
    #expect(key?.utf8.count == "Sec-WebSocket-Key: ".utf8.count + 24)
  }

  @Test func neverUsesAKeyTwice() {
    var generator = SeededGenerator(seed: 3)
    var keys: Set<String> = []
    for _ in 0..<100 {
      let handshake = ClientHandshake(.init(target: "/", host: "h"), using: &generator)
      var output = ByteQueue()
      handshake.write(into: &output)
      keys.insert(output.bytes.text())
    }
    #expect(keys.count == 100)
  }

  /// Attack: a secret from a file contains a line end, by accident or on purpose, and injects fields or a second
  /// request.
  @Test func refusesFieldsThatMakeTheRequestInvalid() {
    func problem(_ change: (inout ClientHandshake.Request) -> Void) -> String? {
      var request = ClientHandshake.Request(target: "/", host: "example.org")
      change(&request)
      return request.problem
    }
    #expect(problem { _ in } == nil)
    #expect(problem { $0.host = "[::1]:80" } == nil)
    #expect(problem { $0.fields = [("X-Token", "a\tb ü")] } == nil)
    #expect(problem { $0.target = "feed" } != nil)
    #expect(problem { $0.target = "/a b" } != nil)
    #expect(problem { $0.target = "/\r\nX: y" } != nil)
    #expect(problem { $0.target = "/ü" } != nil)
    #expect(problem { $0.target = "/#part" } != nil)
    #expect(problem { $0.host = "" } != nil)
    #expect(problem { $0.host = "user@example.org" } != nil)
    #expect(problem { $0.fields = [("X-Token", "secret\n")] } != nil)
    #expect(problem { $0.fields = [("X-Token", "a\r\nY: b")] } != nil)
    #expect(problem { $0.fields = [("X Token", "a")] } != nil)
    #expect(problem { $0.fields = [("Sec-WebSocket-Key", "a")] } != nil)
    #expect(problem { $0.subprotocols = ["a b"] } != nil)
    #expect(problem { $0.subprotocols = ["a", "a"] } != nil)
  }
}

@Suite struct ServerHandshakeTests {
  /// The client accepts the server's agreement, and both interpret it in the same way.
  @Test(arguments: [false, true], [nil, 9, 10, 15])
  func acceptsTheRequestsOfOurOwnClient(resets: Bool, serverWindowBits: Int?) throws {
    var generator = SeededGenerator(seed: 5)
    var request = ClientHandshake.Request(target: "/", host: "h")
    var offer = CompressionOffer()
    offer.serverResets = resets
    offer.clientResets = resets
    offer.serverWindowBits = serverWindowBits
    request.compression = offer
    var client = ClientHandshake(request, using: &generator)
    var wire = ByteQueue()
    client.write(into: &wire)

    var server = HTTPServerConnection()
    server.receive(wire.bytes)
    #expect(try server.nextEvent() == .head)
    let key = try ServerHandshake.validate(server.request)
    let extensions = server.request.fields.first(.secWebSocketExtensions)?.text()
    var response = ByteQueue()
    let theirs = try #require(ServerHandshake.accept(key: key, extensions: extensions, into: &response))
    guard case .accepted(let agreement)? = try client.receive(&response) else {
      Issue.record("not accepted")
      return
    }
    let ours = try #require(agreement.compression)
    #expect(ours.inboundResets == resets && theirs.outboundResets == resets)
    #expect(ours.outboundResets == resets && theirs.inboundResets == resets)
    #expect(ours.inboundWindowBits == theirs.outboundWindowBits)
    #expect(ours.inboundWindowBits == serverWindowBits ?? 15)
    #expect(ours.outboundWindowBits == 12 && theirs.inboundWindowBits == 12)
  }

  @Test(arguments: [
    ("permessage-deflate; server_no_context_takeover=abc", false),
    ("permessage-deflate; server_max_window_bits=8", false),
    ("permessage-deflate; server_max_window_bits=8, permessage-deflate", true),
    ("permessage-deflate; client_max_window_bits; client_max_window_bits", false),
    ("x-other, permessage-deflate", true),
    ("x-other", false),
  ])
  func acceptsTheFirstOfferThatItSupports(offers: String, isMet: Bool) {
    var response = ByteQueue()
    let settings = ServerHandshake.accept(key: "dGhlIHNhbXBsZSBub25jZQ==", extensions: offers, into: &response)
    #expect((settings != nil) == isMet)
  }

  @Test(arguments: [
    ("POST", "Upgrade: websocket\r\n", ServerHandshake.Refusal.notGet),
    ("GET", "", .noUpgrade),
    ("GET", "Upgrade: websocket\r\n", .badVersion),
    ("GET", "Upgrade: websocket\r\nSec-WebSocket-Version: 8\r\n", .badVersion),
    ("GET", "Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\n", .badKey),
    ("GET", "Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: short\r\n", .badKey),
  ])
  func refusesARequestThatIsNotAnUpgrade(method: String, fields: String, refusal: ServerHandshake.Refusal) throws {
    var server = HTTPServerConnection()
    let text =
      "\(method) / HTTP/1.1\r\nHost: h\r\nContent-Length: 0\r\nConnection: keep-alive, Upgrade\r\n\(fields)\r\n"
    server.receive(Array(text.utf8).span)
    #expect(try server.nextEvent() == .head)
    #expect(throws: refusal) { try ServerHandshake.validate(server.request) }
  }
}
