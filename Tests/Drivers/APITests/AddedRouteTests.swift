import Access
import ByteStreams
import Configuration
import Forwarding
import HTTPCodec
import HTTPServer
import Metrics
import Sessions
import TLSEngine
import Testing

@testable import API

/// A route that this file adds: a type with a row. The API knows nothing else about it.
@Suite struct AddedRouteTests {
  /// `GET /v1/words/{word}`
  private enum ReadWord: ImmediateEndpoint {
    static var route: Route {
      Route(
        method: .get, path: "/v1/words/{word}", sessionPath: "/v1/sessions/{name}/words/{word}", scope: .receive,
        parameters: [.code], formats: [.text, .json], place: .holder(HolderRules(repetition: .harmless)),
        kind: .consumer)
    }

    static func read(
      _ head: borrowing HTTPRequestHead, _ word: Span<UInt8>, of request: ReceivedRequest, _ api: API
    ) throws(Problem) -> (word: String, code: UInt16) {
      (word.text(), try CloseSession.read(head, word, of: request, api))
    }

    static func respond(_ input: Input, to request: ReceivedRequest, _ turn: Turn, into response: inout Response) {
      response.begin(.ok, request.representation.contentType)
      response.content.text.append("\(input.word) \(input.code) of \(request.session.name)\n")
    }
  }

  /// `PUT /v1/words/{word}`
  private enum PutWord: ImmediateEndpoint {
    static var route: Route {
      Route(
        method: .put, path: "/v1/words/{word}", scope: .admin, body: .document(limit: 8), takesIdempotencyKey: true)
    }

    static func respond(
      _ input: Void, to request: ReceivedRequest, _ turn: Turn, into response: inout Response
    ) { response.begin(.noContent, nil) }
  }

  private func api(_ rules: [(name: String, scopes: [String], sessions: [String])] = []) throws -> APIFixture {
    try APIFixture(sessions: ["default", "market"], endpoints: API.endpoints + [ReadWord.self, PutWord.self]) {
      $0.authentication.certificates = rules.map {
        .init(name: "dns:\($0.name)", scopes: $0.scopes, sessions: $0.sessions, topics: ["*"])
      }
    }
  }

  @Test func isServedAtBothPathsWithItsParameters() throws {
    let api = try api()
    let response = try api.respond("GET", "/v1/words/a")
    #expect(response.status == 200 && response.body == "a 1000 of default\n")
    #expect(response.field("Content-Type") == "text/plain; charset=utf-8")
    #expect(try api.respond("GET", "/v1/sessions/market/words/%61?code=3001").body == "a 3001 of market\n")
    #expect(try api.respond("GET", "/v1/words/a", "Accept: application/json\r\n").status == 200)
    #expect(try api.respond("GET", "/v1/words/a", "Accept: text/html\r\n").problem == "not-acceptable")
    #expect(try api.respond("GET", "/v1/words/a", "", .management).status == 200)
    for path in ["/v1/words", "/v1/words/", "/v1/words/a/b", "/v1/sessions/absent/words/a"] {
      #expect(try api.respond("GET", path).problem == "not-found", "\(path)")
    }
    #expect(try api.respond("GET", "/nowhere").text("detail")?.contains(", /errors/{type}") == true)
    #expect(try api.respond("GET", "/nowhere").text("detail")?.contains("/v1/words/{word}") == true)
    #expect(try APIFixture().respond("GET", "/v1/words/a").problem == "not-found", "only where it is added")
  }

  @Test func aParameterThatItsRowLacksIsRefused() throws {
    let api = try api()
    let detail = try api.respond("GET", "/v1/words/a?wait=1").text("detail")
    #expect(detail == "query parameter 'wait' is unknown: GET /v1/words/a accepts code")
    #expect(
      try api.respond("PUT", "/v1/words/a?code=1000", "Content-Length: 0\r\n").text("detail")?.hasSuffix("accepts none")
        == true)
  }

  @Test func itsMethodsAreThoseOfItsRows() throws {
    let api = try api()
    #expect(try api.respond("HEAD", "/v1/words/a").status == 200)
    #expect(try api.respond("OPTIONS", "/v1/words/a").field("Allow") == "GET, HEAD, PUT, OPTIONS")
    #expect(try api.respond("OPTIONS", "/v1/sessions/market/words/a").field("Allow") == "GET, HEAD, OPTIONS")
    let wrong = try api.respond("DELETE", "/v1/words/a")
    #expect(wrong.problem == "method-not-allowed" && wrong.field("Allow") == "GET, HEAD, PUT, OPTIONS")
    // The other path does not have PUT.
    #expect(try api.respond("PUT", "/v1/sessions/market/words/a", "Content-Length: 0\r\n").status == 405)
  }

  @Test func itsBodyAndIdempotencyKeyAreThoseOfItsRow() throws {
    let api = try api()
    func put(_ body: String, _ fields: String = "") throws -> Received {
      try api.respond(
        "PUT /v1/words/a HTTP/1.1\r\nHost: localhost\r\nContent-Length: \(body.utf8.count)\r\n\(fields)\r\n\(body)")
    }
    #expect(try put("{}", "Idempotency-Key: a\r\n").status == 204)
    #expect(try put("123456789").problem == "content-too-large")
    #expect(try put("{}", "Content-Type: text/html\r\n").problem == "unsupported-media-type")
    #expect(try api.respond("GET", "/v1/words/a", "Idempotency-Key: a\r\n").problem == "invalid-parameter")
  }

  @Test func itsScopeIsThatOfItsRow() throws {
    let api = try api([
      ("reader", ["receive"], ["market"]), ("sender", ["send"], ["*"]), ("admin", ["admin"], ["*"]),
    ])
    func status(_ method: String, _ target: String, as name: String?) throws -> Int {
      let certificate = name.map { ClientCertificate(subject: "CN", dnsNames: [$0], uris: [], expiry: .max / 1_000) }
      let head = "\(method) \(target) HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n"
      let client = ClientConnection(.ipv4(0x7F00_0001), certificate: certificate, isSecure: true)
      let response = try api.send(Array(head.utf8), from: client).response
      if response.status == 403 {
        let scope = method == "PUT" ? "admin" : "receive"
        #expect(response.field("WWW-Authenticate")?.hasSuffix("scope=\"\(scope)\"") == true)
      }
      return response.status
    }
    let target = "/v1/sessions/market/words/a"
    #expect(try status("GET", target, as: nil) == 401)
    #expect(try status("OPTIONS", target, as: nil) == 204)
    #expect(try status("GET", target, as: "reader") == 200)
    #expect(try status("GET", "/v1/words/a", as: "reader") == 404, "another session")
    #expect(try status("GET", target, as: "sender") == 403)
    #expect(try status("PUT", "/v1/words/a", as: "sender") == 403)
    #expect(try status("PUT", "/v1/words/a", as: "admin") == 204)
  }

  @Test func theAccessLogAndTheMetricsNameItByItsRow() throws {
    let api = try api()
    for target in ["/v1/words/secret", "/v1/sessions/market/words/secret?code=1000"] {
      var connection = HTTPServerConnection()
      connection.receive(Array("GET \(target) HTTP/1.1\r\nHost: localhost\r\n\r\n".utf8).span)
      #expect(try connection.nextEvent() == .head)
      let template = target.contains("market") ? "/v1/sessions/{name}/words/{word}" : "/v1/words/{word}"
      let (route, isLogged) = (
        api.api.route(of: connection.request), api.api.isClientRequest(connection.request, on: .management)
      )
      #expect(route.description == template && isLogged)
      _ = try api.respond("GET", target)
    }
    api.api.latencies.turnEnded(from: api.now, to: api.now + .milliseconds(1))
    let (counts, _) = api.api.common.metrics.latencies.requests[LoopLatencies.Request.consumer.rawValue].snapshot
    #expect(counts.last == 2)
  }

  /// The request for the session without a holder fails, and the request for the other session does not.
  @Test func itsPlaceIsThatOfItsRow() throws {
    let api = try api()
    try api.session("market").move(to: .nowhere)
    #expect(try api.respond("GET", "/v1/sessions/market/words/a").problem == "holder-unavailable")
    #expect(try api.respond("GET", "/v1/words/a").status == 200)
  }
}
