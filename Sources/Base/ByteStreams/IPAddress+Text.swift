/// Parsing of numeric addresses (RFC 4291 §2.2, RFC 3986 §3.2.2). Parsing bytes does not allocate.
extension IPAddress {
  /// Parses an IPv4 or IPv6 address without brackets. A zone after an IPv6 address (RFC 4007 §11) is skipped and
  /// `scope` is 0, since only the kernel can translate a zone into an interface index.
  package init?(_ text: String) {
    let bytes = Array(text.utf8)
    if let four = IPAddress(ipv4: bytes.span) {
      self = four
      return
    }
    let zone = bytes.firstIndex(of: UInt8(ascii: "%"))
    if let zone, zone == bytes.count - 1 { return nil }
    self.init(ipv6: bytes.span.extracting(first: zone ?? bytes.count))
  }

  /// Parses `IPv4address`: four decimal numbers up to 255 without leading zeros.
  package init?(ipv4 text: Span<UInt8>) {
    var address: UInt32 = 0
    var numbers = 0
    var start = 0
    while start <= text.count {
      let end = text.firstIndex(of: UInt8(ascii: "."), from: start) ?? text.count
      let number = text.extracting(start..<end)
      guard number.count <= 3, let value = number.decimalValue(), value < 256,
        number.count == 1 || number[0] != UInt8(ascii: "0")
      else { return nil }
      address = address << 8 | UInt32(value)
      numbers &+= 1
      start = end &+ 1
    }
    guard numbers == 4 else { return nil }
    self = .ipv4(address)
  }

  /// Parses `IPv6address`: eight groups of one to four hexadecimal digits. `::` may replace one run of zero groups, and
  /// the last two groups may be written as an IPv4 address.
  package init?(ipv6 text: Span<UInt8>) {
    let colon = UInt8(ascii: ":")
    var groups = InlineArray<8, UInt16>(repeating: 0)
    var count = 0
    // The number of groups before `::`.
    var gap: Int? = text.count > 1 && text[0] == colon && text[1] == colon ? 0 : nil
    var index = gap == nil ? 0 : 2
    while index < text.count {
      let start = index
      var value = 0
      while index < text.count, index &- start < 5, let digit = ASCII.hexValue(text[index]) {
        value = value << 4 | Int(digit)
        index &+= 1
      }
      if index < text.count, text[index] == UInt8(ascii: ".") {
        guard count <= 6, case .ipv4(let address)? = IPAddress(ipv4: text.extracting(start..<text.count)) else {
          return nil
        }
        groups[count] = UInt16(truncatingIfNeeded: address >> 16)
        groups[count &+ 1] = UInt16(truncatingIfNeeded: address)
        count &+= 2
        break
      }
      guard (1...4).contains(index &- start), count < 8 else { return nil }
      groups[count] = UInt16(value)
      count &+= 1
      if index == text.count { break }
      guard text[index] == colon, index &+ 1 < text.count else { return nil }
      index &+= 1
      if text[index] == colon {
        guard gap == nil else { return nil }
        gap = count
        index &+= 1
      }
    }
    guard gap == nil ? count == 8 : count < 8 else { return nil }
    var high: UInt64 = 0
    var low: UInt64 = 0
    for position in 0..<8 {
      let behind = position &- (8 &- count)
      let group: UInt16 =
        if position < gap ?? 8 { groups[position] } else { behind >= (gap ?? 0) ? groups[behind] : 0 }
      high = high << 16 | low >> 48
      low = low << 16 | UInt64(group)
    }
    self = .ipv6(high: high, low: low, scope: 0)
  }
}
