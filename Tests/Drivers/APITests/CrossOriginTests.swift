import Configuration
import HTTPServer
import Reactor
import Testing

@testable import API

/// Fields of the CORS protocol are sent to pages of the allowed origins only.
@Suite struct CrossOriginTests {
  private static let app = "https://app.example.org"
  private static let fields = "Origin: \(app)\r\nSec-Fetch-Site: cross-site\r\n"

  private func fixture() throws -> APIFixture {
    try APIFixture { $0.api.origins = ["http://other.example", Self.app] }
  }

  /// Whether a page of the allowed origin can read the response.
  private func isReadable(_ response: Received) -> Bool {
    response.field("Access-Control-Allow-Origin") == Self.app && response.fields.contains("Vary: Origin\r\n")
      && response.field("Access-Control-Expose-Headers")?.contains("Gateway-Cursor") == true
  }

  private func hasCrossOriginFields(_ response: Received) -> Bool { response.fields.contains("Access-Control-") }

  @Test func aPreflightSaysWhatAPageMaySend() throws {
    let api = try fixture()
    for path in ["/v1/messages", "/v1/consumers/a/settle", "/v1/sessions/secret", "/no-such-path"] {
      let response = try api.respond(
        "OPTIONS", path,
        Self.fields + "Access-Control-Request-Method: POST\r\n"
          + "Access-Control-Request-Headers: authorization,content-type\r\n")
      #expect(response.status == 204)
      #expect(response.field("Access-Control-Allow-Origin") == Self.app)
      #expect(response.field("Access-Control-Allow-Methods")?.contains("PATCH") == true)
      let names = response.field("Access-Control-Allow-Headers")?.lowercased() ?? ""
      for name in ["authorization", "content-type", "idempotency-key", "last-event-id", "prefer", "ttl", "topic"] {
        #expect(names.split(separator: ", ").contains { $0 == name }, "\(name)")
      }
      #expect(response.field("Access-Control-Max-Age") == "600")
      #expect(response.fields.contains("Vary: Origin\r\n"))
      #expect(!response.fields.contains("*"))
      #expect(response.bytes.isEmpty)
    }
  }

  @Test func everyResponseToAnAllowedOriginCanBeRead() throws {
    let api = try fixture()
    #expect(isReadable(try api.post("a", fields: Self.fields)))
    for target in ["/v1/messages?wait=0", "/v1/session", "/openapi.yaml", "/no-such-path", "/v1/messages?wait=x"] {
      // Twice, because the second response to a poll is a prepared response.
      for _ in 0..<2 { #expect(isReadable(try api.respond("GET", target, Self.fields)), "\(target)") }
    }
    #expect(isReadable(try api.respond("DELETE", "/v1/messages", Self.fields)))
    #expect(isReadable(try api.respond("OPTIONS", "/v1/messages", Self.fields)))
    let stream = "GET /v1/messages HTTP/1.1\r\nHost: localhost\r\nAccept: text/event-stream\r\n\(Self.fields)\r\n"
    let (outcome, response) = try api.send(Array(stream.utf8))
    #expect(isReadable(response))
    if case .stream(let source) = outcome { source.close() }
    let poll = "GET /v1/messages?wait=9 HTTP/1.1\r\nHost: localhost\r\n\(Self.fields)\r\n"
    guard case .wait(let held) = try api.send(Array(poll.utf8)).outcome else {
      Issue.record("not held")
      return
    }
    #expect(isReadable(api.finish(held)))
  }

  @Test func aPreparedResponseIsReadableForAllowedOriginsOnly() throws {
    let api = try fixture()
    let responses = try (0..<2).map { _ in try api.respond("GET", "/v1/messages?wait=0", Self.fields) }
    #expect(responses[1].prepared != nil)
    let own = try api.respond("GET", "/v1/messages?wait=0")
    #expect(own.prepared === responses[1].prepared)
    #expect(!hasCrossOriginFields(own))
  }

  @Test(arguments: ["https://evil.example", "null", "https://app.example.org.evil.example", "http://app.example.org"])
  func anotherOriginGetsNoFields(origin: String) throws {
    let api = try fixture()
    let preflight = "Origin: \(origin)\r\nAccess-Control-Request-Method: POST\r\n"
    for (method, fields) in [("OPTIONS", preflight), ("GET", "Origin: \(origin)\r\n")] {
      let response = try api.respond(method, "/v1/session", fields)
      #expect(response.problem == "origin-not-allowed")
      #expect(!hasCrossOriginFields(response))
    }
  }

  @Test func requestsOfTheOwnOriginOrWithoutOriginGetNoFields() throws {
    let api = try fixture()
    for fields in ["", "Origin: http://localhost\r\nSec-Fetch-Site: same-origin\r\n"] {
      #expect(!hasCrossOriginFields(try api.respond("GET", "/v1/session", fields)))
      #expect(!hasCrossOriginFields(try api.post("a", fields: fields)))
      let options = try api.respond("OPTIONS", "/v1/session", fields + "Access-Control-Request-Method: PATCH\r\n")
      #expect(options.field("Allow") == "GET, HEAD, PATCH, OPTIONS")
      #expect(!hasCrossOriginFields(options))
    }
  }

  @Test func everyFieldOfTheGatewayIsExposed() throws {
    let api = try fixture()
    let exposed = try api.respond("GET", "/v1/session", Self.fields).field("Access-Control-Expose-Headers") ?? ""
    let names = Set(exposed.split(separator: ", ").map(String.init))
    // Pages can read the safelisted fields anyway (Fetch standard). The others are for browsers and proxies.
    let others: Set<String> = [
      "Content-Type", "Cache-Control", "X-Content-Type-Options", "Vary", "X-Accel-Buffering", "Content-Encoding",
    ]
    for operation in ContractOperation.all() {
      for field in operation.fields.values.flatMap({ $0 }) where !others.contains(field) {
        #expect(names.contains(field), "\(field)")
      }
    }
  }
}
