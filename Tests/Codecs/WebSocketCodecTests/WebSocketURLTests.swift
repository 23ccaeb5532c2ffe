import HTTPCodec
import Testing

@testable import WebSocketCodec

@Suite struct WebSocketURLTests {
  @Test func parsesURLs() throws {
    let plain = try WebSocketURL("ws://example.org")
    #expect(plain.host == "example.org" && plain.port == 80 && plain.target == "/" && !plain.isSecure)
    #expect(plain.hostField == "example.org")
    let full = try WebSocketURL("WSS://us%40er:p%3Ass@[::1]:8443/a/b?c=d")
    #expect(full.host == "::1" && full.port == 8443 && full.target == "/a/b?c=d" && full.isSecure)
    #expect(full.credentials == "us@er:p:ss")
    #expect(full.hostField == "[::1]:8443")
    #expect(full.redacted == "wss://[::1]:8443/a/b")
    #expect(full.basicAuthorization == "Basic dXNAZXI6cDpzcw==")
    #expect(try WebSocketURL("ws://h?x").target == "/?x")
    #expect(try WebSocketURL("ws://[fe80::1%eth0]:81").host == "fe80::1%eth0")
    #expect(try WebSocketURL("ws://a_b.c-d~").host == "a_b.c-d~")
  }

  /// RFC 6874: the zone is valid only on this machine. It is not part of a request, but relative redirects keep it.
  @Test(arguments: ["ws://[fe80::1%25eth0]:81/a?b", "ws://[fe80::1%eth0]:81/a?b", "ws://[fe80::1%25%65th0]:81/a?b"])
  func doesNotSendTheZoneOfAnAddress(text: String) throws {
    let url = try WebSocketURL(text)
    #expect(url.host == "fe80::1%eth0")
    #expect(url.hostField == "[fe80::1]:81" && url.authority == "[fe80::1]:81")
    #expect(url.redacted == "ws://[fe80::1%25eth0]:81/a")
    #expect(url.server == "fe80::1%eth0:81")
    #expect(try url.redirected(to: "c").host == url.host)
    #expect(try WebSocketURL(url.text) == url)
  }

  @Test func reportsTheFault() {
    let cases: [(String, WebSocketURLError)] = [
      ("example.org", .noScheme), ("ann:secret@h/x?to=ws://h", .noScheme), ("s3cret token://h", .noScheme),
      ("http://h", .wrongScheme("http")), ("ws://", .authority(.badHost)), ("ws://:80", .authority(.badHost)),
      ("ws://h:0", .authority(.badPort)), ("ws://h:65536", .authority(.badPort)), ("ws://h:x", .authority(.badPort)),
      ("ws://h:+80", .authority(.badPort)),
      ("ws://h/#a", .fragment),
      ("wss://bücher.example/a", .authority(.internationalName)), ("ws://u@例え.jp:1", .authority(.internationalName)),
      ("ws://ü@h/ä", .authority(.badCharacter)), ("ws://u:a/b@h/x", .authority(.unencodedDelimiter)),
      ("ws://h:x/a", .authority(.badPort)), ("ws://h/ä", .authority(.badCharacter)),
      ("ws://h/\r\nX: y", .authority(.badCharacter)),
      ("ws://%zz@h", .authority(.badEscape)),
      ("ws://%+f@h", .authority(.badEscape)),
      ("ws://[::1", .authority(.badHost)), ("ws://[]", .authority(.badHost)), ("ws://[[]", .authority(.badHost)),
      ("ws://[h]", .authority(.badHost)),
      ("ws://[127.0.0.1]", .authority(.badHost)), ("ws://[::1]x", .authority(.badHost)),
      ("ws://[fe80::1%]", .authority(.badHost)),
      ("ws://[fe80::1%25]", .authority(.badHost)), ("ws://[fe80::1%25a%20b]", .authority(.badHost)),
      ("ws://::1", .authority(.badHost)),
      ("ws://h]", .authority(.badHost)), ("ws://a\"b", .authority(.badHost)), ("ws://a\\b", .authority(.badHost)),
      ("ws://a^b", .authority(.badHost)),
    ]
    for (text, error) in cases {
      #expect(throws: error) { try WebSocketURL(text) }
    }
  }

  @Test(arguments: [
    "ws://example.org/", "wss://us%40er%3Ap%25ss@h:1/a?b=c", "ws://[2001:db8::1]:81/", "ws://:@h/",
    "ws://[fe80::1%25eth0]/",
  ])
  func readsBackWhatItWrites(text: String) throws {
    #expect(try WebSocketURL(text).text == text || text == "ws://:@h/")
    #expect(try WebSocketURL(WebSocketURL(text).text) == WebSocketURL(text))
  }
}
