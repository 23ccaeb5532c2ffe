import ByteStreams

extension Span<UInt8> {
  /// The range of the JSON value that begins at `start` or after whitespace there; nil if it is incomplete. It is not
  /// validated.
  package func jsonValue(from start: Int) -> Range<Int>? {
    var scanner = JSONScanner(from: start)
    return scanner.value(in: self)
  }
}

/// Skips over JSON values without recursion and without validating them.
struct JSONScanner {
  private var index: Int

  init(from start: Int = 0) { index = start }

  /// Moves into the current value, to the member or element that `token` names. Returns false if there is none.
  mutating func enter(_ token: [UInt8], in text: Span<UInt8>) -> Bool {
    skipWhitespace(text)
    guard index < text.count else { return false }
    switch text[index] {
    case UInt8(ascii: "{"): return enterMember(token, in: text)
    case UInt8(ascii: "["): return enterElement(token, in: text)
    default: return false
    }
  }

  /// Skips the current value and returns its range, or nil if it is incomplete.
  mutating func value(in text: Span<UInt8>) -> Range<Int>? {
    skipWhitespace(text)
    let start = index
    guard skipValue(text), index > start else { return nil }
    return start..<index
  }

  /// Skips the current member's name and its colon. Returns the range of the name's token, quotes included.
  mutating func name(in text: Span<UInt8>) -> Range<Int>? {
    skipWhitespace(text)
    let start = index
    guard index < text.count, text[index] == UInt8(ascii: "\""), skipString(text) else { return nil }
    let end = index
    return skip(UInt8(ascii: ":"), text) ? start..<end : nil
  }

  private mutating func enterMember(_ name: [UInt8], in text: Span<UInt8>) -> Bool {
    index &+= 1
    while true {
      guard let found = self.name(in: text) else { return false }
      if JSONString.equals(text.extracting(found), name) { return true }
      guard skipValue(text), skip(UInt8(ascii: ","), text) else { return false }
    }
  }

  /// After `enter`: whether a later member of the same object also has this name.
  mutating func hasAnother(_ name: [UInt8], in text: Span<UInt8>) -> Bool {
    while skipValue(text), skip(UInt8(ascii: ","), text) {
      // An element of an array has no name, so `name` returns nil.
      guard let found = self.name(in: text) else { return false }
      if JSONString.equals(text.extracting(found), name) { return true }
    }
    return false
  }

  private mutating func enterElement(_ token: [UInt8], in text: Span<UInt8>) -> Bool {
    // RFC 6901 §4: digits without a leading zero.
    guard token.first != UInt8(ascii: "0") || token.count == 1, var left = token.span.decimalValue() else {
      return false
    }
    index &+= 1
    skipWhitespace(text)
    guard index < text.count, text[index] != UInt8(ascii: "]") else { return false }
    while left > 0 {
      guard skipValue(text), skip(UInt8(ascii: ","), text) else { return false }
      left &-= 1
    }
    return true
  }

  private mutating func skipValue(_ text: Span<UInt8>) -> Bool {
    skipWhitespace(text)
    var depth = 0
    while index < text.count {
      switch text[index] {
      case UInt8(ascii: "\""):
        guard skipString(text) else { return false }
        if depth == 0 { return true }
      case UInt8(ascii: "{"), UInt8(ascii: "["):
        depth &+= 1
        index &+= 1
      case UInt8(ascii: "}"), UInt8(ascii: "]"):
        guard depth > 0 else { return false }
        depth &-= 1
        index &+= 1
        if depth == 0 { return true }
      case UInt8(ascii: ","), UInt8(ascii: ":"), 0x20, 0x09, 0x0A, 0x0D:
        guard depth > 0 else { return false }
        index &+= 1
      default:
        skipPlainWord(text)
        if depth == 0 { return true }
      }
    }
    return false
  }

  /// Skips a number, `true`, `false` or `null`, up to a byte that cannot be part of one.
  private mutating func skipPlainWord(_ text: Span<UInt8>) {
    while index < text.count {
      switch text[index] {
      case UInt8(ascii: ","), UInt8(ascii: ":"), UInt8(ascii: "]"), UInt8(ascii: "}"), UInt8(ascii: "["),
        UInt8(ascii: "{"), UInt8(ascii: "\""), 0x20, 0x09, 0x0A, 0x0D:
        return
      default: index &+= 1
      }
    }
  }

  private mutating func skipString(_ text: Span<UInt8>) -> Bool {
    index &+= 1
    while index < text.count {
      let byte = text[index]
      index &+= byte == UInt8(ascii: "\\") ? 2 : 1
      if byte == UInt8(ascii: "\"") { return true }
    }
    return false
  }

  /// Skips whitespace and then `byte`. Returns false if another byte follows the whitespace.
  mutating func skip(_ byte: UInt8, _ text: Span<UInt8>) -> Bool {
    skipWhitespace(text)
    guard index < text.count, text[index] == byte else { return false }
    index &+= 1
    return true
  }

  private mutating func skipWhitespace(_ text: Span<UInt8>) {
    while index < text.count {
      let byte = text[index]
      guard byte == 0x20 || byte == 0x0A || byte == 0x0D || byte == 0x09 else { return }
      index &+= 1
    }
  }
}
