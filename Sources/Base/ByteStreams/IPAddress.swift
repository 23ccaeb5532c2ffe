/// An IP address, without a port.
package enum IPAddress: Hashable, Sendable {
  /// The address in host byte order.
  case ipv4(UInt32)
  /// Two 64-bit halves in host byte order, high half first. `scope` is the interface index for a link-local address
  /// (RFC 4007 §6), else 0.
  case ipv6(high: UInt64, low: UInt64, scope: UInt32)

  package var isIPv6: Bool { if case .ipv6 = self { true } else { false } }

  /// The embedded IPv4 address of an IPv4-mapped address (RFC 4291 §2.5.5.2); any other address unchanged.
  package var unmapped: IPAddress {
    guard case .ipv6(0, let low, _) = self, low >> 32 == 0xFFFF else { return self }
    return .ipv4(UInt32(truncatingIfNeeded: low))
  }

  /// Whether this is 0.0.0.0 or ::, at which a listener accepts connections to every address of the machine.
  package var isUnspecified: Bool {
    switch unmapped {
    case .ipv4(let address): address == 0
    case .ipv6(let high, let low, _): high == 0 && low == 0
    }
  }

  /// Whether this is in 127.0.0.0/8, possibly IPv4-mapped, or is ::1.
  package var isLoopback: Bool {
    switch unmapped {
    case .ipv4(let address): address >> 24 == 127
    case .ipv6(let high, let low, _): high == 0 && low == 1
    }
  }

  /// Whether both addresses have the same first `bits` bits: 0 to 32 for IPv4, 0 to 128 for IPv6. Scopes are not
  /// compared.
  package func isEqual(to other: IPAddress, bits: Int) -> Bool {
    switch (self, other) {
    case (.ipv4(let left), .ipv4(let right)):
      (left ^ right) >> UInt32(32 - bits) == 0
    case (.ipv6(let leftHigh, let leftLow, _), .ipv6(let rightHigh, let rightLow, _)):
      // A smart shift by the full width or more yields zero. The half with this shift is then not compared.
      (leftHigh ^ rightHigh) >> UInt64(max(0, 64 - bits)) == 0
        && (leftLow ^ rightLow) >> UInt64(min(64, 128 - bits)) == 0
    case (.ipv4, .ipv6), (.ipv6, .ipv4):
      false
    }
  }
}
