import Reactor
import TestSupport
import Testing

@testable import HTTPServer

@Suite struct ConnectionLimiterTests {
  private func origin(_ host: String, port: UInt16 = 1) throws -> ClientOrigin {
    ClientOrigin(try #require(SocketAddress(numericHost: host, port: port)))
  }

  @Test func countsAnAddressWhateverItsPort() throws {
    #expect(try origin("192.0.2.1", port: 1) == origin("192.0.2.1", port: 2))
    #expect(try origin("192.0.2.1") != origin("192.0.2.2"))
  }

  @Test(arguments: [
    ("2001:db8:0:1::1", "2001:db8:0:1:ffff:ffff:ffff:ffff", true), ("2001:db8:0:1::1", "2001:db8:0:2::1", false),
    ("::ffff:192.0.2.1", "192.0.2.1", true), ("::ffff:192.0.2.1", "::ffff:192.0.2.2", false), ("::1", "::2", true),
  ])
  func countsIPv6ByItsNetwork(one: String, other: String, same: Bool) throws {
    #expect(try (origin(one) == origin(other)) == same)
  }

  @Test func admitsUpToTheLimitOfAll() throws {
    var limiter = ConnectionLimiter(limit: 2, limitPerOrigin: 2)
    #expect(limiter.admit(.ipv4(1)) == .admitted)
    #expect(limiter.admit(.ipv4(2)) == .admitted)
    #expect(limiter.admit(.ipv4(3)) == .tooMany)
    limiter.release(.ipv4(1))
    #expect(limiter.admit(.ipv4(3)) == .admitted)
    #expect(limiter.count == 2)
  }

  @Test func admitsUpToTheLimitOfOneOrigin() {
    var limiter = ConnectionLimiter(limit: 10, limitPerOrigin: 2)
    let network = ClientOrigin.ipv6(prefix: 7)
    #expect(
      [limiter.admit(network), limiter.admit(network), limiter.admit(network)] == [
        .admitted, .admitted, .tooManyFromOrigin,
      ])
    #expect(limiter.admit(.ipv4(7)) == .admitted)
    limiter.release(network)
    #expect(limiter.admit(network) == .admitted)
    // Behind a Unix-domain socket stands a proxy, or somebody whom the file's permissions let in.
    for _ in 0..<5 { #expect(limiter.admit(.local) == .admitted) }
  }

  /// Attack: connections from ever new addresses, so that the table itself grows.
  @Test func forgetsWhoHasGone() {
    var random = SeededGenerator(seed: 1)
    var limiter = ConnectionLimiter(limit: 50, limitPerOrigin: 3)
    var present: [ClientOrigin] = []
    for _ in 0..<20_000 {
      if Bool.random(using: &random), let index = present.indices.randomElement(using: &random) {
        limiter.release(present.remove(at: index))
      } else {
        let origin = ClientOrigin.ipv4(.random(in: 0..<40, using: &random))
        let ofOrigin = present.count { $0 == origin }
        let expected: ConnectionLimiter.Verdict =
          present.count == 50 ? .tooMany : ofOrigin == 3 ? .tooManyFromOrigin : .admitted
        #expect(limiter.admit(origin) == expected)
        if expected == .admitted { present.append(origin) }
      }
      #expect(limiter.count == present.count && limiter.originCount == Set(present).count)
    }
    for origin in present { limiter.release(origin) }
    #expect(limiter.count == 0 && limiter.originCount == 0)
  }
}
