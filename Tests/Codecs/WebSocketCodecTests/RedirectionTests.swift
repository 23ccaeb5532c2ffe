import HTTPCodec
import Testing

@testable import WebSocketCodec

@Suite struct RedirectionTests {
  /// The references of RFC 3986 §5.4 that are relevant here.
  @Test(arguments: [
    ("wss://other.example/x?y", "wss://other.example:443/x?y"),
    ("https://other.example/x", "wss://other.example:443/x"),
    ("HTTPS://other.example", "wss://other.example:443/"), ("//other.example:1/x", "wss://other.example:1/x"),
    ("/g", "wss://a.example:443/g"), ("/g?y", "wss://a.example:443/g?y"), ("?y", "wss://a.example:443/b/c/d?y"),
    ("g", "wss://a.example:443/b/c/g"), ("g/", "wss://a.example:443/b/c/g/"), ("./g", "wss://a.example:443/b/c/g"),
    (".", "wss://a.example:443/b/c/"), ("..", "wss://a.example:443/b/"), ("../g", "wss://a.example:443/b/g"),
    ("../../../g", "wss://a.example:443/g"), ("g?y/../x", "wss://a.example:443/b/c/g?y/../x"),
    ("/a/./b/../c", "wss://a.example:443/a/c"), ("g;x=1", "wss://a.example:443/b/c/g;x=1"),
    ("", "wss://a.example:443/b/c/d?q"), ("//[::1]/", "wss://[::1]:443/"),
    // A fragment is never sent.
    ("g#s", "wss://a.example:443/b/c/g"), ("#s", "wss://a.example:443/b/c/d?q"),
    ("wss://other.example/x?y#s", "wss://other.example:443/x?y"), ("//other.example#s", "wss://other.example:443/"),
  ])
  func resolvesAReference(location: String, expected: String) throws {
    let url = try WebSocketURL("wss://a.example/b/c/d?q").redirected(to: location)
    #expect("\(url.isSecure ? "wss" : "ws")://\(url.authority)\(url.target)" == expected)
  }

  @Test func keepsCredentialsForTheSameOriginOnly() throws {
    let url = try WebSocketURL("wss://user:pw@example.org/old")
    for location in ["/new", "https://EXAMPLE.org/x", "wss://example.org:443/x", "new#part"] {
      #expect(try url.redirected(to: location).credentials == "user:pw", "\(location)")
    }
    for location in ["wss://other.org/x", "wss://example.org:444/x", "//example.org.other.org/"] {
      #expect(try url.redirected(to: location).credentials == nil, "\(location)")
    }
    let plain = try WebSocketURL("ws://user:pw@example.org/old")
    #expect(try plain.redirected(to: "wss://example.org/x").credentials == nil)
  }

  @Test(arguments: ["ws://a.example/", "http://a.example/", "ws://other.example/"])
  func refusesARedirectionFromTLSToPlaintext(location: String) throws {
    let url = try WebSocketURL("wss://a.example/")
    #expect(throws: RedirectionError.toPlaintext) { try url.redirected(to: location) }
    let plain = try WebSocketURL("ws://a.example/")
    #expect(throws: Never.self) { _ = try plain.redirected(to: location) }
  }

  @Test(
    arguments: [
      ("mailto:me", .noScheme), ("ftp://h/", .wrongScheme("ftp")), ("https:///x", .authority(.badHost)),
      ("https://h:0/", .authority(.badPort)),
      ("/a b", .authority(.badCharacter)), ("/ä", .authority(.badCharacter)), ("//", .authority(.badHost)),
      ("//[[]/", .authority(.badHost)),
      ("javascript:alert(1)", .noScheme),
    ] as [(String, WebSocketURLError)])
  func followsRedirectionsToWebSocketURLsOnly(location: String, error: WebSocketURLError) throws {
    let url = try WebSocketURL("wss://a.example/")
    #expect(throws: RedirectionError.notWebSocketURL(error)) { try url.redirected(to: location) }
  }
}
