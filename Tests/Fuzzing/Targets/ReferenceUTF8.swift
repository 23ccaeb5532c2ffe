/// Validates UTF-8 by the scalars that each prefix can still become (RFC 3629). Slow, and different from the tested
/// code.
enum ReferenceUTF8 {
  /// The index of the first byte after which no continuation is valid; nil if there is none.
  static func firstFault(in bytes: [UInt8]) -> Int? { read(bytes).fault }

  /// Whether `bytes` consists of complete, valid characters.
  static func isValid(_ bytes: [UInt8]) -> Bool {
    let (fault, isOpen) = read(bytes)
    return fault == nil && !isOpen
  }

  private static func read(_ bytes: [UInt8]) -> (fault: Int?, isOpen: Bool) {
    var missing = 0
    var value = 0
    var range = 0...0
    for (index, byte) in bytes.enumerated() {
      if missing == 0 {
        switch byte {
        case 0x00...0x7F: continue
        case 0xC0...0xDF: (missing, value, range) = (1, Int(byte & 0x1F), 0x80...0x7FF)
        case 0xE0...0xEF: (missing, value, range) = (2, Int(byte & 0x0F), 0x800...0xFFFF)
        case 0xF0...0xF7: (missing, value, range) = (3, Int(byte & 0x07), 0x10000...0x10FFFF)
        default: return (index, false)
        }
      } else {
        guard byte & 0xC0 == 0x80 else { return (index, false) }
        missing -= 1
        value = value << 6 | Int(byte & 0x3F)
      }
      // The range of scalars that the missing bytes can form.
      let possible = value << (6 * missing)...(value << (6 * missing) | (1 << (6 * missing) - 1))
      let isSurrogate =
        (0xD800...0xDFFF).contains(possible.lowerBound) && (0xD800...0xDFFF).contains(possible.upperBound)
      guard possible.overlaps(range), !isSurrogate else { return (index, false) }
    }
    return (nil, missing > 0)
  }
}
