import HTTPCodec
import TestSupport
import Testing

/// Requests that two servers in a row could read in different ways, so that one of them takes content for a request.
/// Each must be refused, or read in the only way that the RFC allows.
///
/// The smuggled request is for `/admin`. No event may ever name it, however the input is split.
@Suite struct SmugglingTests {
  private static let smuggled = "GET /admin HTTP/1.1\r\nHost: a\r\n\r\n"
  private static let next = "GET /next HTTP/1.1\r\nHost: a\r\n\r\n"

  /// Expects the events of `prefix`, one refusal, and nothing after it, when the input arrives whole, byte by byte and
  /// split at every place.
  private func expectRefusal(
    of input: String, behind prefix: [String] = [], sourceLocation: SourceLocation = #_sourceLocation
  ) {
    let bytes = Array(input.utf8)
    var ways: [[[UInt8]]] = [[bytes], bytes.map { [$0] }]
    for split in 0...bytes.count { ways.append([Array(bytes[..<split]), Array(bytes[split...])]) }
    for way in ways {
      let events = serverTranscript(way)
      let isRefused =
        events.count == prefix.count + 1 && Array(events.dropLast()) == prefix
        && (events.last.map { $0.hasPrefix("4") || $0.hasPrefix("50") } ?? false)
      guard isRefused else {
        Issue.record("in \(way.count) pieces: \(events)", sourceLocation: sourceLocation)
        return
      }
    }
  }

  // MARK: Two framings in one head

  /// The name of the field, in forms that only a lenient server accepts. One server sees Transfer-Encoding, the other
  /// Content-Length.
  @Test(arguments: [
    "Transfer-Encoding: chunked", "transfer-encoding: chunked", "Transfer-Encoding:chunked",
    "Transfer-Encoding:\tchunked", "Transfer-Encoding: chunked ", "Transfer-Encoding : chunked",
    "Transfer-Encoding\t: chunked", " Transfer-Encoding: chunked", "\tTransfer-Encoding: chunked",
    "X: y\r\n Transfer-Encoding: chunked", "X: y\rTransfer-Encoding: chunked", "X: y\nTransfer-Encoding: chunked",
    "X: y\r\n\rTransfer-Encoding: chunked", "\u{0}Transfer-Encoding: chunked", "Transfer-Encoding\u{0}: chunked",
    "Transfer-Encoding:\u{0}chunked", "Transfer-Encoding: chunked\u{0}", "Transfer-Encoding:\u{b}chunked",
    "Transfer-Encoding:\u{c}chunked", "Transfer-Encoding: chunked\u{7f}", "Transfer-Encoding:\r\n chunked",
    "Transfer-Encoding: \r\n\tchunked", "Transfer-Encoding\r\n: chunked", "Transfer Encoding: chunked",
    "\"Transfer-Encoding\": chunked", "Transfer-Encoding; chunked", "Transfer-Encoding chunked",
    "\u{a0}Transfer-Encoding: chunked", "Transfer-Encoding\u{2028}: chunked", ": Transfer-Encoding: chunked",
  ])
  func refusesATransferEncodingBesideContentLength(field: String) {
    for head in ["Content-Length: 5\r\n\(field)\r\n", "\(field)\r\nContent-Length: 5\r\n"] {
      expectRefusal(of: "POST / HTTP/1.1\r\nHost: a\r\n\(head)\r\n0\r\n\r\n\(Self.smuggled)")
    }
  }

  /// The value: some servers take a similar coding for `chunked`, and others do not.
  @Test(arguments: [
    "xchunked", "chunked x", "chunked, x", "x, chunked", "chunked, chunked", "chunked,identity", "identity, chunked",
    "identity", "gzip", "gzip, chunked", "\"chunked\"", "'chunked'", "chunked;", "chunked;q=0.5", "chun ked",
    "chunked\u{b}", "chunke\u{212a}", "\u{fb00}chunked", "", ",", "chunked\r\nTransfer-Encoding: identity",
    "chunked\r\nTransfer-Encoding: chunked", "identity\r\nTransfer-Encoding: chunked",
    "x\r\nTransfer-Encoding: chunked", "\r\nTransfer-Encoding: chunked, x", "chunked\r\n\tx",
  ])
  func refusesACodingThatIsNotChunkedAlone(value: String) {
    expectRefusal(of: "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: \(value)\r\n\r\n0\r\n\r\n\(Self.smuggled)")
  }

  /// Case, surrounding whitespace and empty elements are allowed in a list (RFC 9110 §5.6.1), so these values mean
  /// chunked and nothing else.
  @Test(arguments: ["chunked", "CHUNKED", "cHuNkEd", " \tchunked\t ", "chunked,", ", chunked", " , chunked ,\t,"])
  func readsEveryValidSpellingOfChunked(value: String) {
    expectRequests(
      "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding:\(value)\r\n\r\n3\r\nabc\r\n0\r\n\r\n\(Self.next)",
      ["POST / HTTP/1.1", "content abc", "end", "GET /next HTTP/1.1", "end"])
  }

  /// The length: one server reads a number, and the other server reads a different number or none.
  @Test(arguments: [
    "+5", "-0", "-5", "0x5", "0X5", "5 ", "5,", ",5", "5, 5", "5,6", "5;6", "5 6", "5.0", "5e0", "1_0", "٥", "５",
    "\"5\"", "",
    "5\r\nContent-Length: 5", "5\r\nContent-Length: 6", "6\r\ncontent-length: 5", "0\r\nContent-Length: 5",
    "5\r\n 6", "\u{b}5", "5\u{0}", "18446744073709551621", "4294967301", "9223372036854775813",
    "99999999999999999999999999999999",
  ])
  func refusesALengthThatIsNotOneNumber(value: String) {
    // Whitespace around a value is not part of it (RFC 9112 §5).
    guard value != "5 " else {
      return expectRequests(
        "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5 \r\n\r\nhello\(Self.next)",
        ["POST / HTTP/1.1", "content hello", "end", "GET /next HTTP/1.1", "end"])
    }
    expectRefusal(of: "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: \(value)\r\n\r\nhello\(Self.smuggled)")
  }

  /// Names that only resemble Content-Length do not frame content. A server must refuse the name or read no content.
  @Test(arguments: ["Content-Length\u{0}: 5", "Content-Length : 5", "Content_Length 5", "Content-Length\t: 5"])
  func refusesANameThatOnlyLooksLikeTheLength(field: String) {
    expectRefusal(of: "POST / HTTP/1.1\r\nHost: a\r\n\(field)\r\n\r\n\(Self.smuggled)")
  }

  /// RFC 9112 §6.3, rule 7: without either field there is no content, even for a method that usually has some. The next
  /// bytes are a request.
  @Test(arguments: ["GET", "POST", "PUT", "DELETE", "OPTIONS"])
  func withoutFramingThereIsNoContent(method: String) {
    expectRequests(
      "\(method) / HTTP/1.1\r\nHost: a\r\n\r\n\(Self.next)",
      ["\(method) / HTTP/1.1", "end", "GET /next HTTP/1.1", "end"])
  }

  /// CL.0: content of a GET, which some servers ignore, is still content.
  @Test(arguments: ["GET", "HEAD", "DELETE", "OPTIONS"])
  func contentOfAnyMethodIsContent(method: String) {
    expectRequests(
      "\(method) / HTTP/1.1\r\nHost: a\r\nContent-Length: \(Self.smuggled.utf8.count)\r\n\r\n\(Self.smuggled)\(Self.next)",
      ["\(method) / HTTP/1.1", "content \(Self.smuggled)", "end", "GET /next HTTP/1.1", "end"])
  }

  /// HTTP/1.0 has no transfer codings. An old relay would pass the field on and read to the end of the connection.
  @Test func refusesTransferEncodingInHTTP10() {
    expectRefusal(
      of: "POST / HTTP/1.0\r\nConnection: keep-alive\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n\(Self.smuggled)")
  }

  // MARK: The framing of chunks

  /// Chunk-size lines in which a lenient reader finds another end or another number.
  @Test(arguments: [
    "0x0\r\n", "+0\r\n", "-0\r\n", " 0\r\n", "0 \r\n", "0\t\r\n", "\r\n", "0\n", "0\r", "0\r\r\n", "0;\n", "0;a\n",
    "0;a=b\n", "0;\r\n", "0;a=\"\n\"\r\n", "0;a=\"\r\n\"\r\n", "0;a\rb\r\n", "0;a=\"b\r\n", "0;a\u{0}\r\n",
    "g\r\n", "0_0\r\n", "0,0\r\n", "0.0\r\n", "00000000000000000\r\n", "10000000000000000\r\n",
    "fffffffffffffffff\r\n", "٠\r\n", "0\u{b}\r\n", "0\u{a0}\r\n",
  ])
  func refusesAnAmbiguousSizeLine(line: String) {
    expectRefusal(
      of: "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n\(line)\r\n\(Self.smuggled)",
      behind: ["POST / HTTP/1.1"])
  }

  /// Data that does not end where its size says. A server that searches for the line end would continue at a different
  /// place.
  @Test(arguments: [
    "3\r\nabcd\r\n", "3\r\nabc\n", "3\r\nabc\r", "3\r\nabcXX", "3\r\nabc0\r\n", "3\r\nabc\n\r", "3\r\nabc \r\n",
  ])
  func refusesDataOfTheWrongLength(chunk: String) {
    expectRefusal(
      of: "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n\(chunk)0\r\n\r\n\(Self.smuggled)",
      behind: ["POST / HTTP/1.1", "content abc"])
  }

  /// A trailer section whose end is ambiguous, or fields in it that would change the meaning of the head.
  @Test(arguments: [
    "\n", "\r", "\r\r\n", "A: b\n\r\n", "A: b\r\r\n", "A: b\r\n \r\n", "A : b\r\n\r\n", ": b\r\n\r\n", "A b\r\n\r\n",
    "A: \u{0}\r\n\r\n", "Content-Length: 5\r\n\r\n", "Transfer-Encoding: chunked\r\n\r\n", "Host: b\r\n\r\n",
    "Content-Type: a/b\r\n\r\n", "Authorization: x\r\n\r\n", "GET /admin HTTP/1.1\r\nHost: a\r\n\r\n",
  ])
  func refusesAnAmbiguousTrailerSection(section: String) {
    expectRefusal(
      of: "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\(section)X\(Self.smuggled)",
      behind: ["POST / HTTP/1.1"])
  }

  // MARK: The request line and the host

  /// A request line in which another server finds a different target, version or end.
  @Test(arguments: [
    "GET /\tHTTP/1.1", "GET  / HTTP/1.1", "GET / HTTP/1.1 ", "GET /  HTTP/1.1", " GET / HTTP/1.1", "GET\t/ HTTP/1.1",
    "GET / HTTP/1.1\r", "GET / HTTP/1.1\u{0}", "GET / HTTP/1.1 HTTP/1.1", "GET / /admin HTTP/1.1", "GET /", "GET",
    "GET / http/1.1", "GET / HTTP/1.10", "GET / HTTP/01.1", "GET / HTTP/1,1", "GET / HTTP/2.0", "GET / HTTP/0.9",
    "GET / HTTP /1.1", "GET / HTTPS/1.1", "GE\u{0}T / HTTP/1.1", "GET: / HTTP/1.1", "GET /#/admin HTTP/1.1",
    "GET /\\admin HTTP/1.1", "GET /% HTTP/1.1", "GET /%0 HTTP/1.1", "GET /%gg HTTP/1.1", "GET /\u{7f} HTTP/1.1",
    "GET //a@b\u{e9} HTTP/1.1", "GET http://a:b@c/ HTTP/1.1", "GET http:/admin HTTP/1.1", "GET \"/\" HTTP/1.1",
  ])
  func refusesAnAmbiguousRequestLine(line: String) {
    expectRefusal(of: "\(line)\r\nHost: a\r\n\r\n\(Self.smuggled)")
  }

  /// The requested host must be unambiguous: a router in front may have used the other of two hosts.
  @Test(arguments: [
    "", "Host: a\r\nHost: a\r\n", "Host: a\r\nHost: b\r\n", "Host: a\r\nhOsT: b\r\n", "Host : a\r\n", " Host: a\r\n",
    "X: y\r\n Host: b\r\nHost: a\r\n", "Host: a, b\r\n", "Host: a b\r\n", "Host: a/b\r\n", "Host: u@a\r\n",
    "Host: a:x\r\n",
    "Host: a:80:81\r\n", "Host: a:99999\r\n", "Host: [::1\r\n", "Host: ::1\r\n", "Host: [::1]a\r\n", "Host: a#b\r\n",
    "Host: a?b\r\n", "Host: a\u{0}b\r\n", "Host: a\\b\r\n", "Host: \"a\"\r\n", "Host: a%\r\n", "Host: http://a\r\n",
  ])
  func refusesAnAmbiguousHost(fields: String) {
    expectRefusal(of: "GET / HTTP/1.1\r\n\(fields)\r\n\(Self.smuggled)")
  }

  /// Once the framing of a connection is lost, its further input is ignored, however valid it looks.
  @Test func bytesAfterARefusedRequestAreNeverARequest() {
    for count in 1...3 {
      let good = String(repeating: Self.next, count: count)
      expectRefusal(
        of: "\(good)POST / HTTP/1.1\r\nHost: a\r\nContent-Length: x\r\n\r\n\(Self.smuggled)\(Self.smuggled)",
        behind: Array(repeating: ["GET /next HTTP/1.1", "end"], count: count).flatMap { $0 })
    }
  }
}
