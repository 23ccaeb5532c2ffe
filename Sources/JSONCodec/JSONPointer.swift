import ByteStreams

/// Where a value stands in a JSON text (RFC 6901): `/d/authentication/salt`, `/params/0`; the empty pointer is the whole text.
package struct JSONPointer: Hashable, Sendable, CustomStringConvertible {
  /// As it was written.
  package let description: String
  /// Unescaped, outermost first.
  private let tokens: [[UInt8]]

  /// Longest pointer, in bytes: nobody writes longer ones, and each byte is compared for every message.
  package static let maximumBytes = 512

  /// nil where `text` is no pointer: it is empty or begins with `/`, and `~` is written `~0`, `/` in a name `~1`.
  package init?(_ text: String) {
    guard text.utf8.count <= Self.maximumBytes, text.isEmpty || text.utf8.first == UInt8(ascii: "/") else { return nil }
    var tokens: [[UInt8]] = []
    for part in text.utf8.split(separator: UInt8(ascii: "/"), omittingEmptySubsequences: false).dropFirst() {
      guard let token = Self.unescaped(part) else { return nil }
      tokens.append(token)
    }
    self.tokens = tokens
    description = text
  }

  private static func unescaped(_ part: some Sequence<UInt8>) -> [UInt8]? {
    var result: [UInt8] = []
    var isEscaped = false
    for byte in part {
      if isEscaped {
        guard byte == UInt8(ascii: "0") || byte == UInt8(ascii: "1") else { return nil }
        result.append(byte == UInt8(ascii: "0") ? UInt8(ascii: "~") : UInt8(ascii: "/"))
        isEscaped = false
      } else if byte == UInt8(ascii: "~") {
        isEscaped = true
      } else {
        result.append(byte)
      }
    }
    return isEscaped ? nil : result
  }

  /// The bytes of the value in `text`, as they stand; nil where there is none.
  ///
  /// One pass without recursion. Of two members with one name the first counts. What is passed over is not judged: of a text
  /// that is no JSON a value may be found, so whoever copies one asks `JSONValidator` about it.
  package func find(in text: Span<UInt8>) -> Range<Int>? {
    var scanner = JSONScanner()
    for token in tokens {
      guard scanner.enter(token, in: text) else { return nil }
    }
    return scanner.value(in: text)
  }

  /// A string's content, or any other value as it is written; nil where there is none.
  package func content(in text: Span<UInt8>) -> [UInt8]? {
    guard let range = find(in: text) else { return nil }
    let token = text.extracting(range)
    return token[0] == UInt8(ascii: "\"") ? JSONString.content(of: token) : [UInt8](copying: token)
  }
}

/// Passes over JSON values.
private struct JSONScanner {
  private var index = 0

  /// Goes to the beginning of the member or element that `token` names, of the value at hand.
  mutating func enter(_ token: [UInt8], in text: Span<UInt8>) -> Bool {
    skipWhitespace(text)
    guard index < text.count else { return false }
    switch text[index] {
    case UInt8(ascii: "{"): return enterMember(token, in: text)
    case UInt8(ascii: "["): return enterElement(token, in: text)
    default: return false
    }
  }

  /// The bytes of the value at hand.
  mutating func value(in text: Span<UInt8>) -> Range<Int>? {
    skipWhitespace(text)
    let start = index
    guard skipValue(text), index > start else { return nil }
    return start..<index
  }

  private mutating func enterMember(_ name: [UInt8], in text: Span<UInt8>) -> Bool {
    index &+= 1
    while true {
      skipWhitespace(text)
      let start = index
      guard index < text.count, text[index] == UInt8(ascii: "\""), skipString(text) else { return false }
      let isIt = JSONString.equals(text.extracting(start..<index), name)
      guard skip(UInt8(ascii: ":"), text) else { return false }
      if isIt { return true }
      guard skipValue(text), skip(UInt8(ascii: ","), text) else { return false }
    }
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

  /// A number, `true`, `false` or `null`: up to whatever cannot be part of one.
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

  private mutating func skip(_ byte: UInt8, _ text: Span<UInt8>) -> Bool {
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
