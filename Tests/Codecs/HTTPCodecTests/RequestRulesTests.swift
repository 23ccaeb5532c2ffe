import HTTPCodec
import TestSupport
import Testing

/// The requirements of RFC 9110 and RFC 9112 on a server that reads requests, rule by rule: the section, a request, and
/// its events. Each case runs whole, byte by byte and split at every place.
@Suite struct RequestRulesTests {
  /// A rule, with an example.
  struct Rule: CustomTestStringConvertible, Sendable {
    let section: String
    let input: String
    let events: [String]
    var error: HTTPProtocolError?
    var endsInput = false
    var testDescription: String { "\(section): \(input.debugDescription.prefix(60))" }

    init(
      _ section: String, _ input: String, _ events: [String] = [], _ error: HTTPProtocolError? = nil,
      endsInput: Bool = false
    ) {
      self.section = section
      self.input = input
      self.events = events
      self.error = error
      self.endsInput = endsInput
    }
  }

  private static let get = "GET / HTTP/1.1\r\nHost: a\r\n"
  private static let post = "POST / HTTP/1.1\r\nHost: a\r\n"
  private static let chunked = post + "Transfer-Encoding: chunked\r\n\r\n"
  private static let gets = ["GET / HTTP/1.1", "end"]

  static let lines: [Rule] = [
    Rule("9112 §2.2 an empty line before the request line is ignored", "\r\n" + get + "\r\n", gets),
    Rule("9112 §2.2 a bare CR is invalid, or a space", "GET / HTTP/1.1\r\nHost: a\rb\r\n\r\n", [], .bareCarriageReturn),
    Rule("9112 §2.2 a bare LF need not be recognised", "GET / HTTP/1.1\nHost: a\n\n", [], .bareLineFeed),
    Rule(
      "9112 §2.2 whitespace before the first field is rejected", "GET / HTTP/1.1\r\n X: y\r\n\r\n", [],
      .whitespaceBeforeFirstField),
    Rule("9112 §2.3 the version is case-sensitive", "GET / Http/1.1\r\n\r\n", [], .malformedVersion),
    Rule("9112 §2.3 a higher minor version is 1.1", "GET / HTTP/1.9\r\nHost: a\r\n\r\n", gets),
    Rule("9110 §6.2 a higher major version is not spoken", "GET / HTTP/3.0\r\n\r\n", [], .versionNotSupported),
    Rule("9110 §9.1 a method is case-sensitive", "get / HTTP/1.1\r\nHost: a\r\n\r\n", ["get / HTTP/1.1", "end"]),
    Rule("9110 §9.1 an unknown method is read", "BREW / HTTP/1.1\r\nHost: a\r\n\r\n", ["BREW / HTTP/1.1", "end"]),
    Rule("9110 §9.3.6 CONNECT is for proxies", "CONNECT a:1 HTTP/1.1\r\nHost: a\r\n\r\n", [], .methodNotSupported),
    Rule(
      "9110 §9.3.8 TRACE is read, since the router refuses it", "TRACE / HTTP/1.1\r\nHost: a\r\n\r\n",
      ["TRACE / HTTP/1.1", "end"]),
    Rule("9112 §3.2 whitespace in a target is an error", "GET /a b HTTP/1.1\r\n\r\n", [], .malformedTarget),
    Rule("9110 §4.2.5 a fragment is never sent", "GET /a#b HTTP/1.1\r\n\r\n", [], .malformedTarget),
  ]

  static let targets: [Rule] = [
    Rule("9112 §3.2.1 origin form", "GET /a/b?c HTTP/1.1\r\nHost: a\r\n\r\n", ["GET /a/b?c HTTP/1.1", "end"]),
    Rule(
      "9112 §3.2.2 absolute form must be accepted", "GET http://b/c HTTP/1.1\r\nHost: a\r\n\r\n",
      ["GET http://b/c HTTP/1.1", "end"]),
    Rule("9112 §3.2.2 absolute form needs a Host, too", "GET http://b/c HTTP/1.1\r\n\r\n", [], .missingHost),
    Rule(
      "9112 §3.2.3 authority form is for CONNECT only", "GET a:80 HTTP/1.1\r\nHost: a\r\n\r\n", [],
      .targetFormNotAllowed),
    Rule(
      "9112 §3.2.4 asterisk form is for OPTIONS", "OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n",
      ["OPTIONS * HTTP/1.1", "end"]),
    Rule(
      "9112 §3.2.4 asterisk form is for no other method", "GET * HTTP/1.1\r\nHost: a\r\n\r\n", [], .targetFormNotAllowed
    ),
    Rule("9112 §3.2 without Host: 400", "GET / HTTP/1.1\r\n\r\n", [], .missingHost),
    Rule("9112 §3.2 two Hosts: 400", get + "Host: a\r\n\r\n", [], .repeatedField(.host)),
    Rule("9112 §3.2 an invalid Host: 400", "GET / HTTP/1.1\r\nHost: a b\r\n\r\n", [], .malformedHost),
    Rule("9112 §3.2 an empty Host is valid", "GET / HTTP/1.1\r\nHost:\r\n\r\n", gets),
    Rule("9112 §3.2 HTTP/1.0 needs no Host", "GET / HTTP/1.0\r\n\r\n", ["GET / HTTP/1.0", "end", "closed"]),
    Rule(
      "9110 §4.2.4 user information is an error", "GET http://u:p@b/ HTTP/1.1\r\nHost: b\r\n\r\n", [], .malformedTarget),
  ]

  static let fields: [Rule] = [
    Rule("9112 §5 a name is a token", get + "X(y): z\r\n\r\n", [], .malformedFieldName),
    Rule("9112 §5 a field has a colon", get + "X\r\n\r\n", [], .missingColon),
    Rule("9112 §5.1 no whitespace before the colon: 400", get + "X : y\r\n\r\n", [], .whitespaceBeforeColon),
    Rule(
      "9112 §5.1 whitespace around a value is not part of it", post + "Content-Length: \t1\t \r\n\r\nz",
      ["POST / HTTP/1.1", "content z", "end"]),
    Rule("9112 §5.2 a folded line: 400", get + "X: y\r\n z\r\n\r\n", [], .foldedField),
    Rule("9110 §5.5 CR, LF and NUL in a value are dangerous", get + "X: \u{0}\r\n\r\n", [], .forbiddenByte(0)),
    Rule("9110 §5.5 other control characters too", get + "X: \u{1}\r\n\r\n", [], .forbiddenByte(1)),
    Rule("9110 §5.5 bytes above 127 are opaque", get + "X: \u{e9}\u{4e2d}\r\n\r\n", gets),
    Rule("9110 §5.5 a value may be empty", get + "X:\r\n\r\n", gets),
    Rule(
      "9110 §5.1 names are case-insensitive", post + "CONTENT-LENGTH: 1\r\n\r\nz",
      ["POST / HTTP/1.1", "content z", "end"]),
    Rule(
      "9110 §5.3 a list may have several lines", get + "Connection: x\r\nConnection: close\r\n\r\n", gets + ["closed"]),
  ]

  static let framing: [Rule] = [
    Rule(
      "9112 §6.1 an unknown coding: 501", post + "Transfer-Encoding: zip, chunked\r\n\r\n", [],
      .transferCodingNotSupported),
    Rule(
      "9112 §6.1 chunked only once", post + "Transfer-Encoding: chunked, chunked\r\n\r\n", [],
      .malformedTransferEncoding),
    Rule(
      "9112 §6.1 in HTTP/1.0 the framing is faulty", "POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n", [],
      .transferEncodingInHTTP10),
    Rule(
      "9112 §6.1 beside Content-Length it may be rejected",
      post + "Content-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n", [], .contentLengthWithTransferEncoding),
    Rule(
      "9112 §6.3 chunked not last: 400", post + "Transfer-Encoding: chunked, gzip\r\n\r\n", [],
      .malformedTransferEncoding),
    Rule("9112 §6.3 an invalid length: 400 and close", post + "Content-Length: z\r\n\r\n", [], .malformedContentLength),
    Rule(
      "9112 §6.3 differing lengths: 400 and close", post + "Content-Length: 1\r\nContent-Length: 2\r\n\r\n", [],
      .repeatedContentLength),
    Rule(
      "9110 §8.6 a length of any size is read without overflow", post + "Content-Length: 36893488147419103233\r\n\r\n",
      [], .contentTooLarge(limit: 16_777_216)),
    Rule("1945 §8.3 a POST of HTTP/1.0 without a length: 400", "POST / HTTP/1.0\r\n\r\nz", [], .missingContentLength),
    Rule(
      "1945 §8.3 a POST of HTTP/1.0 with a length of zero", "POST / HTTP/1.0\r\nContent-Length: 0\r\n\r\n",
      ["POST / HTTP/1.0", "end", "closed"]),
    Rule(
      "9110 §8.6 zeros before a length mean nothing", post + "Content-Length: 0000000000000000000000001\r\n\r\nz",
      ["POST / HTTP/1.1", "content z", "end"]),
    Rule(
      "9112 §6.3 a length of zero", post + "Content-Length: 0\r\n\r\n" + get + "\r\n",
      ["POST / HTTP/1.1", "end"] + gets),
    Rule("9112 §6.3 neither field: no content", post + "\r\n" + get + "\r\n", ["POST / HTTP/1.1", "end"] + gets),
    Rule(
      "9112 §7 chunked is case-insensitive", post + "Transfer-Encoding: Chunked\r\n\r\n0\r\n\r\n",
      ["POST / HTTP/1.1", "end"]),
    Rule(
      "9112 §7.1 sizes are hexadecimal in either case", chunked + "A\r\n0123456789\r\na\r\n0123456789\r\n0\r\n\r\n",
      ["POST / HTTP/1.1", "content 01234567890123456789", "end"]),
    Rule(
      "9112 §7.1 large sizes must not overflow", chunked + "8000000000000000\r\n", ["POST / HTTP/1.1"],
      .contentTooLarge(limit: 16_777_216)),
    Rule("9112 §7.1 several zeros end as one", chunked + "000\r\n\r\n", ["POST / HTTP/1.1", "end"]),
    Rule(
      "9112 §7.1.1 unknown extensions are ignored", chunked + "1;a;b=c;d=\"e;\\\"f\"\r\nz\r\n0;g\r\n\r\n",
      ["POST / HTTP/1.1", "content z", "end"]),
    Rule(
      "9112 §7.1.2 trailers are read apart", chunked + "0\r\nX: y\r\n\r\n",
      ["POST / HTTP/1.1", "trailer X: y", "end"]),
    Rule(
      "9110 §6.5.1 framing is not for trailers", chunked + "0\r\nContent-Length: 1\r\n\r\n", ["POST / HTTP/1.1"],
      .forbiddenTrailer(.contentLength)),
  ]

  static let connections: [Rule] = [
    Rule("9112 §8 a head that breaks off", "GET / HTTP/1.1\r\nHo", [], .truncatedMessage, endsInput: true),
    Rule(
      "9112 §8 content that breaks off", post + "Content-Length: 2\r\n\r\nz", ["POST / HTTP/1.1", "content z"],
      .truncatedMessage, endsInput: true),
    Rule(
      "9112 §8 chunks that break off", chunked + "1\r\nz\r\n", ["POST / HTTP/1.1", "content z"], .truncatedMessage,
      endsInput: true),
    Rule(
      "9112 §8 chunks that break off in a trailer", chunked + "0\r\nX: y\r\n", ["POST / HTTP/1.1"],
      .truncatedMessage, endsInput: true),
    Rule("9112 §9.3 1.1 stays open", get + "\r\n" + get + "\r\n", gets + gets),
    Rule("9112 §9.3 close closes", get + "Connection: close\r\n\r\n" + get + "\r\n", gets + ["closed"]),
    Rule("9112 §9.3 close in a list, in any case", get + "Connection: te, CLOSE\r\n\r\n", gets + ["closed"]),
    Rule("9112 §9.3 close overrides keep-alive", get + "Connection: keep-alive, close\r\n\r\n", gets + ["closed"]),
    Rule("9112 §9.3 1.0 closes", "GET / HTTP/1.0\r\n\r\n", ["GET / HTTP/1.0", "end", "closed"]),
    Rule(
      "9112 §9.3 1.0 with keep-alive stays open", "GET / HTTP/1.0\r\nConnection: Keep-Alive\r\n\r\n",
      ["GET / HTTP/1.0", "end"]),
    Rule(
      "9112 §9.3.2 pipelined requests are read one by one",
      post + "Content-Length: 1\r\n\r\nz" + chunked + "1\r\ny\r\n0\r\n\r\n" + get + "\r\n",
      ["POST / HTTP/1.1", "content z", "end", "POST / HTTP/1.1", "content y", "end"] + gets),
    Rule(
      "9112 §9.6 bytes after a request with close are ignored", get + "Connection: close\r\n\r\n\u{0}\u{0}",
      gets + ["closed"]),
    Rule("9110 §10.1.1 an unknown expectation: 417", get + "Expect: tea\r\n\r\n", [], .expectationNotSupported),
    Rule(
      "9110 §10.1.1 in HTTP/1.0 100-continue is ignored",
      "POST / HTTP/1.0\r\nContent-Length: 0\r\nExpect: 100-continue\r\n\r\n",
      ["POST / HTTP/1.0", "end", "closed"]),
    Rule("9110 §7.8 an upgrade may be ignored", get + "Connection: upgrade\r\nUpgrade: websocket\r\n\r\n", gets),
  ]

  @Test(arguments: lines + targets + fields + framing + connections)
  func obeysTheRule(rule: Rule) {
    expectRequests(rule.input, rule.events, error: rule.error, endsInput: rule.endsInput)
  }

  /// RFC 9112 §3: a server should accept request lines of at least 8000 bytes.
  @Test func acceptsARequestLineOf8000Bytes() {
    let target = "/" + String(repeating: "a", count: 8000 - "GET / HTTP/1.1".count)
    let events = serverTranscript([Array("GET \(target) HTTP/1.1\r\nHost: a\r\n\r\n".utf8)])
    #expect(events == ["GET \(target) HTTP/1.1", "end"])
  }

  /// Clients rely on the status of an error, so each error must have the right status (RFC 9110 §15.5, §15.6).
  @Test func everyErrorHasTheRightStatus() {
    let expected: [(HTTPProtocolError, HTTPStatus)] = [
      (.requestLineTooLong(limit: 1), .uriTooLong), (.headTooLarge(limit: 1), .headerFieldsTooLarge),
      (.tooManyFields(limit: 1), .headerFieldsTooLarge), (.contentTooLarge(limit: 1), .contentTooLarge),
      (.methodNotSupported, .methodNotAllowed), (.transferCodingNotSupported, .notImplemented),
      (.versionNotSupported, .versionNotSupported), (.expectationNotSupported, .expectationFailed),
      (.missingHost, .badRequest), (.truncatedMessage, .badRequest),
    ]
    for (error, status) in expected {
      #expect(error.status == status)
      #expect(!error.description.hasSuffix(".") && !error.description.contains("\n"))
    }
  }
}
