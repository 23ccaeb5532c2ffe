import ByteStreams

/// A block of addresses in the notation of CIDR, such as `10.0.0.0/8`, or one address.
package struct AddressBlock: Hashable, Sendable, CustomStringConvertible {
  package let address: IPAddress
  package let bits: Int
  /// As written.
  package let description: String

  package static let expectation = "use a block such as 10.0.0.0/8 or fd00::/8, or an address"

  package init?(_ text: String) {
    let parts = text.split(separator: "/", maxSplits: 1, omittingEmptySubsequences: false).map(String.init)
    guard let address = IPAddress(parts[0]) else { return nil }
    let longest = address.isIPv6 ? 128 : 32
    if parts.count == 1 {
      bits = longest
    } else {
      guard parts[1].utf8.allSatisfy(ASCII.isDigit), let bits = Int(parts[1]), bits <= longest else { return nil }
      self.bits = bits
    }
    self.address = address
    description = text
  }

  package func contains(_ other: IPAddress) -> Bool { other.isEqual(to: address, bits: bits) }
}
