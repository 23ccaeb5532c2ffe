import ByteStreams
import HTTPCodec
import TestSupport
import Testing

/// One test per attack. The comment of each test describes the attack.
@Suite struct HardeningTests {
  private static let chunked = "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"

  private func error(_ text: String, _ limits: HTTPLimits = HTTPLimits()) -> HTTPProtocolError? {
    var connection = HTTPServerConnection(limits: limits)
    connection.receive(Array(text.utf8).span)
    do throws(HTTPProtocolError) {
      while let event = try connection.nextEvent() { if event == .end { return nil } }
    } catch {
      return error
    }
    return nil
  }

  /// Attack: one endless request line.
  @Test func limitsTheRequestLine() {
    let fits = String(repeating: "a", count: 8192 - "GET / HTTP/1.1".count)
    #expect(error("GET /\(fits) HTTP/1.1\r\nHost: a\r\n\r\n") == nil)
    #expect(error("GET /\(fits)a HTTP/1.1\r\nHost: a\r\n\r\n") == .requestLineTooLong(limit: 8192))
    #expect(error("GET /\(fits)" + String(repeating: "a", count: 100)) == .requestLineTooLong(limit: 8192))
    #expect(HTTPProtocolError.requestLineTooLong(limit: 1).status == .uriTooLong)
  }

  /// The CR of the line end may arrive before its LF, and does not count as part of the line.
  @Test func acceptsARequestLineOfTheLimitHoweverItIsSplit() {
    var limits = HTTPLimits()
    limits.requestLineBytes = "GET / HTTP/1.1".count
    expectRequests("GET / HTTP/1.1\r\nHost: a\r\n\r\n", ["GET / HTTP/1.1", "end"], limits: limits)
    expectRequests("GET /a HTTP/1.1\r\nHost: a\r\n\r\n", [], error: .requestLineTooLong(limit: 14), limits: limits)
  }

  /// The empty line after a trailer section does not count as part of it, even if its CR arrives alone.
  @Test func acceptsATrailerSectionOfTheLimitHoweverItIsSplit() {
    var limits = HTTPLimits()
    let head = "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n"
    limits.trailerBytes = "A: 1\r\n".utf8.count
    expectRequests(head + "A: 1\r\n\r\n", ["POST / HTTP/1.1", "trailer A: 1", "end"], limits: limits)
    expectRequests(
      head + "A: 12\r\n\r\n", ["POST / HTTP/1.1"], error: .trailersTooLarge(limit: limits.trailerBytes), limits: limits)
    limits.trailerBytes = 0
    expectRequests(head + "\r\n", ["POST / HTTP/1.1", "end"], limits: limits)
  }

  /// Attack: an endless head, in one field or in many.
  @Test func limitsTheHead() {
    let big = String(repeating: "a", count: 33_000)
    #expect(error("GET / HTTP/1.1\r\nA: \(big)") == .headTooLarge(limit: 32_768))
    #expect(error("GET / HTTP/1.1\r\nHost: a\r\nA: \(big)\r\n\r\n") == .headTooLarge(limit: 32_768))
    #expect(error("GET / HTTP/1.1\r\n\(big)") == .headTooLarge(limit: 32_768))
    let many = String(repeating: "A: b\r\n", count: 99)
    #expect(error("GET / HTTP/1.1\r\nHost: a\r\n\(many)\r\n") == nil)
    #expect(error("GET / HTTP/1.1\r\nHost: a\r\nC: d\r\n\(many)\r\n") == .tooManyFields(limit: 100))
  }

  /// Attack: endless CRLFs keep a connection open without a request.
  @Test func limitsEmptyLines() {
    #expect(error("\r\n\r\n\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n") == nil)
    #expect(error("\r\n\r\n\r\n\r\n\r\n") == .tooManyEmptyLines(limit: 4))
  }

  /// A binary PROXY header begins with two empty lines. It gets its own error however many empty lines are allowed.
  @Test(arguments: 0...3 as ClosedRange<Int>) func aProxyHeaderIsNotAnEmptyLine(allowed: Int) {
    var limits = HTTPLimits()
    limits.leadingEmptyLines = allowed
    let header = Array("\r\n\r\n\0\r\nQUIT\n".utf8)
    let expected = ["400: \(HTTPProtocolError.proxyHeader)"]
    for cut in 1..<header.count {
      #expect(serverTranscript([Array(header[..<cut]), Array(header[cut...])], limits: limits) == expected)
    }
    #expect(serverTranscript(header.map { [$0] }, limits: limits) == expected)
    guard allowed < 2 else { return }
    #expect(error("\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n", limits) == .tooManyEmptyLines(limit: allowed))
  }

  /// Attack: content without an announced size.
  @Test func limitsTheContentOfAllChunks() {
    var limits = HTTPLimits()
    limits.bodyBytes = 10
    #expect(error(Self.chunked + "5\r\nhello\r\n5\r\nhello\r\n0\r\n\r\n", limits) == nil)
    #expect(error(Self.chunked + "5\r\nhello\r\n6\r\n", limits) == .contentTooLarge(limit: 10))
  }

  /// Attack: kilobytes of extension for each byte of content.
  @Test func limitsChunkExtensions() {
    #expect(
      error(Self.chunked + "1;a=" + String(repeating: "b", count: 5000)) == .chunkExtensionTooLong(limit: 256))
    let chunk = "1;" + String(repeating: "b", count: 200) + "\r\na\r\n"
    #expect(error(Self.chunked + String(repeating: chunk, count: 100)) == .chunkOverheadTooLarge(limit: 16_384))
    // Small chunks are slow but legitimate.
    #expect(error(Self.chunked + String(repeating: "1\r\na\r\n", count: 10_000) + "0\r\n\r\n") == nil)
  }

  /// Attack: endless zeros before a chunk size.
  @Test func limitsTheDigitsOfAChunkSize() {
    #expect(error(Self.chunked + String(repeating: "0", count: 17)) == .malformedChunkSize)
  }

  /// Attack: a second, endless head after the content.
  @Test func limitsTheTrailers() {
    let big = String(repeating: "a", count: 9000)
    #expect(error(Self.chunked + "0\r\nA: \(big)") == .trailersTooLarge(limit: 8192))
    #expect(error(Self.chunked + "0\r\n" + String(repeating: "A: b\r\n", count: 33)) == .tooManyTrailers(limit: 32))
  }

  /// Attack: pipelining without reading the responses. Input after a pending request is not parsed, and the driver
  /// stops reading.
  @Test func processesAPipelinedRequestAfterThePreviousResponse() throws {
    var connection = HTTPServerConnection()
    var output = ByteQueue()
    let request = Array("GET / HTTP/1.1\r\nHost: a\r\n\r\n".utf8)
    for _ in 0..<4000 { connection.receive(request.span) }
    #expect(try [connection.nextEvent(), connection.nextEvent(), connection.nextEvent()] == [.head, .end, nil])
    let wants = connection.shouldReadInput
    #expect(!wants)
    connection.beginResponse(.ok, .none, date: Span(), into: &output)
    output.endFields()
    let paused = try connection.nextEvent()
    #expect(paused == nil)
    connection.finishResponse(into: &output)
    let next = try connection.nextEvent()
    #expect(next == .head)
  }

  /// Attack: a connection that stays open forever, so that its requests never reach another process.
  @Test func closesAfterTheLastRequestAllowed() {
    var limits = HTTPLimits()
    limits.requestsPerConnection = 2
    let request = "GET / HTTP/1.1\r\nHost: a\r\n\r\n"
    expectRequests(
      request + request + request, ["GET / HTTP/1.1", "end", "GET / HTTP/1.1", "end", "closed"], limits: limits)
  }

  /// Attack: a request that never becomes complete. The request gets one response, and further input is ignored.
  @Test(arguments: [
    "GET / HT", "HEAD / HTTP/1.1\r\nHo", "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\nabc",
    "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5\r\na",
  ])
  func endsARequestThatDoesNotArrive(beginning: String) throws {
    var connection = HTTPServerConnection()
    var output = ByteQueue()
    connection.receive(Array(beginning.utf8).span)
    while try connection.nextEvent() != nil {}
    connection.abandonRequest()
    let canRespond = connection.canRespond
    #expect(canRespond)
    connection.receive(Array("\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n".utf8).span)
    let event = try connection.nextEvent()
    #expect(event == nil)
    connection.beginResponse(.requestTimeout, .length(2), date: Span(), into: &output)
    output.endFields()
    connection.writeContent(Array("no".utf8).span, into: &output)
    connection.finishResponse(into: &output)
    let isClosed = connection.isClosed
    #expect(isClosed)
    let text = output.bytes.text()
    #expect(text.hasSuffix("Connection: close\r\n\r\n" + (beginning.hasPrefix("HEAD") ? "" : "no")))
  }

  /// Attack: a request is hidden in the content of another request, for a server that applies the other framing.
  @Test func preventsRequestSmuggling() {
    let inner = "GET /admin HTTP/1.1\r\nHost: a\r\n\r\n"
    for fields in [
      "Content-Length: 6\r\nTransfer-Encoding: chunked", "Transfer-Encoding: xchunked", "Transfer-Encoding : chunked",
      "Transfer-Encoding: chunked\r\nTransfer-Encoding: x", "Transfer-Encoding:\u{b}chunked",
      "Content-Length: 0\r\nContent-Length: 6",
      "X: y\nTransfer-Encoding: chunked", "Content-Length: 6\r\n Content-Length: 0",
      "Foo\r\nTransfer-Encoding: chunked",
    ] {
      let events = serverTranscript([Array("POST / HTTP/1.1\r\nHost: a\r\n\(fields)\r\n\r\n0\r\n\r\n\(inner)".utf8)])
      #expect(events.count == 1 && events[0].hasPrefix("4") || events[0].hasPrefix("501"), "\(fields): \(events)")
    }
  }

  /// Attack: a head that arrives in single bytes. Each byte could make the server read all earlier bytes again. A
  /// quadratic reader could not finish this test, which passes 30 KiB one byte at a time.
  @Test func readsAHeadByteByByteInLinearTime() {
    let value = String(repeating: "a", count: 30_000)
    let text = "GET / HTTP/1.1\r\nHost: a\r\nA: \(value)\r\n\r\n"
    #expect(serverTranscript(text.utf8.map { [$0] }) == ["GET / HTTP/1.1", "end"])
  }

  /// Attack: many waiting connections, each with the buffers of its previous request.
  @Test func hasNoMemoryWhileItIsIdle() throws {
    let pool = HTTPHeadPool()
    var connection = HTTPServerConnection(pool: pool)
    var output = ByteQueue()
    #expect(connection.allocatedBytes == 0)
    for _ in 0..<3 {
      connection.receive(Array("GET / HTTP/1.1\r\nHost: a\r\n\r\n".utf8).span)
      #expect(try [connection.nextEvent(), connection.nextEvent()] == [.head, .end])
      connection.releaseStorageIfIdle()
      #expect(connection.allocatedBytes == 0)
      #expect(pool.freeCount == 1)
      connection.beginResponse(.ok, .none, date: Span(), into: &output)
      output.endFields()
      connection.finishResponse(into: &output)
    }
    #expect(MemoryLayout<HTTPServerConnection>.size <= 200)
  }

  /// Attack: large heads enlarge the buffer that all connections of a loop use in turn. Then each of many clients sends
  /// a few bytes while its request waits for a response.
  @Test(arguments: ["G", "GET / HTTP/1.1\r\nHost: b\r\n\r\n"], [true, false])
  func keepsLittleMoreThanTheReceivedBytesWhileItWaits(rest: String, isTogether: Bool) throws {
    let pool = HTTPHeadPool()
    let large = "GET / HTTP/1.1\r\nHost: a\r\nA: \(String(repeating: "a", count: 8_000))\r\n\r\n"
    var connection = HTTPServerConnection(pool: pool)
    connection.receive(Array((large + (isTogether ? rest : "")).utf8).span)
    #expect(try [connection.nextEvent(), connection.nextEvent()] == [.head, .end])
    connection.releaseStorageIfIdle()
    if !isTogether { connection.receive(Array(rest.utf8).span) }
    connection.releaseStorageIfIdle()
    #expect(connection.unparsedBytes == rest.utf8.count)
    #expect(connection.allocatedBytes <= 256)
    var output = ByteQueue()
    connection.beginResponse(.ok, .none, date: Span(), into: &output)
    output.endFields()
    connection.finishResponse(into: &output)
    guard rest == "G" else {
      #expect(try connection.nextEvent() == .head)
      return
    }
    // The connection does not lose a partial head either.
    #expect(try connection.nextEvent() == nil)
    connection.releaseStorageIfIdle()
    connection.receive(Array("ET /b HTTP/1.1\r\nHost: b\r\n\r\n".utf8).span)
    #expect(try connection.nextEvent() == .head)
    #expect(connection.request.path.text() == "/b")
  }

  /// Attack: requests with large heads whose content never arrives. Each gets a stream that lasts for minutes.
  @Test(arguments: ["Content-Length: 1", "Transfer-Encoding: chunked"])
  func keepsNoHeadWhileItStreamsToAClientThatAwaitsContinue(framing: String) throws {
    let pool = HTTPHeadPool()
    var connection = HTTPServerConnection(pool: pool)
    let large = "A: \(String(repeating: "a", count: 8_000))\r\n"
    connection.receive(
      Array("GET / HTTP/1.1\r\nHost: a\r\n\(large)\(framing)\r\nExpect: 100-continue\r\n\r\n".utf8).span)
    #expect(try connection.nextEvent() == .head)
    connection.releaseStorageIfIdle()
    let isKept = connection.hasRequest
    #expect(isKept, "without a response, the rest of the request is read")
    var output = ByteQueue()
    connection.beginResponse(.ok, .stream, date: Span(), into: &output)
    output.endFields()
    connection.releaseStorageIfIdle()
    #expect(connection.allocatedBytes == 0)
    #expect(pool.freeCount == 1)
    connection.receive(Array("1\r\na\r\n0\r\nB: c\r\n\r\n".utf8).span)
    #expect(try connection.nextEvent() == nil)
    connection.finishResponse(into: &output)
    #expect(try connection.nextEvent() == nil)
    let isClosed = connection.isClosed
    #expect(isClosed)
  }

  /// Attack: a response field gets a value from outside that contains line ends.
  @Test func writesNoLineBreakFromAValue() {
    var output = ByteQueue()
    output.appendField("Location", Array("/a\r\nSet-Cookie: b\u{0}".utf8).span)
    let text = output.bytes.text()
    #expect(text == "Location: /a  Set-Cookie: b \r\n")
  }

  /// Random input never causes a crash, a hang or a second response.
  @Test func randomBytesDoNotCrashTheConnection() {
    var random = SeededGenerator(seed: 1)
    let pieces = [
      "GET ", "/", " HTTP/1.1", "\r\n", "\r", "\n", "Host: a\r\n", "Transfer-Encoding: chunked\r\n",
      "Content-Length: 3\r\n", "0\r\n",
      "5\r\n", "abc", ";a=\"b", " ", "\t", "\u{0}", "POST / HTTP/1.1\r\nHost: a\r\n", "\r\n\r\n",
      "Expect: 100-continue\r\n",
    ]
    for _ in 0..<20_000 {
      let input = (0..<Int.random(in: 1...12, using: &random)).map { _ in
        Array((pieces.randomElement(using: &random) ?? "").utf8)
      }
      let whole = serverTranscript([input.flatMap { $0 }], endsInput: true)
      let pieced = serverTranscript(input, endsInput: true)
      let dripped = serverTranscript(input.flatMap { $0 }.map { [$0] }, endsInput: true)
      #expect(whole.filter { !$0.hasPrefix("4") } == dripped.filter { !$0.hasPrefix("4") })
      #expect(pieced.filter { $0.hasPrefix("4") }.count <= 1)
    }
  }
}
