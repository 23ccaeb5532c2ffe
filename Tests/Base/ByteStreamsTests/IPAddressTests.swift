import ByteStreams
import Testing

@Suite struct IPAddressTests {
  private static let mapped = IPAddress.ipv6(high: 0, low: 0xFFFF_7F00_0001, scope: 0)

  @Test func anIPv4MappedAddressStandsForItsIPv4Address() {
    #expect(Self.mapped.unmapped == .ipv4(0x7F00_0001))
    #expect(IPAddress.ipv4(1).unmapped == .ipv4(1))
    for other: IPAddress in [
      .ipv6(high: 0, low: 1, scope: 0), .ipv6(high: 1, low: 0xFFFF_7F00_0001, scope: 0),
      .ipv6(high: 0, low: 0xFFFE_7F00_0001, scope: 0),
    ] {
      #expect(other.unmapped == other)
    }
  }

  @Test func theLoopbackIs127AndOne() {
    #expect(IPAddress.ipv4(0x7FFF_FFFF).isLoopback && Self.mapped.isLoopback)
    #expect(IPAddress.ipv6(high: 0, low: 1, scope: 0).isLoopback)
    for other: IPAddress in [
      .ipv4(0x8000_0000), .ipv4(0), .ipv6(high: 0, low: 0, scope: 0), .ipv6(high: 1, low: 1, scope: 0),
      .ipv6(high: 0, low: 0xFFFF_8000_0001, scope: 0),
    ] {
      #expect(!other.isLoopback)
    }
  }

  @Test func comparesAsManyBitsAsItIsTold() {
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
}
