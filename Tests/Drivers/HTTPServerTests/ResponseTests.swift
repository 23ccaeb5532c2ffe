import ByteStreams
import HTTPCodec
import LoopbackSupport
import Metrics
import Reactor
import Testing

@testable import HTTPServer

/// Responses of an application, as the server sends them.
@Suite struct ResponseTests {
  private static func text(_ content: borrowing ResponseContent) -> String {
    String(decoding: content.copyBytes(), as: UTF8.self)
  }

  @Test func contentKeepsTextAndReferencedBytesInOrder() {
    var content = ResponseContent()
    let large = String(repeating: "L", count: 5000)
    content.append(ByteSlice(ByteString(Array("one".utf8))))
    content.text.append(", ")
    content.text.append("two, ")
    content.append(ByteSlice(ByteString(Array(large.utf8))))
    content.append(ByteSlice(ByteString(Array("three".utf8)), range: 0..<2))
    content.text.append(".")
    let expected = "one, two, \(large)th."
    let count = content.count
    #expect(count == expected.utf8.count)
    let whole = Self.text(content)
    #expect(whole == expected)

    var output = OutputQueue()
    output.withText { $0.append("head ") }
    content.write(into: &output)
    let copy = output.copy()
    let written = String(decoding: [UInt8](copying: copy.bytes), as: UTF8.self)
    #expect(written == "head " + expected)

    content.removeAll()
    content.text.append("again")
    let again = Self.text(content)
    #expect(again == "again")
  }

  @Test func theMemoryOfALargeResponseIsReleasedWithIt() {
    var content = ResponseContent()
    content.text.append([UInt8](repeating: 1, count: 1000))
    content.removeAll()
    let kept = content.allocatedBytes
    #expect(kept >= 1000)
    content.text.append([UInt8](repeating: 1, count: 1 << 20))
    content.removeAll()
    let left = content.allocatedBytes
    #expect(left == 0)
  }

  @Test func aBodyIsCollectedUpToItsLimit() {
    var body = RequestBody(.chunked, limit: 5)
    body.append(Array("abc".utf8).span)
    #expect(!body.exceedsLimit && body.bytes == Array("abc".utf8) && body.memoryBytes >= 3)
    body.append(Array("defg".utf8).span)
    #expect(body.exceedsLimit && body.bytes == Array("abcde".utf8) && body.memoryBytes == 5)
    body.append(Array("h".utf8).span)
    #expect(body.bytes.count == 5)

    var exact = RequestBody(.length(4), limit: 10)
    exact.append(Array("abcd".utf8).span)
    #expect(!exact.exceedsLimit && exact.memoryBytes == 4)
    var empty = RequestBody(.none, limit: 10)
    empty.append([UInt8]().span)
    #expect(!empty.exceedsLimit && empty.bytes.isEmpty)
  }

  @Test func aPreparedResponseIsRightForEachRequest() async throws {
    let served = try ServedApplication()
    let client = served.connect()
    let body = TestApplication.preparedContent
    var responses: [String] = []
    for _ in 0..<4 {
      client.get("/prepared")
      responses.append(try #require(client.read(through: body)))
    }
    for response in responses {
      #expect(response.hasPrefix("HTTP/1.1 200 OK\r\nDate: ") && response.contains("X-Prepared: yes\r\n"))
      #expect(response.contains("Content-Length: \(body.utf8.count)\r\n") && !response.contains("Connection:"))
    }
    // The requests are pipelined, so that several responses are in the output together.
    client.send(String(repeating: "GET /prepared HTTP/1.1\r\nHost: localhost\r\n\r\n", count: 5))
    for _ in 0..<5 { #expect(client.read(through: body)?.hasPrefix("HTTP/1.1 200 OK\r\n") == true) }
    client.get("/prepared", method: "HEAD")
    client.get("/now")
    let head = try #require(client.read(through: "now"))
    #expect(head.contains("Content-Length: \(body.utf8.count)\r\n") && !head.contains(body))
    client.get("/prepared", "1.0")
    let last = String(decoding: client.readAll(), as: UTF8.self)
    #expect(last.contains("Connection: close\r\n") && last.hasSuffix(body))
  }

  @Test func aPreparedResponseIsRenderedOnceASecond() {
    var response = Response()
    response.content.text.append("x")
    let prepared = PreparedResponse(copying: response)
    var output = OutputQueue()
    output.withText { $0.append("whole") }
    #expect(prepared.rendering(at: 7) == nil)
    prepared.keep(output, at: 7)
    #expect(prepared.rendering(at: 7)?.count == 5)
    #expect(prepared.rendering(at: 8) == nil)
  }

  @Test func thePhaseOfAConnectionDefinesItsDeadline() {
    var settings = HTTPServerSettings()
    settings.idleTimeout = .seconds(75)
    settings.headTimeout = .seconds(10)
    settings.bodyTimeout = .seconds(30)
    let timeouts = ConnectionTimeouts(settings)
    let start = MonotonicTime.zero + .seconds(1000)
    var phase = RequestPhase.idle(start)
    #expect(phase.deadline(timeouts) == start + .seconds(75))
    phase.restart(at: start + .seconds(5), isReceiving: false)
    #expect(phase.deadline(timeouts) == start + .seconds(80))
    phase.beginHead(at: start + .seconds(6))
    // The deadline is absolute: further bytes of a head do not extend it.
    phase.beginHead(at: start + .seconds(9))
    phase.restart(at: start + .seconds(9), isReceiving: true)
    #expect(phase.deadline(timeouts) == start + .seconds(16))
    phase = .body(TransferPace(at: start))
    phase.advance(by: 1_000_000, at: start + .seconds(20))
    #expect(phase.deadline(timeouts) == start + .seconds(50))
  }
}
