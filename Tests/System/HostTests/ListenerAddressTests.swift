import Testing

@testable import Host

@Suite struct ListenerAddressTests {
  @Test func findsTheInterfaceOfAZone() {
    let loopback = SocketAddress.ipv6(high: 0xFE80 << 48, low: 1, port: 8080, scope: 1)
    #expect(ListenerAddress.parse("[fe80::1%lo]:8080") == loopback)
    #expect(ListenerAddress.parse("[fe80::1%1]:8080") == loopback)
    #expect(ListenerAddress.parse("[fe80::1%no-such-link]:8080") == nil)
    #expect(ListenerAddress.parse("127.0.0.1%lo:8080") == nil)
  }

  @Test(arguments: [
    ("127.0.0.1:80", "127.0.0.1:80"), (":80", "0.0.0.0:80"), ("localhost:80", "127.0.0.1:80"), ("[::1]:80", "[::1]:80"),
    ("unix:/run/x", "unix:/run/x"),
  ])
  func readsListenerAddresses(text: String, description: String) {
    #expect(ListenerAddress.parse(text)?.description == description)
  }

  @Test(arguments: [
    "", "80", "127.0.0.1", "127.0.0.1:x", "127.0.0.1:70000", "::1:80", "[::1]", "unix:", "example.org:80",
  ])
  func refusesAnInvalidListenerAddress(text: String) { #expect(ListenerAddress.parse(text) == nil) }
}
