/// A JSON syntax error and its position.
package struct JSONError: Error, Hashable, Sendable, CustomStringConvertible {
  /// The offset in bytes of the invalid byte, or the length of the text if the text has ended too soon.
  package let offset: Int
  /// What was wrong and what is accepted.
  package let reason: String

  package var description: String { "at byte \(offset): \(reason)" }
}

/// Properties of a valid text that matter when it is embedded in another document.
package struct JSONTraits: Equatable, Sendable {
  /// Whether the text has a `\uD800`–`\uDFFF` escape without its other half. The grammar allows it, but many parsers
  /// reject the whole document, so such a text must not be embedded in other documents.
  package var hasUnpairedSurrogates = false
}

/// Checks that bytes are exactly one JSON text (RFC 8259): no comments, no trailing commas, no byte order mark, nothing
/// after the value. The bytes must be valid UTF-8.
///
/// The validator is iterative and uses one bit per nesting level, so that no input can exhaust the stack.
package enum JSONValidator {
  /// The maximum nesting depth. It is enough for any reasonable message (Python stops at about 1,000, jq at 256). It
  /// also protects recursive parsers that get the message later.
  package static let maximumDepth = 128

  package static func validate(_ text: Span<UInt8>) throws(JSONError) -> JSONTraits {
    var walker = Walker()
    return try walker.walk(text)
  }

  package static func isValid(_ text: Span<UInt8>) -> Bool {
    do throws(JSONError) {
      _ = try validate(text)
      return true
    } catch {
      return false
    }
  }
}

private struct Walker {
  private enum Expectation { case value, valueOrEnd, key, keyOrEnd, afterValue }

  private var traits = JSONTraits()
  private var depth = 0
  /// Bit n is set if the container at depth n+1 is an object.
  private var objects: UInt128 = 0
  private var index = 0

  mutating func walk(_ text: Span<UInt8>) throws(JSONError) -> JSONTraits {
    var expectation = Expectation.value
    while true {
      skipWhitespace(text)
      guard index < text.count else {
        if expectation == .afterValue, depth == 0 { return traits }
        throw fail(text.isEmpty ? "an empty text is not a JSON value" : "the text ends inside a value")
      }
      let byte = text[index]
      switch expectation {
      case .value, .valueOrEnd:
        if expectation == .valueOrEnd, byte == UInt8(ascii: "]") {
          close()
          expectation = .afterValue
        } else {
          expectation = try value(text, byte)
        }
      case .key, .keyOrEnd:
        if expectation == .keyOrEnd, byte == UInt8(ascii: "}") {
          close()
          expectation = .afterValue
        } else {
          guard byte == UInt8(ascii: "\"") else { throw fail("expected a member name in double quotes") }
          try string(text)
          skipWhitespace(text)
          guard index < text.count, text[index] == UInt8(ascii: ":") else {
            throw fail("expected ':' after the member name")
          }
          index &+= 1
          expectation = .value
        }
      case .afterValue:
        guard depth > 0 else { throw fail("unexpected text after the value") }
        let inObject = objects >> UInt128(depth - 1) & 1 == 1
        if byte == UInt8(ascii: ",") {
          index &+= 1
          expectation = inObject ? .key : .value
        } else if byte == (inObject ? UInt8(ascii: "}") : UInt8(ascii: "]")) {
          close()
        } else {
          throw fail(inObject ? "expected ',' or '}'" : "expected ',' or ']'")
        }
      }
    }
  }

  private func fail(_ reason: String) -> JSONError { JSONError(offset: index, reason: reason) }

  private mutating func close() {
    depth &-= 1
    index &+= 1
  }

  private mutating func open(object: Bool) throws(JSONError) {
    guard depth < JSONValidator.maximumDepth else {
      throw fail("nested deeper than \(JSONValidator.maximumDepth) levels")
    }
    let bit: UInt128 = 1 << UInt128(depth)
    if object { objects |= bit } else { objects &= ~bit }
    depth &+= 1
    index &+= 1
  }

  private mutating func value(_ text: Span<UInt8>, _ byte: UInt8) throws(JSONError) -> Expectation {
    switch byte {
    case UInt8(ascii: "{"):
      try open(object: true)
      return .keyOrEnd
    case UInt8(ascii: "["):
      try open(object: false)
      return .valueOrEnd
    case UInt8(ascii: "\""): try string(text)
    case UInt8(ascii: "t"): try literal(text, "true")
    case UInt8(ascii: "f"): try literal(text, "false")
    case UInt8(ascii: "n"): try literal(text, "null")
    case UInt8(ascii: "-"), UInt8(ascii: "0")...UInt8(ascii: "9"): try number(text)
    default: throw fail("expected a JSON value")
    }
    return .afterValue
  }

  private mutating func skipWhitespace(_ text: Span<UInt8>) {
    while index < text.count {
      let byte = text[index]
      guard byte == 0x20 || byte == 0x0A || byte == 0x0D || byte == 0x09 else { return }
      index &+= 1
    }
  }

  private mutating func literal(_ text: Span<UInt8>, _ word: StaticString) throws(JSONError) {
    let length = word.utf8CodeUnitCount
    for offset in 0..<length {
      guard index < text.count, unsafe word.utf8Start[offset] == text[index] else {
        throw fail("unknown word: the only words in JSON are true, false and null")
      }
      index &+= 1
    }
  }

  private mutating func digits(_ text: Span<UInt8>) throws(JSONError) {
    let start = index
    while index < text.count, text[index] &- 0x30 < 10 { index &+= 1 }
    guard index > start else { throw fail("expected a digit") }
  }

  private mutating func number(_ text: Span<UInt8>) throws(JSONError) {
    if text[index] == UInt8(ascii: "-") { index &+= 1 }
    if index < text.count, text[index] == UInt8(ascii: "0") {
      index &+= 1
      if index < text.count, text[index] &- 0x30 < 10 { throw fail("a number must not have a leading zero") }
    } else {
      try digits(text)
    }
    if index < text.count, text[index] == UInt8(ascii: ".") {
      index &+= 1
      try digits(text)
    }
    if index < text.count, text[index] | 0x20 == UInt8(ascii: "e") {
      index &+= 1
      if index < text.count, text[index] == UInt8(ascii: "+") || text[index] == UInt8(ascii: "-") { index &+= 1 }
      try digits(text)
    }
  }

  private mutating func string(_ text: Span<UInt8>) throws(JSONError) {
    index &+= 1
    while true {
      skipPlain(text)
      guard index < text.count else { throw fail("the text ends inside a string") }
      let byte = text[index]
      if byte == UInt8(ascii: "\"") {
        index &+= 1
        return
      }
      guard byte == UInt8(ascii: "\\") else { throw fail("a control character in a string must be escaped") }
      try escape(text)
    }
  }

  /// Skips bytes that need no escape.
  private mutating func skipPlain(_ text: Span<UInt8>) {
    index = text.firstJSONSpecial(from: index)
  }

  private mutating func escape(_ text: Span<UInt8>) throws(JSONError) {
    index &+= 1
    guard index < text.count else { throw fail("the text ends inside a string") }
    switch text[index] {
    case UInt8(ascii: "\""), UInt8(ascii: "\\"), UInt8(ascii: "/"), UInt8(ascii: "b"), UInt8(ascii: "f"),
      UInt8(ascii: "n"), UInt8(ascii: "r"), UInt8(ascii: "t"):
      index &+= 1
    case UInt8(ascii: "u"):
      let unit = try codeUnit(text)
      if unit & 0xFC00 == 0xDC00 {
        traits.hasUnpairedSurrogates = true
      } else if unit & 0xFC00 == 0xD800 {
        let isPaired =
          index &+ 1 < text.count && text[index] == UInt8(ascii: "\\") && text[index &+ 1] == UInt8(ascii: "u")
        guard isPaired else {
          traits.hasUnpairedSurrogates = true
          return
        }
        let before = index
        index &+= 1
        let second = try codeUnit(text)
        if second & 0xFC00 != 0xDC00 {
          traits.hasUnpairedSurrogates = true
          index = before
        }
      }
    default: throw fail("unknown escape; expected \\\" \\\\ \\/ \\b \\f \\n \\r \\t or \\uXXXX")
    }
  }

  /// Reads the four digits after `\u`. `index` is at the `u` and is moved past the last digit.
  private mutating func codeUnit(_ text: Span<UInt8>) throws(JSONError) -> UInt16 {
    index &+= 1
    var unit: UInt16 = 0
    for _ in 0..<4 {
      guard index < text.count else { throw fail("the text ends inside a string") }
      let byte = text[index]
      let digit: UInt8
      switch byte {
      case UInt8(ascii: "0")...UInt8(ascii: "9"): digit = byte &- 0x30
      case UInt8(ascii: "a")...UInt8(ascii: "f"), UInt8(ascii: "A")...UInt8(ascii: "F"): digit = (byte | 0x20) &- 0x57
      default: throw fail("expected four hexadecimal digits after \\u")
      }
      unit = unit << 4 | UInt16(digit)
      index &+= 1
    }
    return unit
  }
}
