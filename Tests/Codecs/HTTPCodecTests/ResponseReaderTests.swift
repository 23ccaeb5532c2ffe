import ByteStreams
import HTTPCodec
import TestSupport
import Testing

@Suite struct ResponseReaderTests {
  /// The status and whether the connection can be reused, or `incomplete`, or the error.
  private func read(_ pieces: [[UInt8]], endsAfter: Bool = false) -> [String] {
    var reader = HTTPResponseReader()
    var input = ByteQueue()
    do throws(HTTPProtocolError) {
      for piece in pieces {
        input.append(piece)
        try reader.receive(&input)
      }
      if endsAfter { try reader.receiveEndOfInput() }
    } catch {
      return ["\(error)"]
    }
    guard reader.isComplete else { return ["incomplete"] }
    return ["\(reader.status)", reader.allowsReuse ? "reuse" : "close"]
  }

  @Test(arguments: [
    ("HTTP/1.1 204 No Content\r\n\r\n", ["204", "reuse"]),
    ("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", ["200", "reuse"]),
    ("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello", ["200", "reuse"]),
    ("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhell", ["incomplete"]),
    ("HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok", ["200", "close"]),
    ("HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nok", ["200", "close"]),
    ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2;a=b\r\nok\r\n0\r\nX: y\r\n\r\n", ["200", "reuse"]),
    ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n", ["incomplete"]),
    ("HTTP/1.1 200 OK\r\n\r\nuntil the end", ["incomplete"]),
    ("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\nHTTP/1.1 500 No\r\n\r\n", ["incomplete"]),
    ("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 204 No Content\r\n\r\n", ["204", "reuse"]),
    ("HTTP/1.1 101 Switching Protocols\r\n\r\n", ["101", "close"]),
    ("HTTP/1.1 200 OK\r\nContent-Length: 99999999999999999999\r\n\r\n", ["200", "close"]),
    ("HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n", ["\(HTTPProtocolError.malformedContentLength)"]),
    (
      "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\na",
      ["\(HTTPProtocolError.repeatedContentLength)"]
    ),
    (
      "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
      ["\(HTTPProtocolError.contentLengthWithTransferEncoding)"]
    ),
    (
      "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n",
      ["\(HTTPProtocolError.transferCodingNotSupported)"]
    ),
    ("HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", ["\(HTTPProtocolError.transferEncodingInHTTP10)"]),
    ("SSH-2.0-OpenSSH\r\n", ["\(HTTPProtocolError.malformedStatusLine)"]),
  ])
  func readsAResponseHoweverItIsSplit(text: String, expected: [String]) {
    expectEvents(expected, from: text) { read($0) }
  }

  @Test(arguments: [
    ("HTTP/1.1 200 OK\r\n\r\nuntil the end", ["200", "close"]),
    ("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhell", ["\(HTTPProtocolError.truncatedMessage)"]),
    ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n", ["\(HTTPProtocolError.truncatedMessage)"]),
    ("HTTP/1.1 200 O", ["\(HTTPProtocolError.truncatedMessage)"]),
    ("", ["\(HTTPProtocolError.truncatedMessage)"]),
  ])
  func aResponseThatIsCutIsAnError(text: String, expected: [String]) {
    expectEvents(expected, from: text) { read($0, endsAfter: true) }
  }

  @Test func bytesAfterTheResponsePreventReuse() {
    #expect(read([Array("HTTP/1.1 204 No Content\r\n\r\nHTTP".utf8)]) == ["204", "close"])
  }

  /// Attack: endless content, or endless interim responses.
  @Test func readsOnlyTheBeginningOfALongResponse() {
    let chunk = Array("4000\r\n".utf8) + [UInt8](repeating: 0x61, count: 0x4000) + Array("\r\n".utf8)
    let head = Array("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n".utf8)
    #expect(read([head] + Array(repeating: chunk, count: 4)) == ["incomplete"])
    #expect(read([head] + Array(repeating: chunk, count: 5)) == ["200", "close"])
    let interim = Array("HTTP/1.1 102 Processing\r\n\r\n".utf8)
    let limit = HTTPLimits().headBytes
    #expect(read([Array((0..<limit).map { interim[$0 % interim.count] })]) == ["incomplete"])
    #expect(
      read(Array(repeating: interim, count: limit / interim.count + 1)) == [
        "\(HTTPProtocolError.headTooLarge(limit: limit))"
      ])
  }

  /// The content and the fields that the caller gets, or the error.
  private func keep(_ pieces: [[UInt8]], limit: Int, endsAfter: Bool = false) -> [String] {
    var reader = HTTPResponseReader(keepingContentUpTo: limit)
    var input = ByteQueue()
    do throws(HTTPProtocolError) {
      for piece in pieces {
        input.append(piece)
        try reader.receive(&input)
      }
      if endsAfter { try reader.receiveEndOfInput() }
    } catch {
      return ["\(error)"]
    }
    guard reader.isComplete else { return ["incomplete"] }
    return [
      String(decoding: reader.copyContent(), as: UTF8.self),
      String(decoding: reader.copyEndToEndFields { $0 == .date }, as: UTF8.self),
    ]
  }

  @Test(arguments: [
    ("HTTP/1.1 200 OK\r\nContent-Length: 5\r\nX-A:  b\r\n\r\nhello", ["hello", "X-A: b\r\n"]),
    ("HTTP/1.1 204 No Content\r\nDate: x\r\n\r\n", ["", ""]),
    (
      "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nKeep-Alive: x\r\nConnection: close, X-A\r\nx-a: b\r\nX-B: c\r\n\r\n2\r\nok\r\n3\r\nyes\r\n0\r\n\r\n",
      ["okyes", "X-B: c\r\n"]
    ),
    ("HTTP/1.1 100 Continue\r\nX-A: 1\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\na", ["a", ""]),
    ("HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\n", ["\(HTTPProtocolError.contentTooLarge(limit: 5))"]),
    (
      "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n6\r\n123456",
      ["\(HTTPProtocolError.contentTooLarge(limit: 5))"]
    ),
  ])
  func keepsTheContentUpToALimit(text: String, expected: [String]) {
    expectEvents(expected, from: text) { keep($0, limit: 5) }
  }

  @Test func aContentWithoutALengthEndsWithTheConnection() {
    let text = Array("HTTP/1.1 200 OK\r\n\r\n12345".utf8)
    #expect(keep([text], limit: 5) == ["incomplete"])
    #expect(keep([text], limit: 5, endsAfter: true) == ["12345", ""])
    #expect(keep([text + [0x36]], limit: 5, endsAfter: true) == ["\(HTTPProtocolError.contentTooLarge(limit: 5))"])
  }

  @Test func reportsWhetherAnythingHasArrived() throws {
    var reader = HTTPResponseReader()
    var input = ByteQueue()
    try reader.receive(&input)
    let before = reader.isEmpty
    input.append(UInt8(ascii: "H"))
    try reader.receive(&input)
    let after = reader.isEmpty
    #expect(before && !after)
  }

  @Test func returnsTheFieldsOfTheFinalResponse() throws {
    var reader = HTTPResponseReader()
    var input = ByteQueue()
    input.append("HTTP/1.1 103 Early Hints\r\nRetry-After: 1\r\n\r\n" as StaticString)
    input.append("HTTP/1.1 503 Busy\r\nRetry-After: 7\r\nContent-Length: 0\r\n\r\n" as StaticString)
    try reader.receive(&input)
    let field = reader.field(.retryAfter)
    #expect(field == "7")
  }
}

@Suite struct HTTPURLTests {
  @Test func splitsAURL() throws {
    let url = try HTTPURL("https://us%65r:p%40ss@Example.org/a/b?c=d")
    #expect(url.isSecure && url.host == "Example.org" && url.port == 443 && url.target == "/a/b?c=d")
    #expect(url.credentials == "user:p@ss" && url.hostField == "Example.org" && url.authority == "Example.org:443")
    #expect(url.origin == "https://Example.org")
    #expect(try HTTPURL(url.text) == url)
    let plain = try HTTPURL("HTTP://[::1]:8080?x")
    #expect(!plain.isSecure && plain.host == "::1" && plain.target == "/?x" && plain.hostField == "[::1]:8080")
  }

  @Test(arguments: [
    ("ws://a/", HTTPURLError.scheme), ("a", .scheme), ("http://a/#b", .fragment),
    ("http://", .authority(.badHost)), ("http://a b/", .authority(.badCharacter)),
    ("http://a/\r\nX: y", .authority(.badCharacter)), ("http://a:0/", .authority(.badPort)),
  ])
  func refusesOtherURLs(text: String, error: HTTPURLError) {
    #expect(throws: error) { try HTTPURL(text) }
  }
}

@Suite struct ClientRequestTests {
  @Test func writesARequest() {
    var request = HTTPClientRequest(target: "/x?y", host: "a:8", content: ByteString(Array("{}".utf8)))
    request.add("Content-Type", "application/json")
    var output = ByteQueue()
    request.write(into: &output)
    let text = output.bytes.text()
    #expect(
      text == "POST /x?y HTTP/1.1\r\nHost: a:8\r\nContent-Length: 2\r\nContent-Type: application/json\r\n\r\n{}")
  }

  @Test(arguments: [
    (HTTPMethod.get, "", "GET / HTTP/1.1\r\nHost: a\r\nX: y\r\n\r\n"),
    (.delete, "", "DELETE / HTTP/1.1\r\nHost: a\r\nX: y\r\n\r\n"),
    (.delete, "z", "DELETE / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nX: y\r\n\r\nz"),
    (.post, "", "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\nX: y\r\n\r\n"),
  ])
  func writesALengthWhereOneIsExpected(method: HTTPMethod, content: String, expected: String) {
    var request = HTTPClientRequest(method, target: "/", host: "a", content: ByteString(Array(content.utf8)))
    request.fieldLines = Array("X: y\r\n".utf8)
    var output = ByteQueue()
    request.write(into: &output)
    let text = output.bytes.text()
    #expect(text == expected)
  }
}
