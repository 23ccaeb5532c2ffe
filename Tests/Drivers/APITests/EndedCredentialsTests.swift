import Access
import ByteStreams
import Configuration
import Consumers
import Digests
import HTTPServer
import Journal
import Metrics
import Sessions
import Testing
import Upstream
import UpstreamProtocol

@testable import API

/// Credentials that end while a request is received or held. Status 401 means that the request had no effect.
@Suite struct EndedCredentialsTests {
  private static let token = "token-of-the-client"

  private func line(_ rights: String) -> [UInt8] {
    let digits = Digest.sha256(Array(Self.token.utf8).span).map { ($0 < 16 ? "0" : "") + String($0, radix: 16) }
    let digest = digits.joined()
    return Array("me sha256:\(digest) \(rights)\n".utf8)
  }

  private func use(_ contents: [UInt8], in api: APIFixture) throws {
    let state = api.api.common.access
    let tokens = try TokenTable(contents, sharingGrantsOf: state.credentials.tokens)
    state.use(Credentials(tokens: tokens, jwt: nil, replacing: state.credentials))
  }

  private func makeAPI(
    rights: String = "scopes=send,receive,call,admin", journal: TestJournal? = nil
  ) throws -> APIFixture {
    let api = try APIFixture(journal: journal) {
      $0.session.upstream.conventions.correlation = .jsonRPC
      $0.authentication.certificates = [.init(name: "dns:other", scopes: ["send"])]
    }
    try use(line(rights), in: api)
    return api
  }

  private func send(
    _ method: String, _ target: String, _ body: String, to api: APIFixture, _ fields: String = "",
    meanwhile: () throws -> Void = {}
  ) throws -> (outcome: Outcome, response: Received) {
    let head =
      "\(method) \(target) HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer \(Self.token)\r\n\(fields)Content-Length: \(body.utf8.count)\r\n\r\n"
    return try api.send(Array((head + body).utf8), meanwhile: meanwhile)
  }

  private static let operations = [
    ("POST", "/v1/messages", "x"), ("POST", "/v1/messages?until=written", "x"), ("GET", "/v1/messages", "x"),
    ("GET", "/v1/messages?wait=0", "x"), ("POST", "/v1/call", #"{"id":1}"#), ("GET", "/v1/deliveries/d-0", "x"),
    ("PUT", "/v1/consumers/new", "{}"), ("DELETE", "/v1/consumers/c", "x"), ("GET", "/v1/consumers", "x"),
    ("POST", "/v1/consumers/c/receive", "x"), ("POST", "/v1/consumers/c/settle", "{}"),
    ("POST", "/v1/consumers/c/dead/retry", "x"), ("DELETE", "/v1/consumers/c/dead", "x"),
    ("PATCH", "/v1/session", #"{"desired":"down"}"#), ("PUT", "/v1/sessions/new", #"{"profile":"p"}"#),
    ("DELETE", "/v1/sessions/default", "x"), ("GET", "/v1/sessions", "x"), ("GET", "/v1/session", "x"),
  ]

  /// A token was removed, or its rights have changed.
  @Test(arguments: operations, ["", "scopes=send,receive,call,admin topics=a"])
  func nothingIsDoneIfTheCredentialsEndBeforeTheBody(operation: (String, String, String), rights: String) throws {
    let api = try makeAPI()
    #expect(try send("PUT", "/v1/consumers/c", #"{"share":true}"#, to: api).response.status == 201)
    let session = try api.session()
    let consumers = session.consumers.statuses.map(\.name)
    let state = session.upstream.stateRevision
    let (method, target, body) = operation
    let (outcome, response) = try send(method, target, body, to: api) {
      try use(rights.isEmpty ? [] : line(rights), in: api)
    }
    guard case .respond = outcome else {
      Issue.record("the request is held")
      return
    }
    #expect(response.status == 401 && response.problem == "unauthorized")
    #expect(response.text("detail")?.contains("nothing was done") == true)
    #expect(response.field("WWW-Authenticate")?.contains("invalid_token") == true)
    #expect(session.upstream.lastDelivery == 0 && session.consumers.statuses.map(\.name) == consumers)
    #expect(session.upstream.stateRevision == state && api.sessions.find("new") == nil)
    #expect(api.api.pendingRequests == 0)
    var metrics = ByteQueue()
    api.registry.render(into: &metrics)
    let isCounted = metrics.bytes.text().contains(#"drawbridge_requests_unauthenticated_total{reason="revoked"} 1"#)
    #expect(isCounted)
  }

  @Test func aFileThatKeepsTheTokenEndsNothing() throws {
    let api = try makeAPI()
    let response = try send("POST", "/v1/messages", "x", to: api) {
      try use(line("scopes=send,receive,call,admin") + Array("# another line\n".utf8), in: api)
    }.response
    #expect(response.status == 202)
  }

  /// A request that has had an effect gets its result, or a problem that says that the result is withheld. Every other
  /// request gets 401.
  @Test(arguments: [
    ("GET", "/v1/messages", "", 401), ("POST", "/v1/consumers/one/receive", "", 401),
    ("POST", "/v1/consumers/shared/receive", "", 401), ("GET", "/v1/deliveries/DELIVERY?wait=50", "", 401),
    ("POST", "/v1/consumers/one/receive?ack=CURSOR", "", 502), ("POST", "/v1/call", #"{"id":1}"#, 502),
    ("POST", "/v1/messages?until=written", "x", 202),
  ])
  func aHeldRequestEndsByTheEffectThatItHasHad(method: String, target: String, body: String, status: Int) throws {
    let api = try makeAPI()
    _ = try send("PUT", "/v1/consumers/one", "{}", to: api)
    _ = try send("PUT", "/v1/consumers/shared", #"{"share":true}"#, to: api)
    let id = try #require(try send("POST", "/v1/messages", "first", to: api).response.text("id"))
    let cursor = try #require(try send("GET", "/v1/messages?wait=0", "", to: api).response.text("cursor"))
    let target = target.replacing("DELIVERY", with: id).replacing("CURSOR", with: cursor)
    guard case .wait(let request) = try send(method, target, body, to: api).outcome else {
      Issue.record("the request is not held")
      return
    }
    #expect(!api.advance(request).isReady)
    try use([], in: api)
    #expect(api.advance(request).isReady == (status != 202))
    try api.push("\"secret\"")
    let response = api.finish(request)
    #expect(response.status == status && !response.body.contains("secret"))
    #expect(response.problem == [401: "unauthorized", 502: "outcome-unknown"][status] ?? "")
    #expect(api.api.pendingRequests == 0)
  }

  @Test(arguments: [
    ("POST", "/v1/messages", "x", 202), ("PUT", "/v1/consumers/new", "{}", 201), ("DELETE", "/v1/consumers/c", "", 204),
  ])
  func aStoredMessageIsNotRefused(method: String, target: String, body: String, status: Int) throws {
    let journal = TestJournal()
    let api = try makeAPI(journal: journal)
    guard case .wait(let put) = try send("PUT", "/v1/consumers/c", "{}", to: api).outcome else {
      Issue.record("the consumer needs no store")
      return
    }
    journal.store()
    #expect(api.finish(put).status == 201)
    guard case .wait(let request) = try send(method, target, body, to: api).outcome else {
      Issue.record("the request is not held")
      return
    }
    try use([], in: api)
    #expect(!api.advance(request).isReady, "it is not known yet whether it is stored")
    journal.store()
    #expect(api.advance(request).isReady && api.finish(request).status == status)
  }
}
