import Configuration
import HTTPServer
import Outbox
import Sessions
import Testing
import Upstream

@testable import API

/// Compares the responses other than problems with `openapi.yaml`: they must have exactly its statuses and header
/// fields.
@Suite struct ContractResponseTests {
  /// Fields that the document describes for all responses at once.
  private static let common: Set = ["Content-Type", "Cache-Control", "X-Content-Type-Options", "Content-Encoding"]

  /// The fields of the responses so far, by operation and status.
  private struct Observations {
    var fields: [String: [Int: Set<String>]] = [:]

    mutating func add(_ operation: String, _ response: Received) {
      var names: Set<String> = []
      for line in response.fields.split(separator: "\r\n") where line != "Vary: Accept-Encoding" {
        names.insert(line.prefix { $0 != ":" }.description)
      }
      fields[operation, default: [:]][response.status, default: []].formUnion(names.subtracting(common))
    }
  }

  /// Request options that cause a field in the response.
  private let options = "TTL: 3000000000\r\nPrefer: wait=7\r\n"

  /// The response to a POST that waits until its messages have their final states, or until its wait is over.
  private func waited(_ api: APIFixture, _ body: String, _ fields: String, ends: Bool) throws -> Received {
    let head =
      "POST /v1/messages?until=written HTTP/1.1\r\nHost: localhost\r\nContent-Length: \(body.utf8.count)\r\n\(options)"
    guard case .wait(let request) = try api.send(Array((head + fields + "\r\n" + body).utf8)).outcome else {
      Issue.record("the request does not wait")
      throw CancellationError()
    }
    if ends { try api.session().upstream.refuseMessages() }
    return api.finish(request)
  }

  private func send(into observed: inout Observations) throws {
    let operation = "POST /v1/messages"
    let queued = try APIFixture()
    let key = "Idempotency-Key: key\r\n"
    observed.add(operation, try waited(queued, "a", key, ends: false))
    observed.add(operation, try queued.post("a", fields: options + key))
    let ended = try APIFixture()
    observed.add(operation, try waited(ended, "a", key, ends: true))
    observed.add(operation, try ended.post("a", fields: options + key))
    let full = try APIFixture { $0.session.upstream.outbox.maximumMessages = 1 }
    observed.add(operation, try waited(full, "1\n2\n", "Content-Type: application/x-ndjson\r\n", ends: false))
  }

  private func receive(into observed: inout Observations) throws {
    let operation = "GET /v1/messages"
    let api = try APIFixture()
    try api.push("a", topic: "x")
    func poll(_ query: String, _ fields: String = "") throws -> Received {
      let response = try api.respond("GET", "/v1/messages?wait=0&\(query)", fields)
      observed.add(operation, response)
      return response
    }
    let tag = try #require(try poll("cursor=earliest").field("ETag"))
    _ = try poll("cursor=p-0123456789ab.1")
    _ = try poll("cursor=earliest&limit=1", "Accept: text/plain\r\n")
    _ = try poll("limit=1", "Accept: text/plain\r\n")
    _ = try poll("cursor=p-0123456789ab.1&limit=1&topic=none", "Accept: text/plain\r\n")
    _ = try poll("", "If-None-Match: \(tag)\r\n")
    let stream = "GET /v1/messages HTTP/1.1\r\nHost: localhost\r\nAccept: text/event-stream\r\n\r\n"
    let (outcome, response) = try api.send(Array(stream.utf8))
    guard case .stream(let source) = outcome else {
      Issue.record("the response is not a stream")
      return
    }
    source.close()
    observed.add(operation, response)
  }

  private func useConsumers(into observed: inout Observations) throws {
    let api = try APIFixture()
    let path = "/v1/consumers/{consumer}"
    func respond(_ method: String, _ part: String = "", of name: String, _ body: String = "{}") throws -> Received {
      let target = "/v1/consumers/\(name)\(part)"
      let head = "\(method) \(target) HTTP/1.1\r\nHost: localhost\r\nContent-Length: \(body.utf8.count)\r\n\r\n"
      let response = try api.respond(head + body)
      observed.add("\(method) \(path)\(part.prefix { $0 != "?" })", response)
      return response
    }
    for _ in 0..<2 { _ = try respond("PUT", of: "reader") }
    _ = try respond("PUT", of: "workers", #"{"share":true}"#)
    try api.push("a")
    _ = try respond("POST", "/receive?wait=0&ack=p-000000000000.9", of: "reader")
    let messages = try respond("POST", "/receive?wait=0", of: "workers").json["messages"] as? [[String: Any]]
    let lease = try #require(messages?.first?["lease"] as? String)
    _ = try respond("POST", "/settle", of: "workers", #"{"ack":["\#(lease)","l-9.1.0123456789abcdef"]}"#)
    _ = try respond("POST", "/settle", of: "workers", #"{"ack":["\#(lease)"]}"#)
    for method in ["GET", "DELETE"] { _ = try respond(method, "/dead", of: "workers") }
    _ = try respond("POST", "/dead/retry", of: "workers")
    for method in ["GET", "DELETE"] { _ = try respond(method, of: "workers") }
    observed.add("GET /v1/consumers", try api.respond("GET", "/v1/consumers"))
  }

  private func useSessions(into observed: inout Observations) throws {
    let api = try SessionRequestTests.fixture()
    let loop = try api.startSessions()
    defer { APIFixture.end(loop) }
    let path = "/v1/sessions/{name}"
    for _ in 0..<2 { observed.add("PUT \(path)", try api.putSession("btc", SessionRequestTests.body)) }
    observed.add("GET \(path)", try api.respond("GET", "/v1/sessions/btc"))
    let change = #"{"desired":"up"}"#
    observed.add(
      "PATCH \(path)",
      try api.respond(
        "PATCH /v1/sessions/btc HTTP/1.1\r\nHost: localhost\r\nContent-Length: \(change.utf8.count)\r\n\r\n\(change)"))
    observed.add("DELETE \(path)", try api.respond("DELETE", "/v1/sessions/btc"))
  }

  @Test func everyResponseHasTheStatusesAndFieldsOfTheFileAndNoOthers() throws {
    var observed = Observations()
    try send(into: &observed)
    try receive(into: &observed)
    try useConsumers(into: &observed)
    try useSessions(into: &observed)
    observed.add("POST /v1/call", try CallTests().answered("Prefer: wait=7\r\n"))
    let api = try APIFixture()
    let id = try #require(try api.post("a").text("id"))
    observed.add("GET /v1/deliveries/{id}", try api.respond("GET", "/v1/deliveries/\(id)"))
    observed.add("GET /errors/{type}", try api.respond("GET", "/errors/not-found"))
    for path in ["/v1/session", "/v1/sessions", "/openapi.yaml"] {
      observed.add("GET \(path)", try api.respond("GET", path))
    }
    observed.add("GET /history", try api.respond("GET", "/history", "", .management))
    for method in ["GET", "POST"] {
      observed.add("\(method) /v1/reload", try api.respond(method, "/v1/reload"))
    }
    let change = #"{"desired":"up"}"#
    observed.add(
      "PATCH /v1/session",
      try api.respond(
        "PATCH /v1/session HTTP/1.1\r\nHost: localhost\r\nContent-Length: \(change.utf8.count)\r\n\r\n\(change)"))
    for operation in ContractOperation.all() {
      let name = "\(operation.method) \(operation.path)"
      #expect(observed.fields[name] == operation.fields.filter { $0.key < 400 }, "\(name)")
    }
  }
}
