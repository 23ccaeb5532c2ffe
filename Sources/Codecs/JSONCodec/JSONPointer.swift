import ByteStreams

/// A JSON Pointer (RFC 6901): `/d/authentication/salt`, `/params/0`. The empty pointer denotes the whole text.
package struct JSONPointer: Hashable, Sendable, CustomStringConvertible {
  /// The pointer as written.
  package let description: String
  /// Reference tokens, unescaped, outermost first.
  private let tokens: [[UInt8]]

  /// The maximum length of a pointer in bytes. Pointers in practice are shorter. The length is limited because each
  /// byte is compared with every message.
  package static let maximumBytes = 512

  /// A valid pointer is empty or begins with `/`. In a name, `~` is escaped as `~0`, and `/` as `~1`. Returns nil if
  /// `text` is not a valid pointer, or is longer than `maximumBytes`.
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

  /// The range of the value in `text`, or nil if there is none.
  ///
  /// The text is searched in one pass without recursion. If a name is repeated, its first member is used. Skipped
  /// values are not validated, so a value may be found in a text that is not valid JSON. Before a caller copies the
  /// value, it must validate the value with `JSONValidator`.
  package func find(in text: Span<UInt8>) -> Range<Int>? {
    var scanner = JSONScanner()
    for token in tokens {
      guard scanner.enter(token, in: text) else { return nil }
    }
    return scanner.value(in: text)
  }

  /// Whether a name of the pointer is repeated in its object in `text`. In this case, other parsers may find a
  /// different value than `find`.
  package func isAmbiguous(in text: Span<UInt8>) -> Bool {
    var scanner = JSONScanner()
    for token in tokens {
      guard scanner.enter(token, in: text) else { return false }
      var rest = scanner
      if rest.hasAnother(token, in: text) { return true }
    }
    return false
  }

  /// The content of a string, or any other value as written. Returns nil if there is no value at the pointer.
  package func content(in text: Span<UInt8>) -> [UInt8]? {
    guard let range = find(in: text) else { return nil }
    let token = text.extracting(range)
    return token[0] == UInt8(ascii: "\"") ? JSONString.content(of: token) : [UInt8](copying: token)
  }
}
