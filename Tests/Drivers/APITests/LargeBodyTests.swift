import ByteStreams
import Configuration
import Deflate
import HTTPCodec
import JSONCodec
import Outbox
import Sessions
import Testing
import Threading
import UpstreamProtocol
import UpstreamSession

@testable import API
@testable import HTTPServer
@testable import Upstream

/// Bodies whose content is read on another thread.
@Suite struct LargeBodyTests {
  // MARK: Which bodies

  private struct Head: CustomTestStringConvertible {
    let target: String
    let fields: String
    var isSocketIO = false
    var testDescription: String { "\(target) \(fields)" }
  }

  private static let heads = [
    Head(target: "/v1/messages", fields: ""),
    Head(target: "/v1/messages", fields: "Content-Type: text/plain"),
    Head(target: "/v1/messages", fields: "Content-Type: application/json"),
    Head(target: "/v1/messages", fields: "Content-Type: application/x-ndjson"),
    Head(target: "/v1/messages", fields: "Content-Type: application/octet-stream\r\nIdempotency-Key: k"),
    Head(target: "/v1/call", fields: "Content-Type: application/json"),
    Head(target: "/v1/messages?event=e", fields: "Content-Type: text/plain", isSocketIO: true),
    Head(target: "/v1/messages?event=e", fields: "Content-Type: application/octet-stream", isSocketIO: true),
    Head(target: "/v1/messages", fields: "Content-Type: application/json", isSocketIO: true),
    Head(target: "/v1/call", fields: "Content-Type: application/json", isSocketIO: true),
  ]

  private func fixture(isSocketIO: Bool) throws -> APIFixture {
    try APIFixture {
      $0.session.upstream.conventions.correlation = isSocketIO ? nil : .jsonRPC
      $0.session.upstream.conventions.kind = isSocketIO ? .socketIO : .websocket
      $0.session.upstream.outbox.maximumMessages = 100_000
    }
  }

  /// Whether a body of this size is read on another thread.
  private func isPrepared(_ head: Head, size: Int) throws -> Bool {
    let api = try fixture(isSocketIO: head.isSocketIO)
    let text =
      "POST \(head.target) HTTP/1.1\r\nHost: localhost\r\n\(head.fields)\(head.fields.isEmpty ? "" : "\r\n")Content-Length: \(size)\r\n\r\n"
    var connection = HTTPServerConnection()
    connection.receive(Array(text.utf8).span)
    _ = try connection.nextEvent()
    var exchange = api.api.begin(connection.request, on: .loopback, from: api.client)
    defer { api.api.abandon(exchange) }
    exchange.body?.append([UInt8](repeating: 0x20, count: size).span)
    return try #require(exchange.body).mayTakeLong && api.api.preparation(of: exchange) != nil
  }

  @Test(arguments: heads)
  private func aLoopReadsOnlySmallBodies(head: Head) throws {
    #expect(try isPrepared(head, size: LargeBody.smallest))
    #expect(try isPrepared(head, size: LargeBody.smallest - 1) == false)
  }

  @Test func aBodyThatIsPassedOnUnreadNeedsNoThread() throws {
    let head = Head(target: "/v1/messages", fields: "Content-Type: application/octet-stream")
    #expect(try isPrepared(head, size: LargeBody.smallest) == false)
  }

  /// The loop decompresses a body only if its content cannot be larger than the loop may read.
  @Test(arguments: [UInt8(0x0A), 0x20, 0x61])
  func aLoopDecompressesOnlyToSmallBodies(byte: UInt8) throws {
    let head = Head(target: "/v1/messages", fields: "Content-Encoding: gzip")
    let smallest = LargeBody.smallest(isCompressed: true)
    #expect(try isPrepared(head, size: smallest))
    #expect(try isPrepared(head, size: smallest - 1) == false)
    // An upper limit for the size of content that the loop decompresses.
    var size = 1_024
    while compressed(Array(repeating: byte, count: size)).count < smallest { size += 1_024 }
    #expect(size <= LargeBody.smallest + 1_024)
  }

  private func compressed(_ bytes: [UInt8]) -> [UInt8] {
    var deflater = Deflater(.gzip, windowBits: 15, level: 9, memoryLevel: 9)
    var output = ByteQueue()
    deflater.append(bytes.span, into: &output)
    deflater.finish(into: &output)
    return output.copyBytes()
  }

  // MARK: What is read

  private struct Case: CustomTestStringConvertible {
    let name: String
    let head: Head
    let body: [UInt8]
    var testDescription: String { name }
  }

  private static func lines(_ text: String, _ count: Int = 1) -> [UInt8] {
    Array(String(repeating: text, count: count).utf8)
  }

  private static let cases: [Case] = {
    let text = Head(target: "/v1/messages", fields: "Content-Type: text/plain\r\n")
    let open = Head(target: "/v1/messages", fields: "")
    let keyed = Head(target: "/v1/messages", fields: "Content-Type: text/plain\r\nIdempotency-Key: k\r\n")
    let batch = Head(target: "/v1/messages", fields: "Content-Type: application/x-ndjson\r\n")
    let gzip = Head(target: "/v1/messages", fields: "Content-Encoding: gzip\r\n")
    let call = Head(target: "/v1/call", fields: "Content-Type: application/json\r\n")
    let event = Head(target: "/v1/messages?event=e", fields: "Content-Type: text/plain\r\n", isSocketIO: true)
    let json = Head(target: "/v1/messages?event=e", fields: "Content-Type: application/json\r\n", isSocketIO: true)
    let binary = Head(
      target: "/v1/messages?event=e", fields: "Content-Type: application/octet-stream\r\n", isSocketIO: true)
    let envelope = Head(target: "/v1/messages", fields: "Content-Type: application/json\r\n", isSocketIO: true)
    let envelopes = Head(target: "/v1/messages", fields: "Content-Type: application/x-ndjson\r\n", isSocketIO: true)
    let emit = Head(target: "/v1/call", fields: "Content-Type: application/json\r\n", isSocketIO: true)
    let nested = lines(#"{"id":7,"p":"#) + lines("[", 127) + lines("]", 127) + lines("}")
    let tooDeep = lines(#"{"id":7,"p":"#) + lines("[", 128) + lines("]", 128) + lines("}")
    let good = #"{"event":"e","args":[1]}"# + "\n"
    return [
      Case(name: "text", head: text, body: lines("caf\u{E9} \u{1F600}", 500)),
      Case(name: "text that is not UTF-8", head: text, body: lines("a", 500) + [0xE2, 0x82]),
      Case(name: "binary without a type", head: open, body: lines("a", 500) + [0xE2, 0x82]),
      Case(name: "a keyed text", head: keyed, body: lines("a", 5_000)),
      Case(name: "a keyed text that is not UTF-8", head: keyed, body: [0xFF]),
      Case(name: "a batch", head: batch, body: lines("{\"a\":1}\r\n\n", 1_000)),
      Case(name: "a batch of too many", head: batch, body: lines("a\n", 1_025)),
      Case(name: "a batch of empty lines", head: batch, body: lines("\n", 70_000)),
      Case(name: "a batch with a line that is not UTF-8", head: batch, body: lines("a\n", 3) + [0xFF, 0x0A]),
      Case(name: "gzip", head: gzip, body: Self.gzip),
      Case(name: "gzip that is cut", head: gzip, body: Array(Self.gzip.dropLast(5))),
      Case(name: "no gzip", head: gzip, body: lines("plain")),
      Case(name: "a call", head: call, body: lines(#"{"jsonrpc":"2.0","id":"one","method":"m"}"#)),
      Case(
        name: "a call of many members", head: call, body: lines("{") + lines("\"a\":1,", 5_000) + lines("\"id\":7}")),
      Case(
        name: "a call of many escaped names", head: call,
        body: lines("{") + lines(#""\u0061":1,"#, 5_000) + lines("\"id\":7}")),
      Case(
        name: "a call of one string of escapes", head: call,
        body: lines(#"{"id":7,"p":""#) + lines(#"\n\u00e9"#, 5_000) + lines("\"}")),
      Case(name: "a nested call", head: call, body: nested),
      Case(name: "a call that is nested too deeply", head: call, body: tooDeep),
      Case(name: "a call without an id", head: call, body: lines("{}")),
      Case(name: "a call with two ids", head: call, body: lines(#"{"id":1,"id":2}"#)),
      Case(name: "a call that is cut", head: call, body: lines(#"{"id":1,"p":"#)),
      Case(name: "a text argument", head: event, body: lines("line\n\u{1}\"\\", 2_000)),
      Case(name: "a text argument that is not UTF-8", head: event, body: [0xC3]),
      Case(name: "a JSON argument", head: json, body: lines("[") + lines("0,", 5_000) + lines("0]")),
      Case(name: "a JSON argument that is cut", head: json, body: lines("[")),
      Case(name: "a binary argument", head: binary, body: [UInt8](repeating: 0xFF, count: 5_000)),
      Case(name: "no argument", head: event, body: []),
      Case(
        name: "an envelope", head: envelope, body: lines(#"{"event":"e","args":["#) + lines("{},", 3_000) + lines("0]}")
      ),
      Case(
        name: "an envelope with attachments", head: envelope,
        body: lines(#"{"event":"e","args":[{"_placeholder":true,"num":0}],"attachments":[""#) + lines("AAAA", 2_000)
          + lines("\"]}")),
      Case(name: "an acknowledgement", head: envelope, body: lines(#"{"ack":"t","args":[]}"#)),
      Case(name: "no envelope", head: envelope, body: lines("[]")),
      Case(name: "a batch of envelopes", head: envelopes, body: lines(good, 900)),
      Case(name: "a batch with an envelope that is not valid", head: envelopes, body: lines(good, 3) + lines("{}\n")),
      Case(
        name: "a batch whose first fault is its namespace", head: envelopes,
        body: lines(#"{"event":"e","namespace":"/x"}"# + "\n{}\n")),
      Case(
        name: "a batch whose first fault is its syntax", head: envelopes,
        body: lines("{}\n" + #"{"event":"e","namespace":"/x"}"#)),
      Case(
        name: "an event of a call", head: emit,
        body: lines(#"{"event":"e","args":["#) + lines("[],", 3_000) + lines("0]}")),
      Case(name: "a call that is an acknowledgement", head: emit, body: lines(#"{"ack":"t"}"#)),
    ]
  }()

  private static let gzip: [UInt8] = {
    var deflater = Deflater(.gzip)
    var output = ByteQueue()
    deflater.append(Array(repeating: 0x20, count: 100_000).span, into: &output)
    deflater.finish(into: &output)
    return output.copyBytes()
  }()

  /// The response and the queued messages, without the parts that differ between two gateways.
  private func result(of tested: Case, isPrepared: Bool) throws -> (response: String, queued: [[UInt8]]) {
    let api = try fixture(isSocketIO: tested.head.isSocketIO)
    let head =
      "POST \(tested.head.target) HTTP/1.1\r\nHost: localhost\r\nContent-Length: \(tested.body.count)\r\n\(tested.head.fields)\r\n"
    let (outcome, response) = try api.send(
      Array(head.utf8) + tested.body, requestID: "id", isPrepared: isPrepared)
    if case .wait(let request) = outcome { request.abandon() }
    let queued = try api.session().upstream.update { guarded in
      var batch: [OutboxMessage] = []
      guarded.outbox.startSending(on: Generation(1))
      guarded.outbox.takeBatch(maximumMessages: 100_000, maximumBytes: .max, now: api.now, into: &batch)
      return batch.map { [UInt8](copying: $0.payload.bytes) }
    }
    let isRefused = response.status >= 400
    return ("\(response.status) \(isRefused ? response.body : "")", queued)
  }

  @Test(arguments: cases)
  private func anotherThreadReadsABodyLikeTheLoop(tested: Case) throws {
    let (prepared, plain) = (
      try result(of: tested, isPrepared: true), try result(of: tested, isPrepared: false)
    )
    #expect(prepared.response == plain.response)
    #expect(prepared.queued.map { Self.withoutID($0) } == plain.queued.map { Self.withoutID($0) })
  }

  /// The id of a call is random.
  private static func withoutID(_ message: [UInt8]) -> [UInt8] {
    guard let range = Correlation.jsonRPC.request.find(in: message.span) else { return message }
    return Array(message[..<range.lowerBound] + message[range.upperBound...])
  }

  @Test func aTextThatEscapesMakeLargerThanABodyIsRefused() throws {
    let api = try APIFixture {
      $0.session.upstream.conventions.kind = .socketIO
      $0.http.limits.bodyBytes = 602
    }
    let (target, fields) = ("/v1/messages?event=e", "Content-Type: text/plain\r\n")
    #expect(try api.post([UInt8](repeating: 1, count: 100), to: target, fields: fields).status == 202)
    let response = try api.post([UInt8](repeating: 1, count: 101), to: target, fields: fields)
    #expect(response.status == 413 && response.text("detail")?.contains("http.body_bytes") == true)
  }
}
