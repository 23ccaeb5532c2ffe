import ByteStreams
import HTTPCodec
import ProxyCodec
import Testing

@Suite struct TrustedProxiesTests {
  private func proxies(_ entries: String...) -> TrustedProxies {
    var proxies = TrustedProxies()
    for entry in entries {
      let isValid = proxies.add(entry)
      #expect(isValid, "\(entry)")
    }
    return proxies
  }

  @Test(arguments: [
    "", "10.0.0.0/33", "10.0.0.0/-1", "10.0.0.0/", "10.0.0/8", "::1/129", "fe80::1%eth0", "localhost", "UNIX",
    "::ffff:10.0.0.0/95",
  ])
  func refusesAnInvalidAddressBlock(text: String) {
    var proxies = TrustedProxies()
    let isValid = proxies.add(text)
    #expect(!isValid && proxies.isEmpty)
  }

  @Test(arguments: [
    ("10.0.0.0/8", "10.255.255.255", "11.0.0.0"), ("10.1.2.3", "10.1.2.3", "10.1.2.4"),
    ("10.1.2.3/31", "10.1.2.2", "10.1.2.4"), ("0.0.0.0/0", "255.255.255.255", "::1"),
    ("2001:db8::/32", "2001:db8:ffff::1", "2001:db9::"), ("::1", "::1", "::2"), ("::/0", "ffff::", "127.0.0.1"),
    // An IPv4-mapped IPv6 address equals the IPv4 address in it, in the setting and as a peer.
    ("::ffff:10.0.0.0/104", "10.200.0.1", "11.0.0.1"), ("10.0.0.0/8", "::ffff:10.0.0.1", "::ffff:11.0.0.1"),
  ])
  func trustsTheAddressesOfABlock(block: String, inside: String, outside: String) {
    let proxies = proxies(block)
    #expect(proxies.contains(IPAddress(inside)))
    #expect(!proxies.contains(IPAddress(outside)))
    #expect(!proxies.contains(nil), "only the word 'unix' trusts Unix-domain sockets")
  }

  @Test func trustsUnixSocketsIfTheSettingSaysUnix() {
    #expect(proxies("unix").contains(nil))
    #expect(!proxies("unix").contains(IPAddress("127.0.0.1")))
    #expect(proxies("unix", "10.0.0.0/8").texts == ["unix", "10.0.0.0/8"])
  }

  /// Checks whether `client` is the client of a request with these lines.
  private func client(_ lines: String..., behind peer: String? = "10.0.0.1", is client: String?) throws -> Bool {
    try request(lines.map { "X-Forwarded-For: \($0)\r\n" }) { fields in
      proxies("10.0.0.0/8", "2001:db8::/32").client(behind: peer.flatMap { IPAddress($0) }, fields)
        == client.flatMap { IPAddress($0) }
    }
  }

  private func request<Result>(_ lines: [String], _ body: (borrowing HTTPFields) -> Result) throws -> Result {
    var connection = HTTPServerConnection()
    connection.receive(Array("GET / HTTP/1.1\r\nHost: x\r\n\(lines.joined())\r\n".utf8).span)
    #expect(try connection.nextEvent() == .head)
    return body(connection.request.fields)
  }

  @Test func theClientIsTheRightmostAddressThatIsNotAProxy() throws {
    #expect(try client(is: "10.0.0.1"))
    #expect(try client("203.0.113.7", is: "203.0.113.7"))
    #expect(try client("198.51.100.1, 203.0.113.7", is: "203.0.113.7"))
    #expect(try client("198.51.100.1, 203.0.113.7, 10.0.0.9, 2001:db8::1", is: "203.0.113.7"))
    #expect(try client("198.51.100.1", "203.0.113.7, 10.0.0.9", "10.0.0.8", is: "203.0.113.7"))
    // All addresses are proxies, so the farthest address is the client's.
    #expect(try client("10.0.0.8, 10.0.0.9", is: "10.0.0.8"))
    #expect(try client("203.0.113.7", behind: nil, is: "203.0.113.7"))
    #expect(try client(behind: nil, is: nil))
  }

  /// The client may have invented the elements further left.
  @Test func theProxyThatPassedOnNoAddressIsTheClient() throws {
    #expect(try client("203.0.113.7, unknown", is: "10.0.0.1"))
    #expect(try client("203.0.113.7, unknown, 10.0.0.9", is: "10.0.0.9"))
    #expect(try client("203.0.113.7, _hidden, 198.51.100.1", is: "198.51.100.1"))
  }

  /// nginx appends its element to the line that the client sent.
  @Test(arguments: ["\"", "\"x", "a=\"", "\"198.51.100.1", "\\", "(", ";", "[", "\"\\"])
  func noInventedValueHidesTheAddressThatAProxyAppends(text: String) throws {
    #expect(try client("\(text), 203.0.113.7", is: "203.0.113.7"))
    #expect(try client("\(text), 203.0.113.7, 10.0.0.9", is: "203.0.113.7"))
    #expect(try client("\(text)", "203.0.113.7", is: "203.0.113.7"))
    let isSecure = try request(["X-Forwarded-Proto: \(text), https\r\n"]) { proxies("10.0.0.0/8").isSecure($0) }
    #expect(isSecure == true)
  }

  @Test(arguments: [
    ("203.0.113.7:4711", "203.0.113.7"), ("[2001:db9::7]:4711", "2001:db9::7"), ("[2001:db9::7]", "2001:db9::7"),
    ("2001:db9::7", "2001:db9::7"), ("::ffff:203.0.113.7", "203.0.113.7"),
    // No element is an address, so the proxy counts as the client.
    ("203.0.113.7:", "10.0.0.1"), ("203.0.113.7:65536", "10.0.0.1"), ("[2001:db9::7", "10.0.0.1"),
    ("[203.0.113.7]", "10.0.0.1"), ("203.0.113.7 x", "10.0.0.1"), ("\"203.0.113.7\"", "10.0.0.1"),
  ])
  func readsAddressesWithAndWithoutPorts(text: String, address: String) throws {
    #expect(try client(text, is: address))
  }

  @Test func theLastProtocolCounts() throws {
    func isSecure(_ lines: String...) throws -> Bool? {
      try request(lines.map { "X-Forwarded-Proto: \($0)\r\n" }) { fields in proxies("10.0.0.0/8").isSecure(fields) }
    }
    #expect(try isSecure() == nil)
    #expect(try isSecure("https") == true)
    #expect(try isSecure("HTTPS") == true)
    #expect(try isSecure("http, https") == true)
    #expect(try isSecure("https, http") == false)
    #expect(try isSecure("https", "http") == false)
    #expect(try isSecure("wss") == false)
  }
}
