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
