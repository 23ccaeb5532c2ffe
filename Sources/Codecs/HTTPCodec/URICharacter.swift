import ByteStreams

/// Sets of characters of RFC 3986, each as two 64-bit words: no global, no lazy initialisation.
package enum URICharacter {
  /// `pchar`, `/` and `?` without `%`, and besides `[` and `]`, which browsers send in queries (WHATWG URL) and nobody misreads.
  @inline(__always)
  static func isPathOrQuery(_ byte: UInt8) -> Bool {
    // ! $ & ' ( ) * + , - . / 0-9 : ; = ?
    let low: UInt64 = 0xAFFF_FFD2_0000_0000
    // @ A-Z [ ] _ a-z ~
    let high: UInt64 = 0x47FF_FFFE_AFFF_FFFF
    return byte < 128 && ((byte < 64 ? low : high) >> UInt64(byte & 63)) & 1 != 0
  }

  /// `unreserved` and `sub-delims`: what a registered name consists of, `%` aside (RFC 3986 §3.2.2).
  @inline(__always)
  package static func isRegisteredName(_ byte: UInt8) -> Bool {
    // ! $ & ' ( ) * + , - . 0-9 ; =
    let low: UInt64 = 0x2BFF_7FD2_0000_0000
    // A-Z _ a-z ~
    let high: UInt64 = 0x47FF_FFFE_87FF_FFFE
    return byte < 128 && ((byte < 64 ? low : high) >> UInt64(byte & 63)) & 1 != 0
  }
}

extension Span where Element == UInt8 {
  /// `uri-host [":" port]` (RFC 9110 §7.2). User information (`user@`) is refused (§4.2.4), a comma and the like too:
  /// legal in a registered name, but only seen where two values were joined or something is tried on.
  package func isHostAndPort() -> Bool {
    var index = 0
    if count > 0, self[0] == UInt8(ascii: "[") {
      // IP-literal; zones (%25…) mean nothing to another machine.
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
      // A port needs a host before it; nothing at all is judged by the caller.
      if index == 0, count > 0 { return false }
    }
    guard index < count else { return true }
    guard self[index] == UInt8(ascii: ":"), count &- index <= 6 else { return false }
    guard index &+ 1 < count else { return true }
    guard let port = extracting((index &+ 1)..<count).decimalValue() else { return false }
    return port <= 65_535
  }

  /// `IPv6address` (RFC 3986 §3.2.2): eight groups of one to four hexadecimal digits, `::` once for one or more of them that
  /// are zero, and the last two perhaps as an IPv4 address.
  func isIPv6Address() -> Bool {
    let colon = UInt8(ascii: ":")
    var isShortened = count > 1 && self[0] == colon && self[1] == colon
    var index = isShortened ? 2 : 0
    var groups = 0
    while index < count {
      let start = index
      while index < count, ASCII.isHexDigit(self[index]) { index &+= 1 }
      if index < count, self[index] == UInt8(ascii: ".") {
        guard extracting(start..<count).isIPv4Address() else { return false }
        groups &+= 2
        break
      }
      guard (1...4).contains(index &- start) else { return false }
      groups &+= 1
      if index == count { break }
      guard self[index] == colon, index &+ 1 < count else { return false }
      index &+= 1
      if self[index] == colon {
        guard !isShortened else { return false }
        isShortened = true
        index &+= 1
      }
    }
    return isShortened ? groups < 8 : groups == 8
  }

  /// `IPv4address`: four numbers up to 255, without leading zeros.
  package func isIPv4Address() -> Bool {
    var numbers = 0
    var start = 0
    while start <= count {
      let end = firstIndex(of: UInt8(ascii: "."), from: start) ?? count
      let number = extracting(start..<end)
      guard number.count <= 3, let value = number.decimalValue(), value < 256,
        number.count == 1 || number[0] != UInt8(ascii: "0")
      else { return false }
      numbers &+= 1
      start = end &+ 1
    }
    return numbers == 4
  }
}
