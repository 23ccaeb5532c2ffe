import ByteStreams
import Testing

@testable import Upstream
@testable import Reactor

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
    #expect(try UpstreamURL("ws://[fe80::1%eth0]:81").host == "fe80::1%eth0")
    #expect(try UpstreamURL("ws://a_b.c-d~").host == "a_b.c-d~")
  }

  /// RFC 6874: the zone is for this machine. It is in no request, and kept where a redirection is relative.
  @Test(arguments: ["ws://[fe80::1%25eth0]:81/a?b", "ws://[fe80::1%eth0]:81/a?b", "ws://[fe80::1%25%65th0]:81/a?b"])
  func keepsAZoneToItself(text: String) throws {
    let url = try UpstreamURL(text)
    #expect(url.host == "fe80::1%eth0")
    #expect(url.hostField == "[fe80::1]:81" && url.authority == "[fe80::1]:81")
    #expect(url.redacted == "ws://[fe80::1%25eth0]:81/a")
    #expect(url.server == "fe80::1%eth0:81")
    #expect(try url.redirected(to: "c").host == url.host)
    #expect(try ProxyURL("http://[fe80::1%25eth0]").host == url.host)
    #expect(try ProxyURL("http://[fe80::1%25eth0]").redacted == "http://[fe80::1%25eth0]:80")
  }

  @Test func findsTheInterfaceOfAZone() async throws {
    let loopback = SocketAddress.ipv6(high: 0xFE80 << 48, low: 1, port: 8080, scope: 1)
    #expect(loopback.description == "[fe80::1%1]:8080")
    let resolver = Resolver()
    #expect(await resolver.resolve(host: "fe80::1%lo", port: 8080) == .success([loopback]))
    #expect(
      await resolver.resolve(host: "fe80::1%nowhere", port: 8080)
        == .failure(ResolveError(host: "fe80::1%nowhere", reason: "this machine has no interface 'nowhere'")))
  }

  @Test func saysWhatIsWrong() {
    let cases: [(String, UpstreamURLError)] = [
      ("example.org", .noScheme), ("ann:secret@h/x?to=ws://h", .noScheme), ("s3cret token://h", .noScheme),
      ("http://h", .wrongScheme("http")), ("ws://", .badHost), ("ws://:80", .badHost),
      ("ws://h:0", .badPort), ("ws://h:65536", .badPort), ("ws://h:x", .badPort), ("ws://h:+80", .badPort),
      ("ws://h/#a", .fragment),
      ("ws://h/ä", .badCharacter), ("ws://h/\r\nX: y", .badCharacter), ("ws://%zz@h", .badEscape),
      ("ws://%+f@h", .badEscape),
      ("ws://[::1", .badHost), ("ws://[]", .badHost), ("ws://[[]", .badHost), ("ws://[h]", .badHost),
      ("ws://[127.0.0.1]", .badHost), ("ws://[::1]x", .badHost), ("ws://[fe80::1%]", .badHost),
      ("ws://[fe80::1%25]", .badHost), ("ws://[fe80::1%25a%20b]", .badHost), ("ws://::1", .badHost),
      ("ws://h]", .badHost), ("ws://a\"b", .badHost), ("ws://a\\b", .badHost), ("ws://a^b", .badHost),
    ]
    for (text, error) in cases {
      #expect(throws: error) { try UpstreamURL(text) }
    }
  }

  @Test func readsRetryAfterInBothForms() {
    #expect(RetryAfter.read("120", now: 0) == .seconds(120))
    #expect(RetryAfter.read("99999999999999999999", now: 0) == .seconds(1 << 31))
    #expect(RetryAfter.read("Fri, 31 Dec 9999 23:59:59 GMT", now: 0) == .seconds(1 << 31))
    let moment: Int64 = 784_111_777
    for date in ["Sun, 06 Nov 1994 08:49:37 GMT", "Sunday, 06-Nov-94 08:49:37 GMT", "Sun Nov  6 08:49:37 1994"] {
      #expect(RetryAfter.read(date, now: moment - 30) == .seconds(30))
      #expect(RetryAfter.read(date, now: moment + 30) == .zero)
      // A server whose clock is an hour off means its own.
      #expect(RetryAfter.read(date, date: "Sun, 06 Nov 1994 08:49:17 GMT", now: moment + 3_600) == .seconds(20))
      #expect(RetryAfter.read(date, date: "yesterday", now: moment - 5) == .seconds(5))
    }
    for nonsense in ["-1", "soon", "", "1.5", "1 2", "Sun, 31 Feb 1994 08:49:37 GMT"] {
      #expect(RetryAfter.read(nonsense, now: 0) == nil)
    }
  }

  @Test func triesFamiliesInTurn() {
    let six: [SocketAddress] = (1...3).map { .ipv6(high: 0, low: $0, port: 1, scope: 0) }
    let four: [SocketAddress] = (1...2).map { .ipv4($0, port: 1) }
    #expect(ConnectRace.interleaved(six + four) == [six[0], four[0], six[1], four[1], six[2]])
    #expect(ConnectRace.interleaved(four + six) == [four[0], six[0], four[1], six[1], six[2]])
    #expect(ConnectRace.interleaved([]) == [])
  }

  /// Attack: a name server that makes us knock at thousands of strangers' doors.
  @Test func triesABoundedNumberOfAddresses() {
    let four = (0..<4000).map { SocketAddress.ipv4(UInt32($0), port: 80) }
    #expect(ConnectRace.interleaved(four) == Array(four.prefix(32)))
  }
}
