import ByteStreams
import Testing

@testable import Upstream
@testable import Reactor

/// Addresses of a connection attempt, their order, and Retry-After.
@Suite struct DialTests {
  @Test func findsTheInterfaceOfAZone() async throws {
    let loopback = SocketAddress.ipv6(high: 0xFE80 << 48, low: 1, port: 8080, scope: 1)
    #expect(loopback.description == "[fe80::1%1]:8080")
    let resolver = Resolver()
    #expect(await resolver.resolve(host: "fe80::1%lo", port: 8080) == .success([loopback]))
    #expect(
      await resolver.resolve(host: "fe80::1%nowhere", port: 8080)
        == .failure(ResolveError(host: "fe80::1%nowhere", reason: "this machine has no interface 'nowhere'")))
  }

  @Test func readsRetryAfterInBothForms() {
    #expect(RetryAfter.parse("120", now: 0) == .seconds(120))
    #expect(RetryAfter.parse("99999999999999999999", now: 0) == .seconds(1 << 31))
    #expect(RetryAfter.parse("Fri, 31 Dec 9999 23:59:59 GMT", now: 0) == .seconds(1 << 31))
    let moment: Int64 = 784_111_777
    for date in ["Sun, 06 Nov 1994 08:49:37 GMT", "Sunday, 06-Nov-94 08:49:37 GMT", "Sun Nov  6 08:49:37 1994"] {
      #expect(RetryAfter.parse(date, now: moment - 30) == .seconds(30))
      #expect(RetryAfter.parse(date, now: moment + 30) == .zero)
      // The date is relative to the server's own clock, which is an hour off.
      #expect(RetryAfter.parse(date, date: "Sun, 06 Nov 1994 08:49:17 GMT", now: moment + 3_600) == .seconds(20))
      #expect(RetryAfter.parse(date, date: "yesterday", now: moment - 5) == .seconds(5))
    }
    for nonsense in ["-1", "soon", "", "1.5", "1 2", "Sun, 31 Feb 1994 08:49:37 GMT"] {
      #expect(RetryAfter.parse(nonsense, now: 0) == nil)
    }
  }

  @Test func triesFamiliesInTurn() {
    let six: [SocketAddress] = (1...3).map { .ipv6(high: 0, low: $0, port: 1, scope: 0) }
    let four: [SocketAddress] = (1...2).map { .ipv4($0, port: 1) }
    #expect(ConnectRace.interleaved(six + four) == [six[0], four[0], six[1], four[1], six[2]])
    #expect(ConnectRace.interleaved(four + six) == [four[0], six[0], four[1], six[1], six[2]])
    #expect(ConnectRace.interleaved([]) == [])
  }

  /// Attack: a name server that makes us connect to thousands of other hosts.
  @Test func triesABoundedNumberOfAddresses() {
    let four = (0..<4000).map { SocketAddress.ipv4(UInt32($0), port: 80) }
    #expect(ConnectRace.interleaved(four) == Array(four.prefix(32)))
  }
}
