import ByteStreams
import Deflate
import Foundation
import HTTPServer
import Inbox
import Sessions
import Testing
import Upstream

@testable import API

/// The formats of responses depend on `Accept`, and gzip on `Accept-Encoding`.
@Suite struct FormatTests {
  let api: APIFixture

  init() throws { api = try APIFixture() }

  private func push(_ payload: [UInt8], _ binary: Bool = false, topic: String = "") throws {
    try api.session().inbox.append(
      payload.span, kind: binary ? .binary : .text, topic: Array(topic.utf8).span, time: 1_795_253_400_125, now: api.now
    )
  }

  private func push(_ text: String, topic: String = "") throws { try push(Array(text.utf8), topic: topic) }

  private func get(_ accept: String, _ query: String = "cursor=earliest&wait=0", _ fields: String = "") throws
    -> Received
  {
    try api.respond("GET", "/v1/messages?" + query, "Accept: \(accept)\r\n\(fields)")
  }

  @Test func longPartsOfLinesAreNotCopiedAndTheirBreaksAreSpaces() throws {
    let part = String(repeating: "1,", count: 1_000)
    try push("[\n\n\(part)\r\n\(part)2\n]\n")
    let response = try get("application/x-ndjson")
    #expect(response.body.hasSuffix("\"data\":[  \(part)  \(part)2 ] }\n"), "\(response.body)")
    #expect(try get("text/plain", "cursor=earliest&wait=0&limit=1").body == "[\n\n\(part)\r\n\(part)2\n]\n")
  }

  @Test func linesAreMessagesAndThePositionIsInTheFields() throws {
    try push("a")
    try push("{\"b\":\r\n 1}\n")
    let response = try get("application/x-ndjson")
    #expect(response.status == 200 && response.field("Content-Type") == "application/x-ndjson")
    #expect(response.body.hasSuffix("\n"))
    let lines = response.body.split(separator: "\n")
    #expect(
      lines.count == 2 && lines[1].hasSuffix(#""type":"json","topic":null,"data":{"b":   1} }"#), "\(response.body)")
    #expect(response.field("Gateway-Cursor")?.hasSuffix(".2") == true && response.field("Link") != nil)
    let empty = try get("application/x-ndjson", "wait=0")
    #expect(empty.status == 200 && empty.body.isEmpty)
    let gap = try get("application/x-ndjson", "cursor=p-0123456789ab.1&wait=0")
    #expect(gap.field("Gateway-Gap") == "missed=null, reason=restart")
  }

  @Test func aSinglePushIsItsPayload() throws {
    try push("a \"quoted\" text", topic: "ü/1 %")
    try push("{\"n\": 1}")
    try push([0xFF, 0, 0x0A], true)
    let first = try get("text/plain", "cursor=earliest&wait=0&limit=1")
    #expect(first.status == 200 && first.body == "a \"quoted\" text")
    #expect(first.field("Content-Type") == "text/plain; charset=utf-8" && first.field("Gateway-Type") == "text")
    #expect(first.field("Gateway-Topic") == "%C3%BC/1%20%25")
    #expect(first.field("Gateway-Time") == "2026-11-21T09:30:00.125Z")
    #expect(first.field("Gateway-Id") == first.field("Gateway-Cursor"))
    let link = try #require(first.field("Link")?.dropFirst().prefix { $0 != ">" })
    let second = try api.respond("GET", String(link), "Accept: text/plain\r\n")
    #expect(
      second.body == "{\"n\": 1}" && second.field("Gateway-Type") == "json" && second.field("Gateway-Topic") == nil)
    let bytes = try get("application/octet-stream", "last=2&wait=0&limit=1")
    #expect(bytes.body == "{\"n\": 1}" && bytes.field("Content-Type") == "application/octet-stream")
    let binary = try get("text/plain", "last=1&wait=0&limit=1")
    #expect(binary.field("Content-Type") == "application/octet-stream" && binary.field("Gateway-Type") == "binary")
    let none = try get("text/plain", "wait=0&limit=1")
    #expect(none.status == 204 && none.body.isEmpty && none.field("Content-Type") == nil)
    #expect(none.field("Gateway-Cursor")?.hasSuffix(".3") == true && none.field("Link") != nil)
    #expect(none.field("Gateway-Gap") == nil)
    try api.session().inbox.recordUpstreamGap()
    let gap = try get("text/plain", "cursor=p-0123456789ab.1&wait=0&limit=1&topic=none")
    #expect(gap.status == 204 && gap.field("Gateway-Gap")?.contains("reason=restart") == true)
  }

  @Test func onlyAcceptedFormatsAreSent() throws {
    try push("a")
    for (accept, query) in [
      ("text/html", "wait=0"), ("text/plain", "wait=0"), ("text/plain", "wait=0&limit=2"),
      ("image/*", "wait=0&limit=1"),
    ] {
      let response = try get(accept, query)
      #expect(response.problem == "not-acceptable" && response.status == 406, "\(accept)")
      let detail = response.text("detail") ?? ""
      #expect(detail.contains("'\(accept)'") && detail.contains("application/json, application/x-ndjson"), "\(detail)")
    }
    #expect(try get("text/html, */*;q=0.1").field("Content-Type") == "application/json")
    #expect(
      try get("application/json, text/plain, */*", "cursor=earliest&limit=1").field("Content-Type")
        == "application/json")
    #expect(try get("text/html, image/gif, image/jpeg, *; q=.2, */*; q=.2").status == 200)
  }

  @Test func onlyAClientThatNamesEventStreamsGetsOne() throws {
    try push("a")
    let ranges = ["text/*", "text/html, text/*;q=0.5, image/*"]
    for accept in ranges {
      #expect(try get(accept).status == 406, "\(accept)")
      #expect(try get(accept, "cursor=earliest").status == 406, "\(accept)")
      #expect(try get(accept, "cursor=earliest&wait=0&limit=1").field("Content-Type") == "text/plain; charset=utf-8")
    }
    #expect(try get("text/*, */*;q=0.1").field("Content-Type") == "application/json")
    for accept in ["text/event-stream", "TEXT/Event-Stream;q=0.1", "text/event-stream, application/json;q=0.9"] {
      let request = "GET /v1/messages HTTP/1.1\r\nHost: localhost\r\nAccept: \(accept)\r\n\r\n"
      guard case .stream(let source) = try api.send(Array(request.utf8)).outcome else {
        Issue.record("\(accept) gets no stream")
        continue
      }
      source.close()
    }
  }

  @Test func everyRouteWithAContentNegotiates() throws {
    let id = try #require(try api.post("a").text("id"))
    for (path, listener) in [
      ("/v1/session", HTTPListener.loopback), ("/v1/sessions", .loopback), ("/v1/deliveries/\(id)", .loopback),
      ("/openapi.yaml", .loopback), ("/errors/not-found", .loopback), ("/metrics", .management), ("/", .management),
    ] {
      #expect(try api.respond("GET", path, "Accept: image/png\r\n", listener).problem == "not-acceptable", "\(path)")
      #expect(try api.respond("GET", path, "Accept: image/png, */*;q=0.1\r\n", listener).status == 200, "\(path)")
      #expect(try api.respond("GET", path, "Accept-Encoding: identity;q=0\r\n", listener).problem == "not-acceptable")
    }
    let before = try api.session().upstream.snapshot().queuedMessages
    #expect(try api.post("a", fields: "Accept: text/html\r\n").problem == "not-acceptable")
    #expect(try api.session().upstream.snapshot().queuedMessages == before, "nothing is sent")
    #expect(try api.respond("GET", "/livez", "Accept: image/png\r\n", .management).status == 200)
    #expect(try api.respond("OPTIONS", "/v1/messages", "Accept: image/png\r\n").status == 204)
    let page = try api.respond("GET", "/errors/not-found", "Accept: text/html, */*;q=0.8\r\n")
    #expect(page.field("Content-Type") == "text/html; charset=utf-8")
    #expect(try api.respond("GET", "/errors/not-found").field("Content-Type") == "text/plain; charset=utf-8")
  }

  /// The default fields of each client.
  @Test(arguments: [
    (
      "Chrome, address bar",
      "text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,image/webp,image/apng,*/*;q=0.8,application/signed-exchange;v=b3;q=0.7",
      "gzip, deflate, br, zstd"
    ),
    (
      "Firefox, address bar", "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8",
      "gzip, deflate, br, zstd"
    ),
    ("fetch() and XMLHttpRequest", "*/*", "gzip, deflate, br, zstd"),
    ("axios", "application/json, text/plain, */*", "gzip"),
    ("curl", "*/*", ""), ("Wget", "*/*", "identity"), ("Python requests", "*/*", "gzip, deflate"),
    ("Python urllib", "", "identity"), ("Go net/http", "", "gzip"), ("Java HttpClient", "", ""),
    ("Java HttpURLConnection", "text/html, image/gif, image/jpeg, *; q=.2, */*; q=.2", ""), ("OkHttp", "", "gzip"),
  ])
  func eachClientGetsTheFormatThatItsUserExpects(name: String, accept: String, coding: String) throws {
    let fields =
      (accept.isEmpty ? "" : "Accept: \(accept)\r\n") + (coding.isEmpty ? "" : "Accept-Encoding: \(coding)\r\n")
    let sent = try api.post("a", fields: fields)
    #expect(sent.status == 202 && sent.field("Content-Type") == "application/json")
    for index in 0..<50 { try push("message \(index) with some text") }
    let isPacked = coding.hasPrefix("gzip")
    for target in ["/v1/messages?cursor=earliest&wait=0", "/v1/messages?cursor=earliest&wait=0&limit=1"] {
      let poll = try api.respond("GET", target, fields)
      #expect(poll.status == 200 && poll.field("Content-Type") == "application/json")
      let isLarge = !target.hasSuffix("limit=1")
      #expect((poll.field("Content-Encoding") == "gzip") == (isPacked && isLarge))
      let text = try poll.field("Content-Encoding") == "gzip" ? inflated(poll.bytes) : poll.body
      #expect(text.hasPrefix("{\"messages\":[{") && text.hasSuffix("}\n"))
    }
    let id = try #require(sent.text("id"))
    for target in ["/v1/session", "/v1/sessions", "/v1/deliveries/\(id)"] {
      let response = try api.respond("GET", target, fields)
      #expect(response.field("Content-Type") == "application/json" && response.body.hasSuffix("}\n"), "\(target)")
    }
    #expect(try api.respond("GET", "/openapi.yaml", fields).field("Content-Type") == "application/yaml")
    let page = try api.respond("GET", "/errors/queue-full", fields).field("Content-Type")
    #expect(page == (accept.hasPrefix("text/html") ? "text/html; charset=utf-8" : "text/plain; charset=utf-8"))
    for target in ["/", "/metrics"] {
      #expect(try api.respond("GET", target, fields, .management).status == 200, "\(target)")
    }
    #expect(try api.respond("GET", "/v1/messages?wait=x", fields).field("Content-Type") == "application/problem+json")
  }

  // MARK: gzip

  /// The content of the response to a request that is not held.
  private func content(_ fields: String, _ query: String = "cursor=earliest&wait=0") throws -> (Received, [UInt8]) {
    let response = try api.respond("GET", "/v1/messages?" + query, fields)
    return (response, response.bytes)
  }

  private func inflated(_ bytes: [UInt8]) throws -> String {
    var output = ByteQueue()
    var inflater = Inflater(.gzipOrZlib)
    try inflater.inflate(bytes.span, into: &output, limit: 1 << 24)
    let hasEnded = inflater.hasEnded
    #expect(hasEnded)
    return output.bytes.text()
  }

  @Test func contentAboveAKibibyteIsCompressedWhereItIsAccepted() throws {
    try push("short")
    let (short, _) = try content("Accept-Encoding: gzip\r\n")
    #expect(short.field("Content-Encoding") == nil && short.field("Vary") == "Accept, Accept-Encoding")
    for index in 0..<50 { try push("message \(index) with some text") }
    let (plain, bytes) = try content("")
    #expect(plain.field("Content-Encoding") == nil)
    for _ in 0..<3 {
      // From the second request on, one copy of the response is used.
      let (packed, packedBytes) = try content("Accept-Encoding: gzip, deflate, br\r\n")
      #expect(packed.field("Content-Encoding") == "gzip" && packedBytes.count < bytes.count / 2)
      #expect(try inflated(packedBytes) == String(decoding: bytes, as: UTF8.self))
      let (again, _) = try content("")
      #expect(again.field("Content-Encoding") == nil)
    }
    #expect(try content("Accept-Encoding: gzip;q=0\r\n").0.field("Content-Encoding") == nil)
    #expect(try content("Accept-Encoding: br\r\n").0.field("Content-Encoding") == nil)
    let (only, onlyBytes) = try content("Accept-Encoding: gzip, identity;q=0\r\n", "wait=0")
    let text = try inflated(onlyBytes)
    #expect(only.field("Content-Encoding") == "gzip" && text.hasSuffix("}\n"), "whatever its size")
    let head = try api.respond("HEAD", "/v1/messages?limit=1000", "Accept-Encoding: gzip\r\n")
    #expect(head.field("Content-Encoding") == nil)
    let unchanged = try content(
      "Accept-Encoding: gzip, identity;q=0\r\nIf-None-Match: \(try #require(plain.field("ETag")))\r\n", "wait=0")
    #expect(unchanged.0.status == 304 && unchanged.0.field("Content-Encoding") == nil && unchanged.1.isEmpty)
  }

  @Test func compressionPerTurnIsLimited() throws {
    var api = api
    for _ in 0..<40 { try push(String(repeating: "x", count: 4_000)) }
    func isCompressed(_ limit: Int, _ coding: String = "gzip") throws -> Bool {
      let response = try api.respond(
        "GET", "/v1/messages?cursor=earliest&wait=0&limit=\(limit)", "Accept-Encoding: \(coding)\r\n")
      #expect(response.status == 200)
      let packed = response.field("Content-Encoding") == "gzip"
      let text = try packed ? inflated(response.bytes) : response.body
      #expect(text.hasPrefix("{") && text.hasSuffix("}\n"))
      return packed
    }
    // The responses have 160 KB and 156 KB. The second response begins below the limit of 256 KiB, but a third response
    // would not.
    #expect(try isCompressed(40) && isCompressed(39))
    for limit in 1...38 {
      #expect(try !isCompressed(limit))
      if limit < 3 { #expect(try isCompressed(39), "a compressed response is shared, which takes no time") }
    }
    #expect(try !isCompressed(37, "gzip, identity;q=0"))
    let document = try api.respond("GET", "/openapi.yaml", "Accept-Encoding: gzip\r\n")
    #expect(document.field("Content-Encoding") == nil)
    api.now = api.now + .seconds(1)
    #expect(try isCompressed(20))
  }

  @Test func problemsAreNotCompressedAndProbesReadNoCoding() throws {
    let fields = "Accept-Encoding: gzip, identity;q=0\r\n"
    for target in ["/nothing", "/v1/messages?wait=x", "/v1/deliveries/x"] {
      let response = try api.respond("GET", target, fields)
      #expect(response.status >= 400 && response.problem != nil, "\(target)")
      #expect(response.field("Content-Encoding") == nil, "\(target)")
    }
    // Problems are smaller than the smallest response that is compressed. An id that is longer than clients may choose
    // makes this problem large enough.
    let id = String(repeating: "i", count: 2 * ResponseCompressor.minimumBytes)
    for coding in ["gzip", "gzip, identity;q=0"] {
      let head = "GET /v1/messages?wait=x HTTP/1.1\r\nHost: localhost\r\nAccept-Encoding: \(coding)\r\n\r\n"
      let response = try api.send(Array(head.utf8), requestID: id).response
      #expect(response.problem == "invalid-parameter" && response.text("request_id") == id)
      #expect(response.field("Content-Encoding") == nil)
    }
    #expect(try api.respond("GET", "/livez", "Accept-Encoding: identity;q=0\r\n", .management).status == 200)
  }

  @Test func otherRoutesCompressToo() throws {
    let document = try api.respond("GET", "/openapi.yaml", "Accept-Encoding: gzip\r\n")
    #expect(document.field("Content-Encoding") == "gzip" && document.field("Vary") == "Accept-Encoding")
    #expect(try api.respond("GET", "/openapi.yaml").field("Vary") == "Accept-Encoding")
    #expect(try api.respond("GET", "/v1/session", "Accept-Encoding: gzip\r\n").field("Content-Encoding") == nil)
  }

  @Test func contentThatDoesNotShrinkOrIsTooLargeIsSentAsItIs() throws {
    var generator = SystemRandomNumberGenerator()
    try push((0..<4_000).map { _ in UInt8.random(in: 0...255, using: &generator) }, true)
    let raw = try api.respond(
      "GET", "/v1/messages?cursor=earliest&wait=0&limit=1",
      "Accept: application/octet-stream\r\nAccept-Encoding: gzip\r\n")
    #expect(raw.field("Content-Encoding") == nil)
    try push(String(repeating: "x", count: ResponseCompressor.maximumBytes))
    let large = try api.respond("GET", "/v1/messages?last=1&wait=0", "Accept-Encoding: gzip\r\n")
    #expect(large.status == 200 && large.field("Content-Encoding") == nil)
  }
}
