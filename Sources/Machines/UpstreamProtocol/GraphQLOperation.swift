import ByteStreams

/// The type of a GraphQL operation (specification of October 2021, section 2.3).
package enum GraphQLOperation: String, CaseIterable, Sendable {
  case query, mutation, subscription

  /// Whether a document has at least one operation, and all of its operations have this type. The document may also
  /// have fragments.
  ///
  /// The function finds the beginning of each definition. It does not validate the document, since an upstream does not
  /// execute an invalid document.
  package func isOnlyOne(in document: Span<UInt8>) -> Bool {
    var scanner = GraphQLScanner(document)
    var count = 0
    while let keyword = scanner.nextDefinition() {
      switch keyword {
      case "fragment": continue
      case rawValue: count += 1
      default: return false
      }
    }
    return count > 0 && scanner.isComplete
  }
}

/// Finds the definitions of a GraphQL document.
private struct GraphQLScanner: ~Escapable {
  private let text: Span<UInt8>
  private var position = 0
  private var depth = 0
  private var isAtDefinition = true

  @_lifetime(copy text)
  init(_ text: Span<UInt8>) { self.text = text }

  /// Whether the last definition has ended.
  var isComplete: Bool { isAtDefinition && depth == 0 }

  /// Returns the keyword of the next definition; nil at the end. The keyword of a definition that begins with its
  /// selection set is `query`.
  mutating func nextDefinition() -> String? {
    while position < text.count {
      let byte = text[position]
      switch byte {
      case UInt8(ascii: "#"): skip { $0 != 0x0A && $0 != 0x0D }
      case UInt8(ascii: "\""): skipString()
      case UInt8(ascii: "{"), UInt8(ascii: "("), UInt8(ascii: "["):
        position += 1
        depth += 1
        guard isAtDefinition else { continue }
        isAtDefinition = false
        return byte == UInt8(ascii: "{") ? GraphQLOperation.query.rawValue : ""
      case UInt8(ascii: "}"), UInt8(ascii: ")"), UInt8(ascii: "]"):
        position += 1
        depth -= 1
        if depth == 0, byte == UInt8(ascii: "}") { isAtDefinition = true }
      case _ where Self.isName(byte):
        let start = position
        skip(while: Self.isName)
        guard isAtDefinition else { continue }
        isAtDefinition = false
        return text.extracting(start..<position).text()
      // White space, commas, a byte order mark and punctuation.
      default: position += 1
      }
    }
    return nil
  }

  private mutating func skip(while condition: (UInt8) -> Bool) {
    while position < text.count, condition(text[position]) { position += 1 }
  }

  /// Skips a string, or a block string, in which only `\"""` is an escape.
  private mutating func skipString() {
    let isBlock = hasQuotes(at: position)
    position += isBlock ? 3 : 1
    while position < text.count {
      switch text[position] {
      case UInt8(ascii: "\\"): position += isBlock ? (hasQuotes(at: position + 1) ? 4 : 1) : 2
      case UInt8(ascii: "\"") where !isBlock:
        position += 1
        return
      case UInt8(ascii: "\"") where hasQuotes(at: position):
        position += 3
        return
      default: position += 1
      }
    }
  }

  private func hasQuotes(at position: Int) -> Bool {
    position + 3 <= text.count && (0..<3).allSatisfy { text[position + $0] == UInt8(ascii: "\"") }
  }

  private static func isName(_ byte: UInt8) -> Bool {
    switch byte {
    case UInt8(ascii: "A")...UInt8(ascii: "Z"), UInt8(ascii: "a")...UInt8(ascii: "z"), UInt8(ascii: "_"): true
    default: ASCII.isDigit(byte)
    }
  }
}
