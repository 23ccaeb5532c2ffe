import ByteStreams
import Configuration
import HTTPServer
import Idempotency
import Journal
import Outbox
import Sessions
import Testing
import Threading
import Upstream
import UpstreamProtocol

@testable import API

/// A repetition with the same `Idempotency-Key` sends nothing again.
@Suite struct IdempotencyKeyTests {
  private let lines = "Content-Type: application/x-ndjson\r\n"

  private func post(
    _ api: APIFixture, _ body: String, _ key: String, _ fields: String = "", to target: String = "/v1/messages"
  ) throws -> Received {
    try api.post(body, to: target, fields: "Idempotency-Key: \(key)\r\n\(fields)")
  }

  private func queued(_ api: APIFixture) throws -> Int { try api.session().upstream.snapshot().queuedMessages }

  @Test func aRepetitionGetsTheSameResponseAndSendsNothing() throws {
    let api = try APIFixture()
    let first = try post(api, "a", "key")
    #expect(first.status == 202 && first.field("Idempotency-Replayed") == nil)
    try api.session().inbox.append(Array("reply".utf8).span, kind: .text, time: 0, now: api.now)
    // Quotation marks make no difference.
    for key in ["key", "\"key\""] {
      let again = try post(api, "a", key)
      #expect(again.status == 202 && again.body == first.body)
      #expect(again.field("Idempotency-Replayed") == "true")
      #expect(again.field("Location") == first.field("Location"))
    }
    #expect(try queued(api) == 1)
    // A POST with another key, and a POST without a key, are new messages.
    #expect(try post(api, "a", "other").text("id") != first.text("id"))
    _ = try api.post("a")
    #expect(try queued(api) == 3)
  }

  @Test func onlyAPOSTOfMessagesMayHaveAKey() throws {
    let api = try APIFixture { $0.session.upstream.conventions.correlation = .jsonRPC }
    _ = try api.put("w", "{}")
    for (method, path) in [
      ("POST", "/v1/call"), ("POST", "/v1/consumers/w/receive"), ("POST", "/v1/consumers/w/settle"),
      ("POST", "/v1/consumers/w/dead/retry"), ("PUT", "/v1/consumers/w"), ("DELETE", "/v1/consumers/w"),
      ("PATCH", "/v1/session"), ("GET", "/v1/messages"), ("GET", "/v1/session"),
    ] {
      let response = try api.respond(method, path, "Content-Length: 0\r\nIdempotency-Key: key\r\n")
      #expect(response.problem == "invalid-parameter" && response.status == 400, "\(method) \(path)")
      let detail = response.text("detail") ?? ""
      #expect(detail.hasPrefix("Idempotency-Key is not accepted by \(method) \(path): "), "\(detail)")
    }
    #expect(try api.respond("GET", "/v1/consumers/w").status == 200)
    #expect(try api.respond("OPTIONS", "/v1/messages", "Idempotency-Key: key\r\n").status == 204)
    #expect(try post(api, "a", "key").status == 202)
  }

  @Test func aRepetitionShowsThePresentStates() throws {
    let api = try APIFixture()
    _ = try post(api, "a", "key")
    _ = try post(api, "1\n2\n", "batch", lines)
    try api.session().upstream.refuseMessages()
    let again = try post(api, "a", "key")
    #expect(again.status == 200 && again.text("state") == "rejected")
    let batch = try post(api, "1\n2\n", "batch", lines)
    #expect(batch.status == 200 && batch.field("Idempotency-Replayed") == "true")
    let states = (batch.json["results"] as? [[String: Any]])?.compactMap { $0["state"] as? String }
    #expect(states == ["rejected", "rejected"])
  }

  @Test func aRepetitionReportsThatItsStateIsForgotten() throws {
    let api = try APIFixture { $0.session.upstream.outbox.maximumMessages = 1 }
    let fields = "Topic: t\r\n"
    let first = try post(api, "a", "key", fields)
    let upstream = try api.session().upstream
    func postMore(_ count: Int) {
      for _ in 0..<count {
        _ = upstream.post(
          PostedMessages(.one(ByteString([0x62])), kind: .text, timeToLive: .seconds(30), topic: "t"), now: api.now)
      }
    }
    postMore(upstream.rememberedDeliveries - 1)
    #expect(try post(api, "a", "key", fields).text("state") == "replaced")
    postMore(1)
    let again = try post(api, "a", "key", fields)
    #expect(again.status == 200 && again.text("id") == first.text("id"))
    #expect(again.text("state") == "unknown" && again.text("reason") == "forgotten")
    #expect(try api.session().upstream.snapshot().queuedMessages == 1)
  }

  @Test func aRepetitionOfABatchOfOneIsABatch() throws {
    let api = try APIFixture()
    let first = try post(api, "1\n", "key", lines)
    #expect(first.json["results"] != nil)
    #expect(try post(api, "1\n", "key", lines).body == first.body)
  }

  @Test func aRepetitionWaitsByItsOwnParameters() throws {
    let api = try APIFixture()
    var held: [any WaitingRequest] = []
    for wait in [5, 7] {
      let request =
        "POST /v1/messages?until=confirmed&wait=\(wait) HTTP/1.1\r\nHost: localhost\r\nIdempotency-Key: key\r\nContent-Length: 1\r\n\r\na"
      if case .wait(let request) = try api.send(Array(request.utf8)).outcome { held.append(request) }
    }
    #expect(held.map { api.advance($0).deadline } == [api.now + .seconds(5), api.now + .seconds(7)])
    #expect(try post(api, "a", "key").status == 202)
    try api.session().upstream.refuseMessages()
    let responses = held.map { api.finish($0) }
    #expect(responses[0].body == responses[1].body && responses[0].status == 200)
    #expect(responses.map { $0.field("Idempotency-Replayed") } == [nil, "true"])
  }

  @Test(arguments: [
    ("b", ""), ("a", "TTL: 5\r\n"), ("a", "Topic: t\r\n"), ("a", "Content-Type: text/plain\r\n"),
    ("a", "Content-Type: application/x-ndjson\r\n"),
  ])
  func anotherRequestUnderTheSameKeyIsRefused(body: String, fields: String) throws {
    let api = try APIFixture()
    _ = try post(api, "a", "key")
    #expect(try post(api, body, "key", fields).problem == "idempotency-key-reused")
    #expect(try queued(api) == 1)
  }

  @Test func theOptionsInTheQueryCountAsTheHeaderFields() throws {
    let api = try APIFixture()
    _ = try post(api, "a", "key", "TTL: 60\r\nContent-Type: TEXT/plain; charset=utf-8\r\n")
    let again = try post(api, "a", "key", "Content-Type: text/plain\r\n", to: "/v1/messages?ttl=1m")
    #expect(again.field("Idempotency-Replayed") == "true")
  }

  @Test func eachSessionHasItsOwnKeysAndBothOfItsNames() throws {
    let api = try APIFixture(sessions: ["default", "market"])
    let first = try post(api, "a", "key")
    #expect(try post(api, "a", "key", to: "/v1/sessions/market/messages").field("Idempotency-Replayed") == nil)
    #expect(try post(api, "a", "key", to: "/v1/sessions/default/messages").text("id") == first.text("id"))
  }

  @Test func onlyAcceptanceIsRemembered() throws {
    let api = try APIFixture { $0.session.upstream.outbox.maximumMessages = 1 }
    _ = try api.post("full")
    #expect(try post(api, "a", "key").problem == "queue-full")
    #expect(try post(api, "b", "key").problem == "queue-full")
    #expect(
      try api.post([0xFF], fields: "Content-Type: text/plain\r\nIdempotency-Key: key\r\n").problem == "invalid-text")
    #expect(api.api.common.idempotency.withLock { $0.count } == 0)
  }

  @Test func aKeyedBatchIsAcceptedAsAWholeOrNotAtAll() throws {
    let api = try APIFixture { $0.session.upstream.outbox.maximumMessages = 3 }
    _ = try api.post("one")
    #expect(try post(api, "1\n2\n3\n", "key", lines).problem == "queue-full")
    #expect(try queued(api) == 1)
    let bytes = Array("1\n\u{FF}\n".unicodeScalars.map { UInt8(truncatingIfNeeded: $0.value) })
    #expect(try api.post(bytes, fields: lines + "Idempotency-Key: key\r\n").problem == "invalid-text")
    #expect(try queued(api) == 1)
    #expect(try post(api, "1\n2\n", "key", lines).status == 202)
    #expect(try queued(api) == 3)
  }

  @Test(arguments: [
    ("1\n2\n3\n4\n", "", "3 messages (the setting upstream.queue.messages)"),
    ("12345\n67890\n", "", "8 bytes (the setting upstream.queue.bytes)"),
    ("1\n2\n3\n", "TTL: 0\r\n", "2 messages, with TTL: 0 (the setting upstream.queue.burst)"),
  ])
  func aKeyedBatchThatCanNeverFitIsNotRetryable(body: String, fields: String, part: String) throws {
    let api = try APIFixture {
      $0.session.upstream.outbox.maximumMessages = 3
      $0.session.upstream.outbox.maximumBytes = 8
      $0.session.upstream.outbox.pace = Pace(messages: 1, burst: 2)
    }
    let response = try post(api, body, "key", lines + fields)
    #expect(response.status == 413 && response.problem == "content-too-large")
    #expect(response.json["retryable"] as? Bool == false)
    #expect(response.text("detail")?.contains(part) == true, "\(response.body)")
    // Without a key, as many messages as fit are queued. The key remains unused.
    if fields.isEmpty { #expect(try api.post(body, fields: lines).status == 207) }
    #expect(api.api.common.idempotency.withLock { $0.count } == 0)
  }

  @Test func aRefusalAtTheLimitOfKeysNamesTheSetting() throws {
    let api = try APIFixture { $0.api.idempotencyKeys = 2 }
    for key in ["a", "b"] { _ = try post(api, "x", key) }
    let refused = try post(api, "x", "c")
    #expect(refused.problem == "too-many-keys")
    #expect(refused.field("Retry-After") == "600")
    #expect(refused.text("detail")?.contains("http.idempotency_keys") == true)
    #expect(try post(api, "x", "a").field("Idempotency-Replayed") == "true")
    #expect(try queued(api) == 2)
  }

  /// Without authentication, the address identifies a client, whether keys are stored or not.
  @Test(arguments: [StoreSettings.Engine.memory, StoreSettings.Engine.sqlite])
  func oneAddressCannotUseUpTheKeysOfAnotherAddress(engine: StoreSettings.Engine) throws {
    var api = try APIFixture {
      $0.api.idempotencyKeys = 8
      $0.store.engine = engine
    }
    func post(_ key: String, from address: UInt32) throws -> Received {
      api.client = ClientConnection(.ipv4(address))
      return try self.post(api, "x", key)
    }
    for number in 0..<8 { #expect(try post("\(number)", from: 1).status == 202) }
    #expect(try post("more", from: 1).problem == "too-many-keys")
    #expect(try post("other", from: 2).status == 202)
  }

  @Test(arguments: ["", "\"\"", "a b", "caf\u{E9}", "a\"b", "\"a", String(repeating: "k", count: 256)])
  func aKeyThatIsNotValidIsRefused(key: String) throws {
    let response = try post(try APIFixture(), "a", key)
    #expect(response.problem == "invalid-parameter" || response.problem == "protocol-error", "\(response.body)")
    #expect(try post(try APIFixture(), "a", String(repeating: "k", count: 255)).status == 202)
  }
}
