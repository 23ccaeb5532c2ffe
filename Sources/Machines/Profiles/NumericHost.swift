import ByteStreams

/// Hosts that denote an address without being resolved. The C library reads more forms of an IPv4 address than RFC 3986
/// allows: `2130706433`, `0x7f.1`, `0177.0.0.1`.
package enum NumericHost {
  /// The address that `host` denotes; nil for a name.
  package static func address(of host: String) -> IPAddress? {
    let host = host.hasSuffix(".") ? String(host.dropLast()) : host
    return IPAddress(host) ?? ipv4(host)
  }

  /// Whether a name is resolved to this machine (RFC 6761 §6.3).
  static func isLocalName(_ host: String) -> Bool {
    var name = host.lowercased()
    if name.hasSuffix(".") { name.removeLast() }
    return name == "localhost" || name.hasSuffix(".localhost") || name == "localhost.localdomain"
      || name == "ip6-localhost" || name == "ip6-loopback"
  }

  /// Like `inet_aton`: one to four numbers, each decimal, octal or hexadecimal. The last number fills the remaining
  /// bytes.
  private static func ipv4(_ text: String) -> IPAddress? {
    let parts = text.split(separator: ".", omittingEmptySubsequences: false)
    guard (1...4).contains(parts.count) else { return nil }
    var address: UInt64 = 0
    for (index, part) in parts.enumerated() {
      guard let number = number(part) else { return nil }
      let isLast = index == parts.count - 1
      let bits = isLast ? UInt64(8 * (4 - index)) : 8
      guard number < 1 << bits else { return nil }
      address = address << bits | number
    }
    return .ipv4(UInt32(address))
  }

  private static func number(_ text: Substring) -> UInt64? {
    let lower = text.lowercased()
    let (digits, radix): (Substring, Int) =
      if lower.hasPrefix("0x") {
        (lower.dropFirst(2), 16)
      } else if lower.hasPrefix("0"), lower.count > 1 {
        (lower.dropFirst(), 8)
      } else {
        (lower[...], 10)
      }
    // `UInt64` alone would accept a sign.
    guard !digits.isEmpty, digits.utf8.allSatisfy({ ASCII.hexValue($0) != nil }) else { return nil }
    return UInt64(digits, radix: radix)
  }
}
