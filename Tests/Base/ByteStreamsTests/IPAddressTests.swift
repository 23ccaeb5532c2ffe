import ByteStreams
import Glibc
import Testing

@Suite struct IPAddressTests {
  private static let mapped = IPAddress.ipv6(high: 0, low: 0xFFFF_7F00_0001, scope: 0)

  @Test func anIPv4MappedAddressEqualsItsIPv4Address() {
    #expect(Self.mapped.unmapped == .ipv4(0x7F00_0001))
    #expect(IPAddress.ipv4(1).unmapped == .ipv4(1))
    for other: IPAddress in [
      .ipv6(high: 0, low: 1, scope: 0), .ipv6(high: 1, low: 0xFFFF_7F00_0001, scope: 0),
      .ipv6(high: 0, low: 0xFFFE_7F00_0001, scope: 0),
    ] {
      #expect(other.unmapped == other)
    }
  }

  @Test func theLoopbackAddressesAre127AndColonColonOne() {
    #expect(IPAddress.ipv4(0x7FFF_FFFF).isLoopback && Self.mapped.isLoopback)
    #expect(IPAddress.ipv6(high: 0, low: 1, scope: 0).isLoopback)
    for other: IPAddress in [
      .ipv4(0x8000_0000), .ipv4(0), .ipv6(high: 0, low: 0, scope: 0), .ipv6(high: 1, low: 1, scope: 0),
      .ipv6(high: 0, low: 0xFFFF_8000_0001, scope: 0),
    ] {
      #expect(!other.isLoopback)
    }
  }

  @Test func comparesTheGivenNumberOfBits() {
    let four = IPAddress.ipv4(0x0A00_0001)
    #expect(four.isEqual(to: .ipv4(0x0A00_0000), bits: 31) && !four.isEqual(to: .ipv4(0x0A00_0000), bits: 32))
    #expect(four.isEqual(to: .ipv4(0xFFFF_FFFF), bits: 0))
    let six = IPAddress.ipv6(high: 1, low: 1, scope: 3)
    for (high, low, bits): (UInt64, UInt64, Int) in [
      (1, 1, 128), (1, 0, 127), (1, .max, 64), (0, 0, 63), (.max, .max, 0),
    ] {
      let other = IPAddress.ipv6(high: high, low: low, scope: 0)
      #expect(six.isEqual(to: other, bits: bits))
      #expect(bits == 128 || !six.isEqual(to: other, bits: bits + 1))
    }
    #expect(!four.isEqual(to: six, bits: 0))
  }

  /// The C library accepts exactly the same addresses.
  @Test(arguments: [
    "127.0.0.1", "0.0.0.0", "255.255.255.255", "256.0.0.1", "1.2.3", "1.2.3.4.5", "01.2.3.4", "1.2.3.", ".1.2.3",
    "1..2.3", "",
    "::", "::1", "1::", "1::8", "1:2:3:4:5:6:7:8", "1:2:3:4:5:6:7::", "::2:3:4:5:6:7:8", "1:2:3:4:5:6:7:8:9",
    "1:2:3::4:5:6:7:8", "1:2:3:4:5:6:7", "1::2::3", ":::", ":1", "1:", "1:::2", "12345::", "g::", "2001:DB8::Ff",
    "::ffff:10.1.2.3",
    "1:2:3:4:5:6:7.8.9.10", "1:2:3:4:5:6:7:8.9.10.11", "::1.2.3", "::1.2.3.4:5", "1.2.3.4::", "::01.2.3.4", "fe80::1 ",
    "0x1::",
  ])
  func readsTheAddressesThatTheSystemReads(text: String) {
    #expect(IPAddress(text) == Self.systemAddress(text), "\(text)")
  }

  private static func systemAddress(_ text: String) -> IPAddress? {
    var four = in_addr()
    if inet_pton(AF_INET, text, &four) == 1 { return .ipv4(UInt32(bigEndian: four.s_addr)) }
    var six = in6_addr()
    guard inet_pton(AF_INET6, text, &six) == 1 else { return nil }
    return withUnsafeBytes(of: six) {
      .ipv6(
        high: UInt64(bigEndian: $0.loadUnaligned(as: UInt64.self)),
        low: UInt64(bigEndian: $0.loadUnaligned(fromByteOffset: 8, as: UInt64.self)), scope: 0)
    }
  }

  @Test func aZoneIsIgnored() {
    #expect(IPAddress("fe80::1%eth0") == IPAddress("fe80::1") && IPAddress("fe80::1") != nil)
    #expect(IPAddress("fe80::1%") == nil && IPAddress("127.0.0.1%lo") == nil)
  }
}
