import ByteStreams

/// Base64 with the alphabet for URLs, without padding (RFC 7515 §2).
enum Base64URL {
  /// Returns nil unless `text` is the one canonical encoding of some bytes: no padding, no other characters, and the unused bits of the last
  /// digit zero. So no other text passes for the same token.
  static func decode(_ text: Span<UInt8>) -> [UInt8]? {
    guard text.count % 4 != 1 else { return nil }
    var output: [UInt8] = []
    output.reserveCapacity(text.count / 4 * 3 + 2)
    var group: UInt32 = 0
    var bits: UInt32 = 0
    for index in text.indices {
      guard let value = value(text[index]) else { return nil }
      group = group << 6 | UInt32(value)
      bits &+= 6
      guard bits >= 8 else { continue }
      bits &-= 8
      output.append(UInt8(truncatingIfNeeded: group >> bits))
    }
    return group & ((1 << bits) - 1) == 0 ? output : nil
  }

  private static func value(_ digit: UInt8) -> UInt8? {
    switch digit {
    case UInt8(ascii: "A")...UInt8(ascii: "Z"): digit - 0x41
    case UInt8(ascii: "a")...UInt8(ascii: "z"): digit - 0x61 + 26
    case UInt8(ascii: "0")...UInt8(ascii: "9"): digit - 0x30 + 52
    case UInt8(ascii: "-"): 62
    case UInt8(ascii: "_"): 63
    default: nil
    }
  }
}
