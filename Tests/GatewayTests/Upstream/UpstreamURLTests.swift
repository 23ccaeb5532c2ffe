import ByteStreams
import Reactor
import Testing

@testable import Gateway

@Suite struct UpstreamURLTests {
  @Test func takesURLsApart() throws {
    let plain = try UpstreamURL("ws://example.org")
    #expect(plain.host == "example.org" && plain.port == 80 && plain.target == "/" && !plain.isSecure)
    #expect(plain.hostField == "example.org")
    let full = try UpstreamURL("WSS://us%40er:p%3Ass@[::1]:8443/a/b?c=d")
    #expect(full.host == "::1" && full.port == 8443 && full.target == "/a/b?c=d" && full.isSecure)
    #expect(full.credentials == "us@er:p:ss")
    #expect(full.hostField == "[::1]:8443")
    #expect(full.redacted == "wss://[::1]:8443/a/b")
    #expect(full.basicAuthorization == "Basic dXNAZXI6cDpzcw==")
    #expect(try UpstreamURL("ws://h?x").target == "/?x")
  }

  @Test func saysWhatIsWrong() {
    let cases: [(String, UpstreamURLError)] = [
      ("example.org", .noScheme), ("http://h", .wrongScheme("http")), ("ws://", .badHost), ("ws://:80", .badHost),
      ("ws://h:0", .badPort), ("ws://h:65536", .badPort), ("ws://h:x", .badPort), ("ws://h/#a", .fragment),
      ("ws://h/ä", .badCharacter), ("ws://h/\r\nX: y", .badCharacter), ("ws://%zz@h", .badEscape),
      ("ws://[::1", .badHost),
    ]
    for (text, error) in cases {
      #expect(throws: error) { try UpstreamURL(text) }
    }
  }

  @Test func followsRedirectionsWithCredentialsToTheSameOriginOnly() throws {
    let url = try UpstreamURL("wss://user@example.org/old?q")
    #expect(url.redirected(to: "/new")?.credentials == "user")
    #expect(url.redirected(to: "/new")?.redacted == "wss://example.org/new")
    #expect(url.redirected(to: "https://example.org/x")?.credentials == "user")
    #expect(url.redirected(to: "wss://other.org/x")?.credentials == nil)
    #expect(url.redirected(to: "http://example.org/x")?.isSecure == false)
    #expect(url.redirected(to: "mailto:me") == nil)
  }

  @Test func readsRetryAfterInBothForms() {
    #expect(RetryAfter.read("120", now: 0) == .seconds(120))
    #expect(RetryAfter.read("Sun, 06 Nov 1994 08:49:37 GMT", now: 784_111_777 - 30) == .seconds(30))
    #expect(RetryAfter.read("Sun, 06 Nov 1994 08:49:37 GMT", now: 784_111_777 + 30) == .zero)
    #expect(RetryAfter.httpDate("Thu, 01 Jan 1970 00:00:00 GMT") == 0)
    #expect(RetryAfter.httpDate("Thu, 29 Feb 2024 12:00:00 GMT") == 1_709_208_000)
    #expect(RetryAfter.read("-1", now: 0) == nil)
    #expect(RetryAfter.read("soon", now: 0) == nil)
  }

  @Test func triesFamiliesInTurn() {
    let six: [SocketAddress] = (1...3).map { .ipv6(high: 0, low: $0, port: 1, scope: 0) }
    let four: [SocketAddress] = (1...2).map { .ipv4($0, port: 1) }
    #expect(ConnectRace.interleaved(six + four) == [six[0], four[0], six[1], four[1], six[2]])
    #expect(ConnectRace.interleaved(four + six) == [four[0], six[0], four[1], six[1], six[2]])
    #expect(ConnectRace.interleaved([]) == [])
  }
}
