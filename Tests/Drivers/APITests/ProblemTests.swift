import Access
import ByteStreams
import Configuration
import Foundation
import HTTPCodec
import HTTPServer
import Outbox
import Sessions
import Testing
import Upstream
import UpstreamProtocol

@testable import API

/// Each kind of problem is returned for some request.
@Suite struct ProblemTests {
  /// A response with this kind. The switch has no default, so that a new kind must get a request here.
  private func example(of kind: Problem.Kind) throws -> Received {
    let api = try APIFixture { settings in
      settings.session.upstream.outbox.maximumMessages = 1
      settings.api.batchMessages = 1
      settings.api.idempotencyKeys = 1
    }
    switch kind {
    case .protocolError: return try api.respond("GET /v1/session HTTP/1.1\r\n\r\n")
    case .uriTooLong: return api.refused(.malformed(.requestLineTooLong(limit: 1)))
    case .headerFieldsTooLarge: return api.refused(.malformed(.headTooLarge(limit: 1)))
    case .unsupportedTransferCoding: return try api.respond("POST", "/v1/messages", "Transfer-Encoding: gzip\r\n")
    case .unsupportedVersion: return try api.respond("GET /v1/session HTTP/2.0\r\nHost: localhost\r\n\r\n")
    case .expectationFailed:
      return try api.respond("POST", "/v1/messages", "Expect: 200-ok\r\nContent-Length: 1\r\n")
    case .requestTimeout: return api.refused(.slowBody(received: 7))
    case .hostNotAllowed: return try api.respond("GET /v1/session HTTP/1.1\r\nHost: evil.example\r\n\r\n")
    case .originNotAllowed: return try api.respond("GET", "/v1/session", "Origin: http://evil.example\r\n")
    case .unauthorized, .insufficientScope: return try AuthorizationTests().example(of: kind)
    case .accessNotConfigured:
      return try api.respond("GET", "/v1/session", "", HTTPListener(.management, reach: .network))
    case .notFound: return try api.respond("GET", "/nowhere")
    case .methodNotAllowed: return try api.respond("PUT", "/v1/session", "Content-Length: 0\r\n")
    case .invalidParameter: return try api.respond("GET", "/v1/messages?cursor=x")
    case .invalidText: return try api.post([0xFF, 0xFE], fields: "Content-Type: text/plain\r\n")
    case .invalidDocument:
      return try api.respond("PATCH /v1/session HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n\r\n{}")
    case .unsupportedMediaType: return try api.post("x", fields: "Content-Type: multipart/mixed; boundary=b\r\n")
    case .unsupportedEncoding: return try api.post("x", fields: "Content-Encoding: br\r\n")
    case .notAcceptable: return try api.respond("GET", "/v1/messages", "Accept: image/png\r\n")
    case .contentTooLarge:
      return try api.post("1\n2\n", fields: "Content-Type: application/x-ndjson\r\n")
    case .queueFull:
      _ = try api.post("first")
      return try api.post("second")
    case .tooManyBodies: return api.refused(.tooManyBodies)
    case .tooManyKeys:
      _ = try api.post("first", fields: "Idempotency-Key: a\r\n")
      return try api.post("second", fields: "Idempotency-Key: b\r\n")
    case .idempotencyKeyReused:
      _ = try api.post("first", fields: "Idempotency-Key: a\r\n")
      return try api.post("second", fields: "Idempotency-Key: a\r\n")
    case .idempotencyKeyInProgress:
      try api.beginKeyed("a", body: "first")
      return try api.post("first", fields: "Idempotency-Key: a\r\n")
    case .consumerConflict:
      _ = try api.put("workers", #"{"share":true}"#)
      return try api.put("workers", "{}")
    case .superseded:
      _ = try api.put("reader", "{}")
      let held = try api.hold("/v1/consumers/reader/receive", "POST")
      _ = try api.respond("POST", "/v1/consumers/reader/receive?wait=0", "Content-Length: 0\r\n")
      return api.finish(held)
    case .leaseLost:
      _ = try api.put("workers", #"{"share":true}"#)
      return try api.post(#"{"ack":["l-1.1.0123456789abcdef"]}"#, to: "/v1/consumers/workers/settle")
    case .tooManyConsumers:
      for index in 0..<1_000 { _ = try api.put("c\(index)", "") }
      return try api.put("other", "")
    case .tooManyRequests:
      let limited = try APIFixture { $0.api.limits.address.requests = RateLimit(1, per: .hours(1)) }
      _ = try limited.respond("GET", "/v1/session")
      return try limited.respond("GET", "/v1/session")
    case .sessionConflict: return try api.respond("DELETE", "/v1/sessions/default")
    case .sessionNotOwned:
      var response = Response()
      api.api.respond(with: Problem(kind, "x"), into: &response)
      return Received(response)
    case .tooManySessions:
      return try SessionRequestTests.fixture { $0.createdSessions.perOwner = 0 }
        .putSession("a", SessionRequestTests.body)
    case .upstreamDown: return try api.post("x", fields: "TTL: 0\r\n")
    case .holderUnavailable:
      // `PeersTests` cause this problem with several gateways.
      var response = Response()
      api.api.respond(with: API.holderUnavailable, into: &response)
      return Received(response)
    case .shuttingDown:
      api.lifecycle.enter(.draining)
      return try api.respond("POST", "/v1/reload")
    case .outcomeUnknown:
      var response = Response()
      api.api.respond(with: API.outcomeUnknown, into: &response)
      return Received(response)
    case .storeFailed:
      // `test_store_operations.py` causes this problem with a failing store.
      var response = Response()
      api.api.respond(with: API.storeFailed, into: &response)
      return Received(response)
    case .callsNotConfigured, .tooManyCalls, .replyTimeout, .upstreamClosed: return try CallTests().example(of: kind)
    case .acknowledgementGone:
      let api = try APIFixture {
        $0.session.upstream.conventions.kind = .socketIO
        $0.session.upstream.conventions.socketIO.acknowledgements = .client
      }
      return try api.post(#"{"ack":"a"}"#, fields: "Content-Type: application/json\r\n")
    case .sessionClosed:
      try api.session().upstream.refuseMessages()
      return try api.post("x")
    }
  }

  @Test(arguments: Problem.Kind.allCases)
  func everyKindOfProblemIsReturnedForSomeRequest(kind: Problem.Kind) throws {
    let response = try example(of: kind)
    #expect(response.problem == kind.row.name.description, "\(response.body)")
    #expect(response.status == Int(kind.row.status.rawValue))
    #expect(response.json["status"] as? Int == response.status)
    #expect(response.json["retryable"] as? Bool == (kind.row.retry != .never))
    #expect(response.field("Content-Type") == "application/problem+json")
    #expect((response.field("Retry-After") != nil) == kind.row.hasRetryAfter)
    #expect((response.field("Allow") != nil) == (response.status == 405))
    // The response has the id of the log line, so that the client can give the id to the operator.
    #expect(response.refusal == response.text("request_id"))
  }

  /// Clients read the type, the status and the header fields of a problem. `DRAWBRIDGE_WRITE_GOLDEN=1 swift test
  /// --filter ProblemTests` writes the file again. Check in the diff that only intended parts have changed.
  @Test func everyKindIsRenderedAsInTheGoldenFile() throws {
    let file = URL(fileURLWithPath: #filePath).deletingLastPathComponent().deletingLastPathComponent()
      .deletingLastPathComponent().appendingPathComponent("Golden/problems.txt")
    let rendered = try Problem.Kind.allCases.map { try rendering(of: $0) }.sorted().joined(separator: "\n")
    if ProcessInfo.processInfo.environment["DRAWBRIDGE_WRITE_GOLDEN"] != nil {
      try rendered.write(to: file, atomically: true, encoding: .utf8)
    }
    let golden = try String(contentsOf: file, encoding: .utf8)
    for (line, expected) in zip(rendered.components(separatedBy: "\n"), golden.components(separatedBy: "\n")) {
      #expect(line == expected)
    }
    #expect(rendered == golden)
  }

  /// The response, the result in a batch, and the beginning of both pages, above the text of `docs/errors.md`.
  private func rendering(of kind: Problem.Kind) throws -> String {
    let response = try example(of: kind)
    let id = try #require(response.text("request_id"))
    var results = ByteQueue()
    kind.writeInBatch(detail: "a \"detail\"", into: &results)
    results.append("\n" as StaticString)
    kind.writeInBatch(detail: nil, into: &results)
    let api = try APIFixture()
    let pages = try ["text/plain", "text/html"].map { type in
      let page = try api.respond("GET", "/errors/\(kind.row.name)", "Accept: \(type)\r\n")
      let lines = page.body.split(separator: "\n", omittingEmptySubsequences: false)
      // Whether a page is compressed depends on the length of its text.
      let fields = page.fields.replacing("Vary: Accept-Encoding\r\n", with: "")
      return fields + lines.prefix(type == "text/html" ? 4 : 1).joined(separator: "\n")
    }
    return
      ("\(kind.row.name)\n\(response.status)\n\(response.fields)"
      + "\(response.body.replacing(id, with: "ID"))\(results.bytes.text())\n"
      + pages.joined(separator: "\n") + "\n").replacing("\r\n", with: "\n").replacing(/d-[0-9a-f]{12}/, with: "d-ID")
      .replacing(/Gateway-Call-Id: [0-9]+/, with: "Gateway-Call-Id: ID")
  }

  @Test(arguments: Problem.Kind.allCases)
  func theTypeOfAProblemIsThePathOfItsPage(kind: Problem.Kind) throws {
    let api = try APIFixture()
    let path = try #require(try example(of: kind).text("type"))
    for listener in [HTTPListener.loopback, .management] {
      let text = try api.respond("GET", path, "Accept: */*\r\n", listener)
      #expect(text.status == 200 && text.field("Content-Type") == "text/plain; charset=utf-8")
      #expect(text.body.hasPrefix("\(kind.row.name): \(kind.row.title)\n\n\(kind.row.status.rawValue)"), "\(text.body)")
      #expect(!text.body.contains("]("), "\(text.body)")
    }
    let page = try api.respond("GET", path, "Accept: text/html,application/xhtml+xml,*/*;q=0.8\r\n")
    #expect(page.field("Content-Type") == "text/html; charset=utf-8")
    #expect(page.body.contains("<h1>\(kind.row.title)</h1>") && page.body.contains("<p>\(kind.row.status.rawValue)"))
    #expect(!page.body.contains("`") && !page.body.contains("]("), "\(page.body)")
  }

  @Test func anUnknownProblemHasNoPage() throws {
    let api = try APIFixture()
    for path in ["/errors/", "/errors/other", "/errors/queue-full/", "/errors"] {
      #expect(try api.respond("GET", path).problem == "not-found", "\(path)")
    }
    #expect(try api.respond("DELETE", "/errors/queue-full").problem == "method-not-allowed")
  }

  @Test func eachProblemHasItsOwnId() throws {
    let api = try APIFixture()
    let ids = try (0..<3).map { _ in try #require(try api.respond("GET", "/nowhere").text("request_id")) }
    #expect(Set(ids).count == 3)
  }

  @Test func aRefusedOrAbandonedRequestLeavesNoState() throws {
    for kind in Problem.Kind.allCases { _ = try example(of: kind) }
    let api = try APIFixture()
    _ = try api.respond("GET", "/nowhere")
    _ = try api.respond("GET", "/v1/messages?cursor=x")
    _ = try api.respond("POST", "/v1/messages", "Transfer-Encoding: chunked, gzip\r\n")
    let head = "POST /v1/messages HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
    #expect(try api.respond(head + "zz\r\n").problem == "protocol-error")
    #expect(api.api.pendingRequests == 0)
  }

  @Test func aBatchThatIsRefusedAsAWholeReturnsTheProblemOfItsFirstMessage() throws {
    let api = try APIFixture { $0.session.upstream.outbox.maximumMessages = 2 }
    let lines = "Content-Type: application/x-ndjson\r\n"
    let mixed = try api.post("1\n2\n3\n", fields: lines)
    #expect(mixed.status == 207)
    let results = try #require(mixed.json["results"] as? [[String: Any]])
    #expect(results.compactMap { $0["status"] as? Int } == [503] && results.count == 3)
    #expect(try api.post("4\n5\n", fields: lines).problem == "queue-full")
  }

  @Test func aFullQueueNamesTheSettingOfItsSession() throws {
    let api = try APIFixture(sessions: ["default", "market"]) { $0.session.upstream.outbox.maximumMessages = 1 }
    for (path, setting) in [
      ("/v1/messages", " upstream.queue.messages"),
      ("/v1/sessions/market/messages", " sessions.market.upstream.queue.messages"),
    ] {
      _ = try api.post("first", to: path)
      let problem = try api.post("second", to: path)
      #expect(problem.problem == "queue-full")
      #expect(problem.text("detail")?.contains(setting) == true, "\(problem.body)")
    }
  }
}

extension Problem.Row {
  /// Whether the response has a `Retry-After`, which says when the same request may succeed.
  var hasRetryAfter: Bool {
    if case .after = retry { true } else { false }
  }
}
