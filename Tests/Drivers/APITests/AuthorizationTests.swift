import Access
import ByteStreams
import Configuration
import Events
import Foundation
import HTTPServer
import Host
import Reactor
import Sessions
import TLSEngine
import Testing
import Upstream
import UpstreamProtocol

@testable import API

/// The requests that are allowed, depending on the clients' credentials. The clients in these tests have certificates.
/// A token would lead to the same grant.
@Suite struct AuthorizationTests {
  /// An API whose client certificates have these rules, for the name `dns:NAME`.
  private func api(
    _ rules: [(name: String, scopes: [String], sessions: [String], topics: [String])],
    sessions: [String] = ["default", "market", "secret"]
  ) throws -> APIFixture {
    try APIFixture(sessions: sessions) {
      $0.session.upstream.conventions.correlation = .jsonRPC
      $0.authentication.certificates = rules.map {
        .init(name: "dns:\($0.name)", scopes: $0.scopes, sessions: $0.sessions, topics: $0.topics)
      }
    }
  }

  private func client(_ name: String, uris: [String] = [], expiry: Int64 = .max / 1_000) -> ClientConnection {
    let certificate = ClientCertificate(subject: "CN = \(name)", dnsNames: [name], uris: uris, expiry: expiry)
    return ClientConnection(.ipv4(0x7F00_0001), certificate: certificate, isSecure: true)
  }

  private func response(
    _ api: APIFixture, _ method: String, _ target: String, as name: String? = nil, _ fields: String = "",
    body: String = ""
  ) throws -> (status: Int, response: Received, isHeld: Bool) {
    let length = method == "GET" || method == "HEAD" ? "" : "Content-Length: \(body.utf8.count)\r\n"
    let head = "\(method) \(target) HTTP/1.1\r\nHost: localhost\r\n\(length)\(fields)\r\n"
    let sender = name.map { client($0) } ?? .neighbour
    let (outcome, response) = try api.send(Array((head + body).utf8), from: sender)
    switch outcome {
    case .respond: return (response.status, response, false)
    case .wait(let request): request.abandon()
    case .stream(let source): source.close()
    }
    return (200, response, true)
  }

  /// A response with this kind of problem.
  func example(of kind: Problem.Kind) throws -> Received {
    let api = try api([("me", ["send"], ["*"], ["*"])])
    return try response(api, "GET", "/v1/messages?wait=0", as: kind == .unauthorized ? nil : "me").response
  }

  /// A request for each operation.
  private static let operations: [(method: String, path: String, body: String)] = [
    ("POST", "messages", "x"), ("GET", "messages?wait=0", ""), ("HEAD", "messages", ""), ("GET", "deliveries/d-0", ""),
    ("POST", "call", #"{"id":1}"#), ("GET", "consumers", ""), ("PUT", "consumers/a", "{}"), ("GET", "consumers/a", ""),
    ("DELETE", "consumers/a", ""), ("POST", "consumers/a/receive?wait=0", ""), ("POST", "consumers/a/settle", "{}"),
    ("GET", "consumers/a/dead", ""), ("DELETE", "consumers/a/dead", ""), ("POST", "consumers/a/dead/retry", ""),
    ("GET", "", ""), ("PATCH", "", #"{"desired":"up"}"#),
  ]

  private func path(_ session: String, _ part: String) -> String {
    part.isEmpty ? "/v1/sessions/\(session)" : "/v1/sessions/\(session)/\(part)"
  }

  @Test(arguments: ["send", "receive", "call", "admin"]) func theListOfSessionsNamesTheScopes(scope: String) throws {
    let api = try api([("me", [scope], ["*"], ["*"])])
    let list = try self.response(api, "GET", "/v1/sessions", as: "me")
    #expect(list.status == 200 && list.response.json["scopes"] as? [String] == [scope])
  }

  @Test func withoutCredentialsOnlyPublicPathsAreServed() throws {
    let api = try api([("me", ["send"], ["*"], ["*"])])
    for operation in Self.operations {
      for session in ["market", "absent"] {
        for name in [nil, "stranger"] {
          let (status, response, _) = try response(
            api, operation.method, path(session, operation.path), as: name, body: operation.body)
          #expect(status == 401, "\(operation)")
          #expect(response.field("WWW-Authenticate") == "Bearer realm=\"drawbridge\"")
        }
      }
    }
    #expect(try response(api, "GET", "/nowhere").status == 401)
    for path in ["/openapi.yaml", "/errors/not-found", "/%65rrors/not-found", "/openapi%2Eyaml"] {
      #expect(try response(api, "GET", path).status == 200)
      #expect(try response(api, "HEAD", path).status == 200)
      #expect(try response(api, "POST", path).status == 401)
    }
    let management = try api.respond("GET", "/metrics", "", .management)
    #expect(management.status == 200)
    let refused =
      "drawbridge_requests_unauthenticated_total{reason=\"unknown-certificate\"} \(Self.operations.count * 2)"
    #expect(management.body.contains(refused))
  }

  @Test func optionsNeedsNoCredentialsAndRevealsNoSession() throws {
    let api = try api([("me", ["send"], ["market"], ["*"])])
    for path in ["/v1/messages", "/v1/session", "/v1/call", "/v1/deliveries/d-1", "/v1/consumers/a/receive"] {
      let part = path == "/v1/session" ? "" : String(path.dropFirst(4))
      let allow = try response(api, "OPTIONS", self.path("default", part)).response.field("Allow")
      let plain = try response(api, "OPTIONS", path).response.field("Allow")
      // At its short path, the configured session has no PUT and DELETE.
      #expect(part.isEmpty || allow == plain)
      for session in ["default", "secret", "absent"] {
        let target = self.path(session, part)
        for name in [nil, "me"] {
          let (status, response, _) = try response(api, "OPTIONS", target, as: name)
          #expect(status == 204 && response.field("Allow") == allow, "\(target)")
        }
      }
    }
    #expect(try response(api, "OPTIONS", "*").status == 204)
    #expect(try response(api, "OPTIONS", "/v1/nothing").status == 404)
  }

  @Test func aForbiddenSessionGetsTheResponseOfAMissingSession() throws {
    let api = try api([("me", ["send", "receive", "call", "admin"], ["mark*"], ["*"])])
    for operation in Self.operations {
      let secret = try response(api, operation.method, path("secret", operation.path), as: "me", body: operation.body)
      let absent = try response(api, operation.method, path("absent", operation.path), as: "me", body: operation.body)
      #expect(secret.status == 404 && absent.status == 404, "\(operation)")
      let texts = [secret, absent].map { $0.response.text("detail") }
      #expect(texts[0]?.replacingOccurrences(of: "secret", with: "absent") == texts[1])
      if operation.method != "HEAD" { #expect(texts[0]?.hasSuffix(": the only session is market") == true) }
      // The default session exists, but this client may not use it.
      let own = operation.path.isEmpty ? "/v1/session" : "/v1/" + operation.path
      let hidden = try response(api, operation.method, own, as: "me", body: operation.body)
      #expect(hidden.status == 404)
      #expect(hidden.response.body.contains("secret") == false)
    }
    let list = try response(api, "GET", "/v1/sessions", as: "me").response
    #expect(list.body.contains("market") && !list.body.contains("secret") && !list.body.contains("default"))
  }

  @Test func errorsListOnlySessionsOfTheGrant() throws {
    let names = (0..<9).map { "s\($0)" }
    func detail(_ patterns: [String]) throws -> String? {
      let api = try api([("me", ["send"], patterns, ["*"])], sessions: names)
      return try response(api, "GET", "/v1/sessions/absent", as: "me").response.text("detail")
    }
    #expect(try detail(["*"])?.hasSuffix("the sessions are s0, s1, s2, s3, s4 and 4 more") == true)
    #expect(try detail(["s*"])?.hasSuffix("the sessions are s0, s1, s2, s3, s4 and more") == true)
    #expect(try detail(["s2", "s7"])?.hasSuffix("the sessions are s2, s7") == true)
    #expect(try detail(["x"])?.hasSuffix("there is none that the credentials allow") == true)
  }

  @Test func theTopicsOfTheGrantAreTheFilter() throws {
    let api = try api([("me", ["receive"], ["*"], ["orders.*", "alerts"]), ("all", ["receive"], ["*"], ["*"])])
    for topic in ["orders.1", "secret", "alerts", "orders"] { try api.push("\"\(topic)\"", topic: topic) }
    try api.push("\"none\"")
    func received(_ query: String, as name: String) throws -> [String] {
      let response = try response(api, "GET", "/v1/messages?wait=0&cursor=earliest&\(query)", as: name).response
      return (response.json["messages"] as? [[String: Any]] ?? []).compactMap { $0["data"] as? String }
    }
    #expect(try received("", as: "all") == ["orders.1", "secret", "alerts", "orders", "none"])
    #expect(try received("", as: "me") == ["orders.1", "alerts"])
    #expect(try received("topic=orders.1*", as: "me") == ["orders.1"])
    let link = try response(api, "GET", "/v1/messages?wait=0", as: "me").response.field("Link")
    #expect(link?.contains("topic") == false)
    for topic in ["secret", "o*", "*", "orders", "orders.*&topic=secret"] {
      #expect(try response(api, "GET", "/v1/messages?wait=0&topic=\(topic)", as: "me").status == 403, "\(topic)")
    }
    // A response prepared for one client's filter must not be sent to another client.
    #expect(try received("", as: "all").count == 5)
  }

  /// The second client may receive all topics. It shows that the same request otherwise returns the event.
  @Test(arguments: ["", "&namespace=%2F"], [["none"], ["all"]])
  func aClientWithoutTopicsReceivesNothingInAnyWay(query: String, names: [String]) throws {
    let rules = [("none", ["receive"], ["*"], []), ("all", ["receive"], ["*"], ["*"])]
    let api = try APIFixture {
      $0.session.upstream.conventions.kind = .socketIO
      $0.authentication.certificates = rules.map {
        .init(name: "dns:\($0.0)", scopes: $0.1, sessions: $0.2, topics: $0.3)
      }
    }
    var parts = EventParts()
    (parts.namespace, parts.name, parts.arguments) = (Array("/".utf8), Array("secret".utf8), Array("[]".utf8))
    let record = parts.record
    try api.session().inbox.append(EventRecord(record.span), time: 0, now: api.now)
    let reads = names == ["all"]
    for accept in ["application/json", "application/x-ndjson"] {
      let target = "/v1/messages?wait=0&cursor=earliest\(query)"
      let response = try response(api, "GET", target, as: names[0], "Accept: \(accept)\r\n").response
      #expect(response.status == 200 && response.body.contains("secret") == reads, "\(accept)")
      #expect(response.field("Link")?.hasSuffix("\(query)>; rel=\"next\"") == true)
    }
    for (fields, parameter) in [("Accept: text/event-stream", ""), ("Accept: application/x-ndjson", "&stream=1")] {
      let target = "/v1/messages?cursor=earliest\(query)\(parameter)"
      let head = "GET \(target) HTTP/1.1\r\nHost: localhost\r\n\(fields)\r\n\r\n"
      guard case .stream(let source) = try api.send(Array(head.utf8), from: client(names[0])).outcome else {
        Issue.record("\(target) is no stream")
        continue
      }
      var content = ResponseContent()
      _ = source.next(at: api.now, into: &content)
      #expect(String(decoding: content.copyBytes(), as: UTF8.self).contains("secret") == reads, "\(fields)")
      source.close()
    }
    for document in [#"{"topics":[]}"#, "{}", #"{"topics":["secret"]}"#] {
      let status = try response(api, "PUT", "/v1/consumers/c", as: names[0], body: document).status
      #expect((status < 300) == reads, "\(document)")
    }
  }

  @Test func theGrantMustContainTheTopicsOfAConsumerAtEachUse() throws {
    let api = try api([("me", ["receive"], ["*"], ["orders.*"]), ("all", ["receive"], ["*"], ["*"])])
    func put(_ name: String, _ document: String, as client: String) throws -> Int {
      try response(api, "PUT", "/v1/consumers/\(name)", as: client, body: document).status
    }
    #expect(try put("mine", "{}", as: "me") == 403)
    #expect(try put("mine", #"{"topics":["orders.1","secret"]}"#, as: "me") == 403)
    #expect(try put("mine", #"{"topics":["orders.*"]}"#, as: "me") == 201)
    #expect(try put("wide", #"{"share":true}"#, as: "all") == 201)
    #expect(try put("wide", #"{"share":true,"topics":["orders.1"]}"#, as: "me") == 403)
    for operation in Self.operations where operation.path.contains("consumers/a") && operation.method != "PUT" {
      let path = "/v1/" + operation.path.replacingOccurrences(of: "/a", with: "/wide")
      let (status, response, _) = try response(api, operation.method, path, as: "me", body: operation.body)
      #expect(status == 403 && response.problem == "insufficient-scope", "\(operation)")
    }
    let list = try response(api, "GET", "/v1/consumers", as: "me").response.body
    #expect(list.contains("mine") && !list.contains("wide"))
  }

  @Test func aConsumerWithNarrowedTopicsShowsNoEarlierPushes() throws {
    let api = try api([("me", ["receive"], ["*"], ["orders.*"]), ("all", ["receive"], ["*"], ["*"])])
    func receive(as name: String) throws -> [[String: Any]] {
      let response = try response(api, "POST", "/v1/consumers/c/receive?wait=0", as: name).response
      #expect(response.status == 200)
      return response.json["messages"] as? [[String: Any]] ?? []
    }
    func dead(as name: String) throws -> [String] {
      let response = try response(api, "GET", "/v1/consumers/c/dead", as: name).response
      return (response.json["messages"] as? [[String: Any]] ?? []).compactMap { $0["data"] as? String }
    }
    _ = try response(api, "PUT", "/v1/consumers/c", as: "all", body: #"{"share":true}"#)
    try api.push("\"secret\"", topic: "secret")
    try api.push("\"none\"")
    try api.push("\"order\"", topic: "orders.1")
    let leases = try receive(as: "all").compactMap { $0["lease"] as? String }
    #expect(leases.count == 3)
    let list = leases.map { "\"\($0)\"" }.joined(separator: ",")
    let settled = try response(api, "POST", "/v1/consumers/c/settle", as: "all", body: #"{"release":[\#(list)]}"#)
    #expect(settled.status == 200, "\(settled.response.body)")
    _ = try response(api, "PUT", "/v1/consumers/c", as: "all", body: #"{"share":true,"topics":["orders.*"]}"#)
    #expect(try receive(as: "me").compactMap { $0["data"] as? String } == ["order"])
    #expect(try dead(as: "me").isEmpty)
    #expect(try dead(as: "all") == ["secret", "none"])
    #expect(try response(api, "POST", "/v1/consumers/c/dead/retry", as: "me").response.json["retried"] as? Int == 0)
    #expect(try response(api, "DELETE", "/v1/consumers/c/dead", as: "me").response.json["removed"] as? Int == 0)
    #expect(try receive(as: "me").isEmpty)
    #expect(try dead(as: "all") == ["secret", "none"])
    #expect(try response(api, "DELETE", "/v1/consumers/c/dead", as: "all").response.json["removed"] as? Int == 2)
  }

  @Test func aRefusedRequestIsCountedForItsAddress() throws {
    let api = try APIFixture {
      $0.authentication.certificates = [.init(name: "dns:me", scopes: ["receive"], sessions: ["*"], topics: ["*"])]
      $0.api.limits.address.requests = RateLimit(2, per: .hours(1))
    }
    #expect(try response(api, "GET", "/v1/messages?wait=0").status == 401)
    #expect(try response(api, "GET", "/v1/messages?wait=0", as: nil, "Authorization: Basic YQ==\r\n").status == 401)
    #expect(try response(api, "GET", "/v1/messages?wait=0").status == 429)
  }

  @Test func aHeldReceiveChecksTheTopicsOfItsConsumerAgain() throws {
    let api = try api([("me", ["receive"], ["*"], ["orders.*"]), ("all", ["receive"], ["*"], ["*"])])
    _ = try response(api, "PUT", "/v1/consumers/c", as: "me", body: #"{"share":true,"topics":["orders.*"]}"#)
    let head = "POST /v1/consumers/c/receive HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n"
    guard case .wait(let held) = try api.send(Array(head.utf8), from: client("me")).outcome else {
      Issue.record("the receive is not held")
      return
    }
    _ = try response(api, "PUT", "/v1/consumers/c", as: "all", body: #"{"share":true}"#)
    try api.push("x", topic: "secret")
    #expect(api.finish(held).status == 403)
  }

  @Test func theFirstRuleWithANameOfTheCertificateApplies() throws {
    let api = try APIFixture {
      $0.authentication.certificates = [
        .init(name: "uri:spiffe://a/billing", scopes: ["send"], sessions: ["*"], topics: ["*"]),
        .init(name: "uri:spiffe://a/*", scopes: ["receive"], sessions: ["*"], topics: ["*"]),
        .init(name: "dns:*.Clients.example.org", scopes: ["send", "receive"], sessions: ["*"], topics: ["*"]),
      ]
    }
    /// The statuses of a POST and a GET.
    func statuses(_ name: String, _ uris: [String]) throws -> [Int] {
      let client = client(name, uris: uris)
      return try ["POST /v1/messages", "GET /v1/messages?wait=0"].map {
        let length = $0.hasPrefix("P") ? "Content-Length: 0\r\n" : ""
        let head = "\($0) HTTP/1.1\r\nHost: localhost\r\n\(length)\r\n"
        return try api.send(Array(head.utf8), from: client).response.status
      }
    }
    #expect(try statuses("x", ["spiffe://b/", "spiffe://a/billing"]) == [202, 403])
    #expect(try statuses("x", ["spiffe://a/other"]) == [403, 200])
    #expect(try statuses("one.clients.example.org", []) == [202, 200])
    for name in ["a.b.clients.example.org", "clients.example.org", ".clients.example.org", "oneclients.example.org"] {
      #expect(try statuses(name, []) == [401, 401], "\(name)")
    }
    #expect(try statuses("x", ["spiffe://A/other"]) == [401, 401])
  }

  @Test func heldRequestsEndWhenTheCredentialsExpire() throws {
    let api = try api([("me", ["send", "receive", "call"], ["*"], ["*"])])
    let now = ProcessInformation.wallClockMilliseconds()
    let soon = client("me", expiry: now / 1_000 + 5)
    _ = try response(api, "PUT", "/v1/consumers/c", as: "me", body: "{}")
    for target in [
      "GET /v1/messages?wait=50", "POST /v1/messages?until=written&wait=50", "POST /v1/consumers/c/receive?wait=50",
    ] {
      let length = target.hasPrefix("P") ? "Content-Length: 0\r\n" : ""
      let head = "\(target) HTTP/1.1\r\nHost: localhost\r\n\(length)\r\n"
      for (client, range) in [(soon, 3_000...5_001), (self.client("me"), 50_000...50_000)] {
        guard case .wait(let request) = try api.send(Array(head.utf8), from: client).outcome else {
          Issue.record("\(target) is not held")
          continue
        }
        let left = Int((try #require(api.advance(request).deadline) - api.now).millisecondsRoundedUp)
        #expect(range.contains(left), "\(target): \(left)")
        request.abandon()
      }
    }
    let head = "GET /v1/messages HTTP/1.1\r\nHost: localhost\r\nAccept: text/event-stream\r\n\r\n"
    guard case .stream(let source) = try api.send(Array(head.utf8), from: soon).outcome else {
      Issue.record("not a stream")
      return
    }
    #expect(
      (3_000...5_001).contains(
        Int((try #require(source.advance(at: api.now).deadline) - api.now).millisecondsRoundedUp)))
    source.close()
    let expired = try api.send(Array(head.utf8), from: client("me", expiry: now / 1_000 - 1)).response
    #expect(expired.status == 401)
    #expect(expired.field("WWW-Authenticate")?.contains("the certificate has expired") == true)
  }

  @Test func twoClientsWithTheSameIdempotencyKeySendTwoMessages() throws {
    let api = try api([("a", ["send"], ["*"], ["*"]), ("b", ["send"], ["*"], ["*"])])
    func id(_ name: String) throws -> String? {
      try response(api, "POST", "/v1/messages", as: name, "Idempotency-Key: k\r\n", body: "x").response.text("id")
    }
    let first = try #require(try id("a"))
    #expect(try id("a") == first)
    #expect(try id("b") != first)
  }
}
