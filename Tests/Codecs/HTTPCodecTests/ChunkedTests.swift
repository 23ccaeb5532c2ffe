import HTTPCodec
import TestSupport
import Testing

@Suite struct ChunkedTests {
  private static let head = "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"

  @Test(arguments: [
    ("1\r\na\r\n0\r\n\r\n", nil), ("0001\r\na\r\n000\r\n\r\n", nil), ("1;a\r\na\r\n0\r\n\r\n", nil),
    ("1 ;\ta = b ; c=\"\\\"\" ;d\r\na\r\n0;e\r\n\r\n", nil), ("1;a=\"\t\u{e9}\"\r\na\r\n0\r\n\r\n", nil),
    ("\r\n", HTTPProtocolError.malformedChunkSize), ("g\r\n", .malformedChunkSize), ("0x1\r\n", .malformedChunkSize),
    ("-1\r\n", .malformedChunkSize), ("+1\r\n", .malformedChunkSize), (" 1\r\n", .malformedChunkSize),
    ("1_0\r\n", .malformedChunkSize), ("1 \r\n", .malformedChunkSize), (";a\r\n", .malformedChunkSize),
    ("1\n", .bareLineFeed), ("1\rX", .bareCarriageReturn), ("1;\r\n", .malformedChunkExtension),
    ("1;a\n", .bareLineFeed), ("1;a=\"b\n", .bareLineFeed), ("1;=b\r\n", .malformedChunkExtension),
    ("1;a=\r\n", .malformedChunkExtension), ("1;a=\"b\r\n", .malformedChunkExtension),
    ("1;a b\r\n", .malformedChunkExtension), ("1;a \r\n", .malformedChunkExtension),
    ("1;a=\"b\"c\r\n", .malformedChunkExtension),
    ("1;a\u{0}\r\n", .malformedChunkExtension), ("00000000000000001\r\n", .malformedChunkSize),
    ("10000000000000000\r\n", .malformedChunkSize), ("ffffffffffffffff\r\n", .contentTooLarge(limit: 16_777_216)),
    ("1000001\r\n", .contentTooLarge(limit: 16_777_216)),
  ])
  func validatesTheSizeLine(body: String, error: HTTPProtocolError?) {
    if let error {
      expectRequests(Self.head + body, ["POST / HTTP/1.1"], error: error)
    } else {
      expectRequests(Self.head + body, ["POST / HTTP/1.1", "content a", "end"])
    }
  }

  @Test(arguments: [
    ("1\r\nab\r\n", HTTPProtocolError.missingChunkEnd), ("1\r\na\n0\r\n\r\n", .bareLineFeed),
    ("1\r\na\rb", .missingChunkEnd),
    ("1\r\na0\r\n\r\n", .missingChunkEnd),
  ])
  func validatesTheEndOfData(body: String, error: HTTPProtocolError) {
    expectRequests(Self.head + body, ["POST / HTTP/1.1", "content a"], error: error)
  }

  @Test(arguments: [
    ("A: b\r\nC:\r\n\r\n", ["trailer A: b", "trailer C: ", "end"], nil), ("\r\n", ["end"], nil),
    ("Content-Length: 5\r\n\r\n", [], HTTPProtocolError.forbiddenTrailer(.contentLength)),
    ("Transfer-Encoding: chunked\r\n\r\n", [], .forbiddenTrailer(.transferEncoding)),
    ("Host: b\r\n\r\n", [], .forbiddenTrailer(.host)), ("A : b\r\n\r\n", [], .whitespaceBeforeColon),
    ("A: b\r\n c\r\n\r\n", [], .foldedField), (" A: b\r\n\r\n", [], .whitespaceBeforeFirstField),
    ("A: b\n\r\n", [], .bareLineFeed),
    ("A b\r\n\r\n", [], .missingColon), ("\n", [], .bareLineFeed), ("\rX", [], .bareCarriageReturn),
  ])
  func validatesTheTrailers(trailers: String, events: [String], error: HTTPProtocolError?) {
    expectRequests(Self.head + "0\r\n" + trailers, ["POST / HTTP/1.1"] + events, error: error)
  }
}
