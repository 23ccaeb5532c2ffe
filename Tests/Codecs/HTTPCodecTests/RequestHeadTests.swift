import ByteStreams
import HTTPCodec
import TestSupport
import Testing

@Suite struct RequestHeadTests {
  private static let host = "Host: a\r\n"

  @Test(arguments: [
    ("get / HTTP/1.1\r\n", nil), ("M-SEARCH / HTTP/1.1\r\n", nil),
    ("GET /?a=[1]&b=%41|", HTTPProtocolError.malformedTarget),
    (" GET / HTTP/1.1\r\n", .malformedMethod), ("G@T / HTTP/1.1\r\n", .malformedMethod),
    ("GET  / HTTP/1.1\r\n", .targetFormNotAllowed), ("GET / HTTP/1.1 \r\n", .malformedVersion),
    ("GET /\tHTTP/1.1\r\n", .malformedRequestLine), ("GET / \r\n", .malformedVersion),
    ("GET /\r\n", .malformedRequestLine), ("GET\r\n", .malformedRequestLine), ("GET / http/1.1\r\n", .malformedVersion),
    ("GET / HTTP/1.1x\r\n", .malformedVersion), ("GET / HTTP/2.0\r\n", .versionNotSupported),
    ("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", .versionNotSupported), ("GET / HTTP/1.1\n", .bareLineFeed),
    ("GET / HTTP/1.1\r\rH", .bareCarriageReturn), ("\nGET / HTTP/1.1\r\n", .bareLineFeed),
    ("\rGET / HTTP/1.1\r\n", .bareCarriageReturn), ("GET /\u{0} HTTP/1.1\r\n", .forbiddenByte(0)),
    ("GET /a b HTTP/1.1\r\n", .malformedTarget), ("GET /#top HTTP/1.1\r\n", .malformedTarget),
    ("GET /\u{e9} HTTP/1.1\r\n", .malformedTarget), ("GET /%4 HTTP/1.1\r\n", .malformedTarget),
    ("GET /%zz HTTP/1.1\r\n", .malformedTarget), ("GET a HTTP/1.1\r\n", .targetFormNotAllowed),
    ("GET * HTTP/1.1\r\n", .targetFormNotAllowed), ("GET a:80 HTTP/1.1\r\n", .targetFormNotAllowed),
    ("GET ftp://a/ HTTP/1.1\r\n", .targetFormNotAllowed), ("GET http:///x HTTP/1.1\r\n", .malformedTarget),
    ("GET http://u@a/ HTTP/1.1\r\n", .malformedTarget), ("CONNECT a:80 HTTP/1.1\r\n", .methodNotSupported),
    ("\u{16}", .tlsHandshake), ("\u{16}\u{3}\u{1}", .tlsHandshake), ("\r\n\u{16}\u{3}\u{1}", .tlsHandshake),
    ("\r\n\r\n\u{0}\r\nQUIT\n", .proxyHeader), ("\r\n\u{0}", .forbiddenByte(0)),
    ("PROXY TCP4 192.0.2.1 192.0.2.2 4711 80\r\n", .proxyHeader), ("PROXY UNKNOWN\r\n", .proxyHeader),
    ("PROXY / HTTP/1.1\r\n", nil),
  ])
  func validatesTheRequestLine(line: String, error: HTTPProtocolError?) {
    let text = line + (line.hasSuffix("\r\n") ? "Host: a\r\n\r\n" : error == .malformedTarget ? " HTTP/1.1\r\n" : "")
    let start = line.split(separator: "\r\n").first.map { String($0) } ?? ""
    guard let error else { return expectRequests(text, [start, "end"]) }
    let whole = serverTranscript([Array(text.utf8)])
    #expect(whole == ["\(error.status.rawValue): \(error)"])
    // If a line arrives byte by byte, the server may report a forbidden byte before the line is complete, and thus
    // another error. It refuses the line in either case.
    let dripped = serverTranscript(text.utf8.map { [$0] })
    #expect(dripped.count == 1 && dripped[0].hasPrefix("4") || dripped == whole)
  }

  @Test(arguments: [
    ("A: b", nil), ("A:", nil), ("A:\t b \t", nil), ("!#$%&'*+-.^_`|~9: b", nil), ("A: \u{e9}\t\"x\"", nil),
    ("A : b", HTTPProtocolError.whitespaceBeforeColon), ("A\t: b", .whitespaceBeforeColon),
    (": b", .malformedFieldName),
    ("A b", .missingColon), ("Ab", .missingColon), ("A\u{e9}: b", .malformedFieldName), ("A(: b", .malformedFieldName),
    ("A: b\u{0}", .forbiddenByte(0)), ("A: \u{7f}", .forbiddenByte(127)), ("A: b\u{b}", .forbiddenByte(11)),
    ("A: b\nB: c", .bareLineFeed), ("A: b\rB: c", .bareCarriageReturn), ("A: b\r\n c", .foldedField),
    ("A: b\r\n\tc", .foldedField), ("A: b\r\n \r\n", .foldedField),
    ("Content-Type: a/b\r\nContent-Type: a/c", .repeatedField(.contentType)), ("Host: b", .repeatedField(.host)),
    ("host: a", .repeatedField(.host)), ("Content-Length: 0\r\nContent-Length: 0", .repeatedContentLength),
    ("Accept: a/b\r\nAccept: c/d", nil), ("Content-Length: 00", nil), ("Content-Length:", .malformedContentLength),
    ("Content-Length: +1", .malformedContentLength), ("Content-Length: -1", .malformedContentLength),
    ("Content-Length: 0x1", .malformedContentLength), ("Content-Length: 1, 1", .malformedContentLength),
    ("Content-Length: 1 1", .malformedContentLength), ("Content-Length: 1.0", .malformedContentLength),
    ("Content-Length: 16777217", .contentTooLarge(limit: 16_777_216)),
    ("Content-Length: 18446744073709551617", .contentTooLarge(limit: 16_777_216)),
    ("Transfer-Encoding: gzip, chunked", .transferCodingNotSupported),
    ("Transfer-Encoding: gzip\r\nTransfer-Encoding: chunked", .transferCodingNotSupported),
    ("Transfer-Encoding: gzip", .transferCodingNotSupported), ("Transfer-Encoding:", .malformedTransferEncoding),
    ("Transfer-Encoding: chunked, chunked", .malformedTransferEncoding),
    ("Transfer-Encoding: chunked, gzip", .malformedTransferEncoding),
    ("Transfer-Encoding: chunked;q=1", .transferCodingNotSupported),
    ("Transfer-Encoding: \"chunked\"", .transferCodingNotSupported),
    ("Transfer-Encoding: identity", .transferCodingNotSupported),
    ("Transfer-Encoding: xchunked", .transferCodingNotSupported),
    ("Transfer-Encoding: chunked\r\nContent-Length: 0", .contentLengthWithTransferEncoding),
    ("Content-Length: 0\r\nTransfer-Encoding: chunked", .contentLengthWithTransferEncoding),
    ("Expect: 200-ok", .expectationNotSupported), ("Expect: 100-Continue", nil),
    ("Upgrade: h2c\r\nConnection: Upgrade", nil),
  ])
  func validatesTheFields(lines: String, error: HTTPProtocolError?) {
    expectRequests(
      "GET / HTTP/1.1\r\nHost: a\r\n\(lines)\r\n\r\n", error == nil ? ["GET / HTTP/1.1", "end"] : [], error: error)
  }

  @Test func refusesAFoldBeforeTheFirstField() {
    expectRequests("GET / HTTP/1.1\r\n Host: a\r\n\r\n", [], error: .whitespaceBeforeFirstField)
  }

  @Test(arguments: [
    ("a", nil), ("a:80", nil), ("a:", nil), ("127.0.0.1:1", nil), ("[::1]", nil), ("[::1]:65535", nil),
    ("a_b-c.d", nil),
    ("", nil), ("a:65536", HTTPProtocolError.malformedHost), ("a:b", .malformedHost), ("a:80:80", .malformedHost),
    ("a b", .malformedHost), ("a,b", .malformedHost), ("u@a", .malformedHost), ("a/b", .malformedHost),
    ("[::1", .malformedHost),
    ("[::]", nil), ("[::1]:80", nil), ("[1:2:3:4:5:6:7:8]", nil), ("[1::8]", nil), ("[1::]", nil),
    ("[::ffff:192.0.2.1]", nil),
    ("[1:2:3:4:5:6:192.0.2.1]", nil), ("[1:2:3:4:5:6:7::]", nil), ("[:::]", .malformedHost), ("[::::]", .malformedHost),
    ("[1::2::3]", .malformedHost), ("[1:2:3:4:5:6:7]", .malformedHost), ("[1:2:3:4:5:6:7:8:9]", .malformedHost),
    ("[1:2:3:4:5:6:7:8::]", .malformedHost), ("[:1]", .malformedHost), ("[1:]", .malformedHost),
    ("[1]", .malformedHost),
    ("[12345::]", .malformedHost), ("[::192.0.2.256]", .malformedHost), ("[::192.0.2]", .malformedHost),
    ("[::192.0.2.1.1]", .malformedHost), ("[::192.0.2.01]", .malformedHost), ("[192.0.2.1]", .malformedHost),
    ("[192.0.2.1::]", .malformedHost), ("[.]", .malformedHost), ("[::1%25eth0]", .malformedHost),
    ("[v1.a]", .malformedHost),
    ("[]", .malformedHost), ("[::1]x", .malformedHost), (":80", .malformedHost), ("http://a", .malformedHost),
    ("a\\b", .malformedHost), ("a?b", .malformedHost), ("\u{e9}", .malformedHost),
  ])
  func validatesTheHost(value: String, error: HTTPProtocolError?) {
    expectRequests(
      "GET / HTTP/1.1\r\nHost: \(value)\r\n\r\n", error == nil ? ["GET / HTTP/1.1", "end"] : [], error: error)
  }

  @Test func needsAHostInHTTP11Only() {
    expectRequests("GET / HTTP/1.1\r\n\r\n", [], error: .missingHost)
    expectRequests("GET http://a/ HTTP/1.1\r\n\r\n", [], error: .missingHost)
    expectRequests("GET / HTTP/1.0\r\n\r\n", ["GET / HTTP/1.0", "end", "closed"])
  }

  @Test func refusesTransferEncodingInHTTP10() {
    expectRequests(
      "POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", [], error: .transferEncodingInHTTP10)
  }

  @Test(arguments: [
    ("/a/b?c=d?e", "/a/b", "c=d?e", "h:1"), ("/", "/", "", "h:1"), ("/a?", "/a", "", "h:1"),
    ("http://other:2/a?b", "/a", "b", "other:2"), ("HTTPS://other?b", "", "b", "other"),
    ("http://[::1]:2", "", "", "[::1]:2"),
  ])
  func parsesTheTarget(target: String, path: String, query: String, authority: String) throws {
    var connection = HTTPServerConnection()
    connection.receive(Array("GET \(target) HTTP/1.1\r\nHost: h:1\r\n\r\n".utf8).span)
    let event = try connection.nextEvent()
    #expect(event == .head)
    #expect([connection.request.path.text(), connection.request.query.text()] == [path, query])
    let told = connection.request.authority.text()
    #expect(told == authority)
  }

  @Test func recognisesEveryFieldByItsName() throws {
    for field in HTTPFieldName.allCases where field != .other {
      for name in [field.name.description, field.name.description.uppercased()] {
        var decoder = HTTPResponseHeadDecoder()
        let near = String(name.dropLast()) + "~"
        _ = try decoder.append(Array("HTTP/1.1 200 OK\r\n\(name): a\r\n\(near): b\r\n\r\n".utf8).span)
        #expect([decoder.fields.field(at: 0), decoder.fields.field(at: 1)] == [field, .other])
        let value = decoder.fields.first(field.name)?.text()
        #expect(value == "a")
      }
    }
    #expect(HTTPFieldName.allCases.count <= 64, "the set of present fields is a word")
  }
}
