/// Parses JSON (RFC 8259) by recursive descent. It is slow and simple, and stores the last string.
struct ReferenceJSON {
  private let bytes: [UInt8]
  private let maximumDepth: Int
  private var index = 0
  /// The decoded last string, without unpaired surrogates.
  private(set) var lastString: [UInt8] = []
  private(set) var hasUnpairedSurrogates = false

  init(_ bytes: [UInt8], maximumDepth: Int) {
    self.bytes = bytes
    self.maximumDepth = maximumDepth
  }

  /// Whether the document is one value.
  mutating func document() -> Bool {
    guard value(depth: 0) else { return false }
    skipSpace()
    return index == bytes.count
  }

  private var next: UInt8? { index < bytes.count ? bytes[index] : nil }

  private mutating func take(_ byte: Unicode.Scalar) -> Bool {
    guard next == UInt8(ascii: byte) else { return false }
    index += 1
    return true
  }

  private mutating func skipSpace() {
    while let byte = next, [0x20, 0x09, 0x0A, 0x0D].contains(byte) { index += 1 }
  }

  private mutating func value(depth: Int) -> Bool {
    skipSpace()
    switch next {
    case UInt8(ascii: "{"): return depth < maximumDepth && members(depth + 1)
    case UInt8(ascii: "["): return depth < maximumDepth && elements(depth + 1)
    case UInt8(ascii: "\""): return string()
    case UInt8(ascii: "t"): return word("true")
    case UInt8(ascii: "f"): return word("false")
    case UInt8(ascii: "n"): return word("null")
    default: return number()
    }
  }

  private mutating func word(_ word: String) -> Bool {
    guard bytes[index...].starts(with: word.utf8) else { return false }
    index += word.utf8.count
    return true
  }

  private mutating func members(_ depth: Int) -> Bool {
    index += 1
    skipSpace()
    if take("}") { return true }
    repeat {
      skipSpace()
      guard next == UInt8(ascii: "\""), string() else { return false }
      skipSpace()
      guard take(":"), value(depth: depth) else { return false }
      skipSpace()
    } while take(",")
    return take("}")
  }

  private mutating func elements(_ depth: Int) -> Bool {
    index += 1
    skipSpace()
    if take("]") { return true }
    repeat {
      guard value(depth: depth) else { return false }
      skipSpace()
    } while take(",")
    return take("]")
  }

  private mutating func digits() -> Int {
    let start = index
    while let byte = next, (0x30...0x39).contains(byte) { index += 1 }
    return index - start
  }

  private mutating func number() -> Bool {
    _ = take("-")
    if !take("0"), digits() == 0 { return false }
    if take("."), digits() == 0 { return false }
    if take("e") || take("E") {
      if !take("+") { _ = take("-") }
      if digits() == 0 { return false }
    }
    return true
  }

  private mutating func string() -> Bool {
    index += 1
    var text: [UInt8] = []
    var openSurrogate: UInt32?
    while let byte = next {
      index += 1
      var unit: UInt32?
      switch byte {
      case UInt8(ascii: "\""):
        if openSurrogate != nil { hasUnpairedSurrogates = true }
        lastString = text
        return true
      case UInt8(ascii: "\\"):
        guard let escaped = escape() else { return false }
        unit = escaped
      case 0..<0x20: return false
      default: break
      }
      if let high = openSurrogate {
        openSurrogate = nil
        if let low = unit, (0xDC00...0xDFFF).contains(low) {
          append(0x10000 + (high & 0x3FF) << 10 + (low & 0x3FF), to: &text)
          continue
        }
        hasUnpairedSurrogates = true
      }
      switch unit {
      case nil: text.append(byte)
      case (0xD800...0xDBFF)?: openSurrogate = unit
      case (0xDC00...0xDFFF)?: hasUnpairedSurrogates = true
      case let value?: append(value, to: &text)
      }
    }
    return false
  }

  private func append(_ value: UInt32, to text: inout [UInt8]) {
    guard let scalar = Unicode.Scalar(value) else { return }
    text += Array(String(Character(scalar)).utf8)
  }

  /// The code unit of an escape sequence after its backslash.
  private mutating func escape() -> UInt32? {
    guard let byte = next else { return nil }
    index += 1
    switch Unicode.Scalar(byte) {
    case "\"", "\\", "/": return UInt32(byte)
    case "b": return 8
    case "f": return 12
    case "n": return 10
    case "r": return 13
    case "t": return 9
    case "u":
      let digits = bytes[index...].prefix(4)
      guard digits.count == 4, digits.allSatisfy({ Character(Unicode.Scalar($0)).isHexDigit && $0 < 0x80 }) else {
        return nil
      }
      index += 4
      return UInt32(String(decoding: digits, as: UTF8.self), radix: 16)
    default: return nil
    }
  }
}
