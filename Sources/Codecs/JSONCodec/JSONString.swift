import ByteStreams

/// Decoding of JSON string tokens, quotes included (RFC 8259 §7).
package enum JSONString {
  /// The content of the string in UTF-8, or nil if the token is not valid. An unpaired surrogate becomes U+FFFD.
  package static func content(of token: Span<UInt8>) -> [UInt8]? {
    guard token.count >= 2, token[0] == UInt8(ascii: "\""), JSONValidator.isValid(token) else { return nil }
    var result: [UInt8] = []
    result.reserveCapacity(token.count)
    var index = 1
    let end = token.count &- 1
    while index < end {
      let byte = token[index]
      index &+= 1
      guard byte == UInt8(ascii: "\\") else {
        result.append(byte)
        continue
      }
      let escape = token[index]
      index &+= 1
      switch escape {
      case UInt8(ascii: "b"): result.append(0x08)
      case UInt8(ascii: "f"): result.append(0x0C)
      case UInt8(ascii: "n"): result.append(0x0A)
      case UInt8(ascii: "r"): result.append(0x0D)
      case UInt8(ascii: "t"): result.append(0x09)
      case UInt8(ascii: "u"): append(scalar(token, &index), to: &result)
      default: result.append(escape)
      }
    }
    return result
  }

  /// Whether the string's content equals `expected`.
  package static func equals(_ token: Span<UInt8>, _ expected: [UInt8]) -> Bool {
    // Names rarely contain escapes. If there are no escapes, content and token differ only by the quotes.
    if token.firstIndex(of: UInt8(ascii: "\\")) == nil {
      return token.count >= 2 && token.extracting(1..<token.count &- 1).equals(expected.span)
    }
    return content(of: token) == expected
  }

  private static func append(_ scalar: Unicode.Scalar, to result: inout [UInt8]) {
    result.append(contentsOf: UTF8.encode(scalar) ?? UTF8.encodedReplacementCharacter)
  }

  /// Decodes `\uXXXX`, or a surrogate pair of two. `index` is at the first digit and is moved past the last.
  private static func scalar(_ token: Span<UInt8>, _ index: inout Int) -> Unicode.Scalar {
    let first = codeUnit(token, index)
    index &+= 4
    if first & 0xFC00 == 0xD800, index &+ 6 < token.count, token[index] == UInt8(ascii: "\\"),
      token[index &+ 1] == UInt8(ascii: "u")
    {
      let second = codeUnit(token, index &+ 2)
      if second & 0xFC00 == 0xDC00 {
        index &+= 6
        return Unicode.Scalar(0x10000 &+ (first & 0x3FF) << 10 &+ second & 0x3FF) ?? "\u{FFFD}"
      }
    }
    return Unicode.Scalar(first) ?? "\u{FFFD}"
  }

  private static func codeUnit(_ token: Span<UInt8>, _ start: Int) -> UInt32 {
    var unit: UInt32 = 0
    for offset in 0..<4 {
      let byte = token[start &+ offset]
      unit = unit << 4 | UInt32(ASCII.isDigit(byte) ? byte &- 0x30 : (byte | 0x20) &- 0x57)
    }
    return unit
  }
}
