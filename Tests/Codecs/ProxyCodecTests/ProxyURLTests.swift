import HTTPCodec
import Testing

@testable import ProxyCodec

@Suite struct ProxyURLTests {
  @Test func parsesProxyURLs() throws {
    let plain = try ProxyURL("http://proxy.example")
    #expect(plain.scheme == .http && plain.host == "proxy.example" && plain.port == 80 && plain.credentials == nil)
    let full = try ProxyURL("SOCKS5H://us%3Aer:p%40ss:word@[::1]:9050/")
    #expect(full.scheme == .socks5h && full.host == "::1" && full.port == 9050)
    #expect(full.credentials == ProxyCredentials(username: "us:er", password: "p@ss:word"))
    #expect(full.redacted == "socks5h://[::1]:9050" && full.text == "socks5h://us%3Aer:p%40ss%3Aword@[::1]:9050")
    #expect(try ProxyURL(full.text) == full)
    #expect(try ProxyURL("http://[fe80::1%25eth0]").host == "fe80::1%eth0")
    #expect(try ProxyURL("http://[fe80::1%25eth0]").redacted == "http://[fe80::1%25eth0]:80")
    #expect(try ProxyURL("socks5://h").port == 1080)
    #expect(try ProxyURL("http://user@h").credentials == ProxyCredentials(username: "user", password: ""))
  }

  @Test(
    arguments: [
      ("proxy.example:3128", .noScheme), ("https://h", .wrongScheme("https")), ("socks4://h", .wrongScheme("socks4")),
      ("http://u:a/b@h:1", .authority(.unencodedDelimiter)), ("socks5://u:a#@h", .authority(.unencodedDelimiter)),
      ("http://bücher.example:80", .authority(.internationalName)), ("http://ü:p@h", .authority(.badCharacter)),
      ("http://h/path", .path), ("http://h?x", .path), ("http://", .authority(.badHost)),
      ("http://h:0", .authority(.badPort)), ("http://u:p w@h", .authority(.badCharacter)),
      ("http://u:%zz@h", .authority(.badEscape)), ("socks5://u:a%00b@h", .authority(.badEscape)),
      ("http://u%3Av:p@h", .credentials("a user name for Basic authentication must not contain a colon")),
      ("socks5://u@h", .credentials("a SOCKS user name and password must have 1 to 255 bytes each")),
    ] as [(String, ProxyURLError)])
  func reportsTheFault(text: String, error: ProxyURLError) {
    #expect(throws: error) { try ProxyURL(text) }
  }

  @Test(
    arguments: [
      ("*", "anything.example", true), ("example.org", "example.org", true), ("example.org", "EXAMPLE.org.", true),
      ("Example.ORG", "a.b.example.org", true), ("example.org", "badexample.org", false),
      ("example.org", "example.org.evil", false), (".example.org", "example.org", false),
      (".example.org", "a.example.org", true), ("*.example.org", "a.example.org", true),
      ("*.example.org", "example.org", false), ("example.org:443", "example.org", true),
      ("example.org:80", "example.org", false), ("localhost", "localhost", true),
      ("10.0.0.1", "10.0.0.1", true), ("10.0.0.1", "10.0.0.2", false), ("10.0.0.1:443", "10.0.0.1", true),
      ("10.0.0.1:80", "10.0.0.1", false), ("10.0.0.0/8", "10.255.255.255", true), ("10.0.0.0/8", "11.0.0.0", false),
      ("0.0.0.0/0", "192.0.2.1", true), ("0.0.0.0/0", "::1", false), ("0.0.0.0/0", "example.org", false),
      ("192.0.2.1/32", "192.0.2.1", true), ("192.0.2.0/31", "192.0.2.2", false), ("::1", "::1", true),
      ("[::1]:443", "::1", true), ("[::1]:80", "::1", false), ("fd00::/8", "fd12::1", true),
      ("fd00::/8", "fe00::1", false),
      ("2001:db8::/64", "2001:db8::ffff:1", true), ("2001:db8::/64", "2001:db8:0:1::", false),
      ("2001:db8::/65", "2001:db8::8000:0:0:0", false), ("2001:db8::/128", "2001:db8::", true), ("::/0", "::1", true),
      ("0.1", "10.0.0.1", false), ("10.0.0.0/8", "::ffff:10.1.2.3", true), ("10.0.0.0/8", "::ffff:11.1.2.3", false),
      ("10.0.0.1", "::ffff:a00:1", true), ("::ffff:0:0/96", "::ffff:10.1.2.3", true),
      ("fe80::/10", "fe80::1%eth0", true),
    ] as [(String, String, Bool)])
  func bypassesTheProxyForMatchingHosts(rule: String, host: String, isDirect: Bool) throws {
    #expect(try ProxyBypass([rule]).covers(host: host, port: 443) == isDirect)
  }

  @Test func readsRulesInTheFormOfTheEnvironment() throws {
    let rules = try ProxyBypass(["a.example, b.example,,10.0.0.0/8 c.example", "d.example"])
    for host in ["a.example", "b.example", "c.example", "d.example", "10.1.2.3"] {
      #expect(rules.covers(host: host, port: 1), "\(host)")
    }
    #expect(!rules.covers(host: "e.example", port: 1))
    #expect(!ProxyBypass().covers(host: "a.example", port: 1))
    #expect(try ProxyBypass([""]) == ProxyBypass())
  }

  @Test(arguments: [
    "10.0.0.0/33", "10.0.0.0/-1", "10.0.0.0/x", "example.org/8", "::/129", "http://example.org", "a:b:c", "a:0",
    "user@host",
    "*.", ".", "a*b", "[::1", "ä.example",
  ])
  func refusesInvalidRules(rule: String) {
    #expect(throws: ProxyBypassError(index: 1)) { try ProxyBypass(["example.org", rule]) }
  }
}
