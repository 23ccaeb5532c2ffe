import ByteStreams

/// Character sets of RFC 3986. Each is two 64-bit literals: no global, no lazy initialisation.
package enum URICharacter {
  /// `pchar`, `/` and `?` without `%`. `[` and `]` are also in the set, since browsers send them in queries (WHATWG
  /// URL), where they are unambiguous.
  @inline(__always)
  static func isPathOrQuery(_ byte: UInt8) -> Bool {
    // ! $ & ' ( ) * + , - . / 0-9 : ; = ?
    let low: UInt64 = 0xAFFF_FFD2_0000_0000
    // @ A-Z [ ] _ a-z ~
    let high: UInt64 = 0x47FF_FFFE_AFFF_FFFF
    return byte < 128 && ((byte < 64 ? low : high) >> UInt64(byte & 63)) & 1 != 0
  }

  /// `unreserved` and `sub-delims`: the characters of a registered name except `%` (RFC 3986 §3.2.2).
  @inline(__always)
  package static func isRegisteredName(_ byte: UInt8) -> Bool {
    // ! $ & ' ( ) * + , - . 0-9 ; =
    let low: UInt64 = 0x2BFF_7FD2_0000_0000
    // A-Z _ a-z ~
    let high: UInt64 = 0x47FF_FFFE_87FF_FFFE
    return byte < 128 && ((byte < 64 ? low : high) >> UInt64(byte & 63)) & 1 != 0
  }

  /// `scheme = ALPHA *( ALPHA / DIGIT / "+" / "-" / "." )` (RFC 3986 §3.1). Text before `://` that is not a scheme may
  /// be a secret, so errors do not repeat it.
  package static func isScheme(_ text: Substring) -> Bool {
    guard let first = text.utf8.first, isLetter(first) else { return false }
    return text.utf8.allSatisfy { isLetter($0) || ASCII.isDigit($0) || "+-.".utf8.contains($0) }
  }

  private static func isLetter(_ byte: UInt8) -> Bool { ("a"..."z").contains(UnicodeScalar(byte | 0x20)) }
}

extension Span where Element == UInt8 {
  /// Whether this is `uri-host [":" port]` (RFC 9110 §7.2), or empty. User information (`user@`) is rejected (§4.2.4).
  /// So is a comma: it is legal in a registered name, but in practice indicates two joined values or an attack.
  package func isHostAndPort() -> Bool {
    var index = 0
    if count > 0, self[0] == UInt8(ascii: "[") {
      // IP-literal. Zones (%25…) are rejected: they have no meaning on another machine.
      guard let end = firstIndex(of: UInt8(ascii: "]")), extracting(1..<end).isIPv6Address() else { return false }
      index = end &+ 1
    } else {
      while index < count, self[index] != UInt8(ascii: ":") {
        let byte = self[index]
        if byte == UInt8(ascii: "%") {
          guard index &+ 2 < count, ASCII.isHexDigit(self[index &+ 1]), ASCII.isHexDigit(self[index &+ 2]) else {
            return false
          }
        } else if !URICharacter.isRegisteredName(byte) || byte == UInt8(ascii: ",") {
          return false
        }
        index &+= 1
      }
      // A port without a host is rejected. The caller decides whether an empty value is allowed.
      if index == 0, count > 0 { return false }
    }
    guard index < count else { return true }
    guard self[index] == UInt8(ascii: ":"), count &- index <= 6 else { return false }
    guard index &+ 1 < count else { return true }
    guard let port = extracting((index &+ 1)..<count).decimalValue() else { return false }
    return port <= 65_535
  }

  func isIPv6Address() -> Bool { IPAddress(ipv6: self) != nil }

  package func isIPv4Address() -> Bool { IPAddress(ipv4: self) != nil }
}
