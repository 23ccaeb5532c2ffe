import Reactor
import Testing

@testable import Gateway

@Suite struct ListenerAddressTests {
  @Test func findsTheInterfaceOfAZone() {
    let loopback = SocketAddress.ipv6(high: 0xFE80 << 48, low: 1, port: 8080, scope: 1)
    #expect(ListenerAddress.parse("[fe80::1%lo]:8080") == loopback)
    #expect(ListenerAddress.parse("[fe80::1%1]:8080") == loopback)
    #expect(ListenerAddress.parse("[fe80::1%no-such-link]:8080") == nil)
    #expect(ListenerAddress.parse("127.0.0.1%lo:8080") == nil)
  }
}
