import ByteStreams
import Configuration
import HTTPServer
import Inbox
import Profiles
import Sessions
import TLSEngine
import Testing
import Upstream
import UpstreamSession
import WebSocketCodec

@testable import API

/// Sessions that clients create.
@Suite struct SessionRequestTests {
  static let body = #"{"profile":"market","variables":{"symbol":"BTC"}}"#

  /// An API with the profiles `market` and `other`. Their host is an address, so that no name is resolved.
  static func fixture(_ change: (inout GatewaySettings) -> Void = { _ in }) throws -> APIFixture {
    let text = """
      profiles:
        market:
          variables: {symbol: {pattern: "[A-Z]{3,8}"}, depth: {default: 5}}
          addresses: {allow: [127.0.0.1]}
          upstream: {url: "ws://127.0.0.1:1/{symbol}"}
        other:
          variables: {host: {}}
          hosts: ["*"]
          upstream: {url: "ws://{host}/"}
      """
    let settings = try ConfigurationLoader.load(
      file: "f", environment: [:], flags: [], readFile: { _ in Array(text.utf8) }
    ).settings
    return try APIFixture {
      let upstream = $0.session.upstream.url
      $0 = settings
      $0.session.upstream.url = upstream
      change(&$0)
    }
  }

  private func withAPI(
    _ change: (inout GatewaySettings) -> Void = { _ in }, _ body: (APIFixture) throws -> Void
  ) throws {
    let api = try Self.fixture(change)
    let loop = try api.startSessions()
    defer { APIFixture.end(loop) }
    try body(api)
  }

  @Test func aSessionIsCreatedConfirmedAndClosed() throws {
    try withAPI { (api) throws in
      let created = try api.putSession("btc", Self.body)
      #expect(created.status == 201 && created.field("Location") == "/v1/sessions/btc")
      let creation = try #require(created.json["creation"] as? [String: Any])
      #expect(creation["profile"] as? String == "market" && creation["owner"] as? String == "")
      #expect(creation["variables"] as? [String: String] == ["symbol": "BTC", "depth": "5"])
      #expect(try #require(creation["closes_in_seconds"] as? Double) > 500)
      for body in [Self.body, #"{"profile":"market","variables":{"symbol":"BTC","depth":"5"}}"#] {
        #expect(try api.putSession("btc", body).status == 200)
      }
      #expect(try api.respond("GET", "/v1/sessions/btc").text("session") == "btc")
      #expect(try api.respond("GET", "/v1/session").body.contains(#""creation":null"#))
      #expect(try api.post("a", to: "/v1/sessions/btc/messages").status == 202)
      #expect(try api.respond("DELETE", "/v1/sessions/btc?code=4000").status == 204)
      #expect(try api.respond("DELETE", "/v1/sessions/btc").status == 404)
      #expect(try api.respond("GET", "/v1/sessions/btc/messages?wait=0").status == 404)
    }
  }

  @Test func aSessionThatIsCreatedAgainHasItsOwnIdempotencyKeys() throws {
    try withAPI { (api) throws in
      func post() throws -> Received {
        try api.post("a", to: "/v1/sessions/btc/messages", fields: "Idempotency-Key: key\r\n")
      }
      for _ in 0..<2 {
        #expect(try api.putSession("btc", Self.body).status == 201)
        #expect(try post().field("Idempotency-Replayed") == nil)
        #expect(try post().field("Idempotency-Replayed") == "true")
        #expect(try api.respond("DELETE", "/v1/sessions/btc").status == 204)
      }
    }
  }

  @Test func readingMessagesCountsAsUseAndReadingTheStateDoesNot() throws {
    try withAPI { (api) throws in
      #expect(try api.putSession("btc", Self.body).status == 201)
      let session = try api.session("btc")
      for (path, isUse) in [
        ("/messages?wait=0", true), ("/deliveries/\(session.deliveryTerms.prefix)1", true), ("", false),
        ("/consumers", false),
      ] {
        // This use is recent enough that the session does not become idle.
        let before = api.now - .minutes(1)
        session.noteUse(at: before)
        _ = try api.respond("GET", "/v1/sessions/btc\(path)")
        let deadline = try #require(session.idleDeadline(at: api.now))
        #expect(deadline == (isUse ? api.now : before) + .minutes(10), "\(path)")
      }
    }
  }

  @Test(arguments: [
    (#"{"profile":"market","variables":{"symbol":"ETH"}}"#, "other values"),
    (#"{"profile":"market","variables":{"symbol":"BTC","depth":"6"}}"#, "other values"),
    (#"{"profile":"other","variables":{"host":"a.example"}}"#, "has the profile 'market'"),
  ])
  func aPUTOfADifferentSessionIsAConflict(body: String, detail: String) throws {
    try withAPI { (api) throws in
      #expect(try api.putSession("btc", Self.body).status == 201)
      let response = try api.putSession("btc", body)
      #expect(response.problem == "session-conflict" && response.status == 409)
      #expect(response.text("detail")?.contains(detail) == true, "\(response.body)")
    }
  }

  @Test func aConfiguredSessionIsNeitherReplacedNorClosed() throws {
    try withAPI { (api) throws in
      #expect(try api.putSession("default", Self.body).problem == "session-conflict")
      #expect(try api.respond("DELETE", "/v1/sessions/default").problem == "session-conflict")
      for method in ["PUT", "DELETE"] { #expect(try api.respond(method, "/v1/session").status == 405) }
    }
  }

  @Test(arguments: [
    ("", "'profile' is missing"), ("[]", "not a JSON object"), ("{}", "'profile' is missing"),
    (#"{"profile":7}"#, "the name of a profile"), (#"{"profile":"nosuch"}"#, "the profiles are market, other"),
    (#"{"profile":"market"}"#, "variable 'symbol' is missing"),
    (#"{"profile":"market","variables":{"symbol":"btc"}}"#, "does not match the pattern [A-Z]{3,8}"),
    (#"{"profile":"market","variables":{"symbol":"BTC","x":"1"}}"#, "variable 'x' is unknown"),
    (#"{"profile":"market","variables":{"symbol":7}}"#, "an object with strings"),
    (#"{"profile":"market","variables":{"symbol":"BTC","symbol":"BTC"}}"#, "an object with strings"),
    (#"{"profile":"market","url":"ws://a/"}"#, "member 'url' is unknown"),
    (#"{"profile":"other","variables":{"host":"127.0.0.1"}}"#, "the address is loopback"),
    (#"{"profile":"other","variables":{"host":"0x7f000001"}}"#, "the address is loopback"),
    (#"{"profile":"other","variables":{"host":"localhost"}}"#, "this machine"),
    (#"{"profile":"other","variables":{"host":"a@127.0.0.1"}}"#, "letters, digits, dots"),
  ])
  func reportsWhatIsWrongInADocument(body: String, detail: String) throws {
    try withAPI { (api) throws in
      let response = try api.putSession("btc", body)
      #expect(response.problem == "invalid-document" && response.status == 422)
      #expect(response.text("detail")?.contains(detail) == true, "\(response.body)")
      #expect(try api.respond("GET", "/v1/sessions/btc").status == 404)
    }
  }

  @Test(arguments: ["code=1005", "code=999", "code=5000", "code=x", "code=1000&code=1000", "limit=1"])
  func aCloseCodeMustBeAllowedInACloseFrame(query: String) throws {
    try withAPI { (api) throws in
      #expect(try api.putSession("btc", Self.body).status == 201)
      #expect(try api.respond("DELETE", "/v1/sessions/btc?\(query)").problem == "invalid-parameter")
      #expect(try api.respond("GET", "/v1/sessions/btc").status == 200)
    }
  }

  @Test func aNameMustBeAValidSessionName() throws {
    try withAPI { (api) throws in
      for name in [".a", "a%2Fb", String(repeating: "a", count: 65), ""] {
        #expect(try api.putSession(name, Self.body).status == 404, "\(name)")
      }
      #expect(try api.putSession(String(repeating: "a", count: 64), Self.body).status == 201)
    }
  }

  @Test func theListContinuesAfterAName() throws {
    try withAPI { (api) throws in
      for name in ["b", "a", "c"] { _ = try api.putSession(name, Self.body) }
      func page(_ query: String) throws -> String {
        let response = try api.respond("GET", "/v1/sessions\(query)")
        let sessions = try #require(response.json["sessions"] as? [[String: Any]])
        let names = sessions.compactMap { $0["session"] as? String }.joined(separator: " ")
        return try #require(response.json["more"] as? Bool) ? names + " …" : names
      }
      #expect(try page("") == "default a b c")
      #expect(try page("?limit=2") == "default a …")
      #expect(try page("?limit=2&after=default") == "a b …")
      #expect(try page("?limit=2&after=a") == "b c")
      #expect(try page("?after=c") == "")
      #expect(try page("?name=*") == "default a b c")
      #expect(try page("?name=b") == "b")
      #expect(try page("?name=d*&after=default") == "")
      #expect(try page("?name=d*") == "default")
      #expect(try page("?limit=1&ready=false&after=default") == "a …")
      #expect(try page("?ready=true") == "")
      let bad = [
        "limit=0", "limit=10001", "after=", "after=.a", "cursor=a", "name=", "name=.a", "name=**", "name=a*b",
        "name=.*",
        "ready=", "ready=yes",
      ]
      for bad in bad {
        #expect(try api.respond("GET", "/v1/sessions?\(bad)").problem == "invalid-parameter", "\(bad)")
      }
    }
  }

  /// A client without access to the configured session must not learn that there is one.
  @Test func aListIsTheSameWhetherAnotherNameIsConfigured() throws {
    try withAPI(change) { (api) throws in
      #expect(try request(api, "PUT", "/v1/sessions/c1", as: "c", Self.body).status == 201)
      let configured = try request(api, "GET", "/v1/sessions?after=default", as: "c")
      let other = try request(api, "GET", "/v1/sessions?after=defaulu", as: "c")
      #expect(configured.status == 200 && configured.body == other.body)
    }
  }

  @Test func aPageFilledByConfiguredSessionsHasNoOtherSessions() throws {
    try withAPI { (api) throws in
      for name in ["a", "b"] { _ = try api.putSession(name, Self.body) }
      #expect(api.sessions.created.list(after: nil, limit: 0) { _ in true }.isEmpty)
    }
  }

  /// A worker may extend its leases for a long time without receiving anything.
  @Test func settlingCountsAsUse() throws {
    try withAPI { (api) throws in
      var api = api
      #expect(try api.putSession("btc", Self.body).status == 201)
      let (session, idle) = (try api.session("btc"), api.sessions.created.idleLimit)
      api.now = api.now + .minutes(5)
      _ = try api.put("c", #"{"share":true}"#, of: "/v1/sessions/btc")
      #expect(session.idleDeadline(at: api.now) == api.now + idle)
      api.now = api.now + .minutes(5)
      let settled = try api.post(
        #"{"extend":["l-1.1.0123456789abcdef"]}"#, to: "/v1/sessions/btc/consumers/c/settle")
      #expect(settled.status < 500)
      #expect(session.idleDeadline(at: api.now) == api.now + idle, "\(settled.body)")
    }
  }

  @Test(arguments: [
    "/v1/messages", "/v1/session", "/v1/sessions/x", "/v1/sessions/x/messages", "/v1/consumers/c/settle",
  ])
  func theMethodsOfAPathDoNotDependOnSessions(path: String) throws {
    // A request without credentials, like the OPTIONS of a browser.
    let (none, some) = (try APIFixture(sessions: [], change), try APIFixture(change))
    let response = try none.respond("OPTIONS", path)
    #expect(response.status == 204)
    #expect(try response.field("Allow") == some.respond("OPTIONS", path).field("Allow"))
    #expect(try request(none, "GET", "/v1/session", as: "a").status == 404 && none.sessions.all.isEmpty)
  }

  @Test func limitsNameTheirSettings() throws {
    try withAPI({ $0.createdSessions.perOwner = 1 }) { (api) throws in
      #expect(try api.putSession("a", Self.body).status == 201)
      let response = try api.putSession("b", Self.body)
      #expect(response.problem == "too-many-sessions" && response.field("Retry-After") != nil)
      #expect(response.text("detail")?.contains("created_sessions.per_principal") == true)
    }
  }

  @Test func noSessionIsCreatedWhileTheGatewayDrains() throws {
    try withAPI { (api) throws in
      #expect(try api.putSession("a", Self.body).status == 201)
      api.lifecycle.enter(.draining)
      #expect(try api.putSession("b", Self.body).problem == "too-many-sessions")
      #expect(try api.putSession("a", Self.body).status == 200)
    }
  }

  @Test func heldRequestsEndWith410WhenTheSessionIsClosed() throws {
    try withAPI { (api) throws in
      #expect(try api.putSession("btc", Self.body).status == 201)
      _ = try api.put("c", "{}", of: "/v1/sessions/btc")
      let session = try api.session("btc")
      let held = [
        try api.hold("/v1/sessions/btc/messages?wait=20s"),
        try api.hold("/v1/sessions/btc/messages?wait=20s&topic=a"),
        try api.hold("/v1/sessions/btc/consumers/c/receive?wait=20s", "POST"),
      ]
      #expect(held.allSatisfy { !api.advance($0).isReady })
      #expect(try api.respond("DELETE", "/v1/sessions/btc").status == 204)
      for request in held {
        #expect(api.advance(request).isReady)
        #expect(api.finish(request).problem == "session-closed")
      }
      #expect(session.upstream.snapshot().desired == .down)
      #expect(api.api.pendingRequests == 0)
    }
  }

  @Test func aSessionThatClosesBeforeTheContentOfARequestRefusesIt() throws {
    try withAPI { (api) throws in
      for (method, path, status) in [
        ("GET", "deliveries/ID", 200), ("GET", "consumers", 200), ("GET", "consumers/c", 200),
        ("POST", "consumers/c/receive?wait=0", 200), ("POST", "messages", 202),
      ] {
        #expect(try api.putSession("btc", Self.body).status == 201)
        _ = try api.put("c", "{}", of: "/v1/sessions/btc")
        let id = try #require(try api.post("a", to: "/v1/sessions/btc/messages").text("id"))
        let target = "/v1/sessions/btc/\(path.replacing("ID", with: id))"
        let request = Array("\(method) \(target) HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1\r\n\r\nx".utf8)
        let before = try api.send(request).response
        #expect(before.status == status, "\(path)")
        let response = try api.send(request, meanwhile: { _ = try api.respond("DELETE", "/v1/sessions/btc") }).response
        #expect(response.problem == "session-closed", "\(path)")
      }
    }
  }

  @Test func aKeyOfAClosedSessionIsForgotten() throws {
    try withAPI { (api) throws in
      var ids: [String] = []
      for _ in 0..<2 {
        #expect(try api.putSession("btc", Self.body).status == 201)
        let response = try api.post("a", to: "/v1/sessions/btc/messages", fields: "Idempotency-Key: k\r\n")
        ids.append(try #require(response.text("id")))
        #expect(response.status == 202 && response.field("Idempotency-Replayed") == nil)
        #expect(try api.respond("DELETE", "/v1/sessions/btc").status == 204)
      }
      #expect(ids[0] != ids[1])
    }
  }

  private func request(
    _ api: APIFixture, _ method: String, _ path: String, as name: String, _ body: String = ""
  ) throws -> Received {
    let certificate = ClientCertificate(subject: "", dnsNames: [name], uris: [], expiry: .max / 1_000)
    let head = "\(method) \(path) HTTP/1.1\r\nHost: localhost\r\nContent-Length: \(body.utf8.count)\r\n\r\n"
    let client = ClientConnection(.ipv4(0x7F00_0001), certificate: certificate, isSecure: true)
    return try api.send(Array((head + body).utf8), from: client).response
  }

  /// Clients that may only receive or only send, a client whose rights are limited to sessions `c*`, and an operator.
  private func change(_ settings: inout GatewaySettings) {
    settings.authentication.certificates = [
      .init(name: "dns:a", scopes: ["receive"], sessions: ["*"], topics: ["*"]),
      .init(name: "dns:b", scopes: ["send"], sessions: ["*"], topics: ["*"]),
      .init(name: "dns:c", scopes: ["send"], sessions: ["c*"], topics: ["*"]),
      .init(name: "dns:operator", scopes: ["admin"], sessions: ["*"], topics: ["*"]),
    ]
  }

  @Test func aSessionBelongsToTheClientThatCreatedIt() throws {
    try withAPI(change) { (api) throws in
      let path = "/v1/sessions/btc"
      let created = try request(api, "PUT", path, as: "a", Self.body)
      #expect(created.status == 201)
      let owner = try #require((created.json["creation"] as? [String: Any])?["owner"] as? String)
      #expect(!owner.isEmpty)
      #expect(try request(api, "GET", path, as: "a").status == 200)
      #expect(try request(api, "GET", path, as: "operator").status == 200)
      for method in ["GET", "DELETE"] {
        #expect(try request(api, method, path, as: "b").problem == "not-found")
      }
      #expect(try request(api, "POST", path + "/messages", as: "b", "x").problem == "not-found")
      #expect(try request(api, "PUT", path, as: "b", Self.body).problem == "session-not-owned")
      #expect(try request(api, "PUT", path, as: "c", Self.body).problem == "insufficient-scope")
      #expect(try request(api, "PUT", "/v1/sessions/c1", as: "c", Self.body).status == 201)
      func names(_ client: String) throws -> [String] {
        let list = try request(api, "GET", "/v1/sessions", as: client)
        return (list.json["sessions"] as? [[String: Any]] ?? []).compactMap { $0["session"] as? String }
      }
      #expect(try names("a") == ["default", "btc"])
      #expect(try names("b") == ["default"])
      #expect(try names("c") == ["c1"])
      #expect(try names("operator") == ["default", "btc", "c1"])
      #expect(try request(api, "DELETE", path, as: "operator").status == 204)
      #expect(try request(api, "PUT", path, as: "b", Self.body).status == 201, "the name is free")
    }
  }

  @Test func eachClientHasItsOwnLimit() throws {
    try withAPI({
      change(&$0)
      $0.createdSessions.perOwner = 1
    }) { (api) throws in
      #expect(try request(api, "PUT", "/v1/sessions/a1", as: "a", Self.body).status == 201)
      #expect(try request(api, "PUT", "/v1/sessions/a2", as: "a", Self.body).problem == "too-many-sessions")
      #expect(try request(api, "PUT", "/v1/sessions/b1", as: "b", Self.body).status == 201)
    }
  }
}
