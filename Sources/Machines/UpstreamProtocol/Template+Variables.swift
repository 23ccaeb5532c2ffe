import ByteStreams
import JSONCodec

/// Variables of a profile in a message: `{"subscribe":"{symbol}"}`.
extension Template {
  /// Replaces the placeholders of variables in the template's own text. Text that other placeholders insert is not
  /// changed.
  ///
  /// Inside a string of a JSON message, a value is escaped. Elsewhere in a JSON message, it must be a number, `true`,
  /// `false` or `null`. In a message that is not JSON and contains no strings, a value is inserted unchanged. If such a
  /// message contains strings, a value is escaped inside them, and may not begin or end a string elsewhere.
  ///
  /// - Parameter values: the values by name. Other text in braces is left unchanged.
  package func replacing(_ values: [String: String]) throws(TemplateVariableError) -> Template {
    guard !values.isEmpty, kind.isText else { return self }
    var scanner = TextScanner(values: values, form: form)
    var pieces: [Piece] = []
    for piece in self.pieces {
      // Other placeholders contain no variables, since the brace of a variable would end them.
      if case .text(let bytes) = piece {
        pieces.append(.text(try scanner.replace(bytes)))
      } else {
        pieces.append(piece)
      }
    }
    return Template(description: description, pieces: pieces)
  }

  enum Form {
    /// An object or an array, possibly after the digits at the beginning of Socket.IO messages.
    case json
    /// Another text with quotation marks, for example a text that begins with a placeholder and goes on with JSON.
    case quoted
    case plain
  }

  var form: Form {
    let hasQuotes = pieces.contains {
      if case .text(let bytes) = $0 { bytes.contains(UInt8(ascii: "\"")) } else { false }
    }
    let other = hasQuotes ? Form.quoted : .plain
    guard case .text(let bytes)? = pieces.first else { return other }
    let first = bytes.first { $0 > 0x20 && !ASCII.isDigit($0) }
    guard let first, first == UInt8(ascii: "{") || first == UInt8(ascii: "[") else { return other }
    // `{symbol} …` is a placeholder at the beginning of a text that is not JSON.
    let isPlaceholder = pieces.count == 1 && !hasQuotes && first == UInt8(ascii: "{")
    return isPlaceholder ? .plain : .json
  }
}

/// A value is not valid in the place where a template has its variable.
package struct TemplateVariableError: Error, Hashable, Sendable {
  package let variable: String
  /// The accepted values in this place.
  package let expectation: String
}

/// Follows the strings of a message, and replaces variables.
struct TextScanner {
  let values: [String: String]
  let form: Template.Form
  /// Whether the position is inside a JSON string. Other placeholders do not change this.
  private(set) var isInString = false
  /// Whether the string has an escaped quotation mark. If so, the string may contain another JSON text.
  private(set) var isNested = false
  private var isEscaped = false

  init(values: [String: String], form: Template.Form) {
    self.values = values
    self.form = form
  }

  mutating func replace(_ bytes: [UInt8]) throws(TemplateVariableError) -> [UInt8] {
    var result = ByteQueue()
    var index = 0
    while index < bytes.count {
      let byte = bytes[index]
      if byte == UInt8(ascii: "{"), let end = bytes[index...].firstIndex(of: UInt8(ascii: "}")) {
        let name = String(decoding: bytes[(index + 1)..<end], as: UTF8.self)
        if let value = values[name] {
          try insert(value, of: name, into: &result)
          index = end + 1
          continue
        }
      }
      follow(byte)
      result.append(byte)
      index += 1
    }
    return result.copyBytes()
  }

  /// Passes over text without variables.
  mutating func skip(_ bytes: [UInt8]) {
    for byte in bytes { follow(byte) }
  }

  private func insert(
    _ value: String, of name: String, into result: inout ByteQueue
  ) throws(TemplateVariableError) {
    let bytes = Array(value.utf8)
    guard !isInString else {
      result.append(jsonEscaped: bytes.span)
      return
    }
    switch form {
    case .json:
      guard Self.isLiteral(bytes) else {
        throw TemplateVariableError(
          variable: name,
          expectation: "is outside of the strings of a JSON message, and must be a number, true, false or null")
      }
    case .quoted:
      guard !bytes.contains(UInt8(ascii: "\"")), !bytes.contains(UInt8(ascii: "\\")) else {
        throw TemplateVariableError(
          variable: name,
          expectation: "is outside of the strings of a message, and must have no quotation marks and backslashes")
      }
    case .plain:
      break
    }
    result.append(bytes)
  }

  private static func isLiteral(_ bytes: [UInt8]) -> Bool {
    guard let first = bytes.first, JSONValidator.isValid(bytes.span) else { return false }
    return ![UInt8(ascii: "\""), UInt8(ascii: "{"), UInt8(ascii: "[")].contains(first) && !bytes.contains(0x20)
  }

  private mutating func follow(_ byte: UInt8) {
    guard form != .plain else { return }
    if isEscaped {
      isEscaped = false
      if isInString, byte == UInt8(ascii: "\"") { isNested = true }
    } else if isInString, byte == UInt8(ascii: "\\") {
      isEscaped = true
    } else if byte == UInt8(ascii: "\"") {
      isInString.toggle()
      isNested = false
    }
  }
}
