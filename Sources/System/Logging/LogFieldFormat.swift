import ByteStreams
import JSONCodec

/// Appends the fields of a log line to its buffer, as JSON members or as `name=value`.
package enum LogFieldFormat: Sendable {
  case json
  case text

  package func append(_ field: LogField, to line: inout ByteQueue) {
    begin(field.name, &line)
    switch field.value {
    case .text(let text):
      if self == .json { line.append(printableJSONString: text) } else { line.append(readableWord: text) }
    case .number(let number): line.append(decimal: number)
    case .seconds(let span): line.append(span.secondsText)
    case .flag(let flag): line.append(flag ? "true" as StaticString : "false")
    }
  }

  // MARK: Without allocations, for lines that are written per request

  /// `value` must be plain ASCII without spaces, quotes and backslashes.
  package func append(_ name: StaticString, _ value: StaticString, to line: inout ByteQueue) {
    begin(name, &line)
    if self == .json { line.append(UInt8(ascii: "\"")) }
    line.append(value)
    if self == .json { line.append(UInt8(ascii: "\"")) }
  }

  /// Allocates only if `value` has bytes that must be escaped.
  package func append(_ name: StaticString, _ value: Span<UInt8>, to line: inout ByteQueue) {
    guard value.isPlainWord else { return append(.text(name, value.text()), to: &line) }
    begin(name, &line)
    if self == .json { line.append(UInt8(ascii: "\"")) }
    line.append(value)
    if self == .json { line.append(UInt8(ascii: "\"")) }
  }

  package func append(_ name: StaticString, number: Int, to line: inout ByteQueue) {
    begin(name, &line)
    line.append(decimal: number)
  }

  /// Appends `span` in seconds, with microseconds.
  package func append(_ name: StaticString, seconds span: TimeSpan, to line: inout ByteQueue) {
    begin(name, &line)
    let microseconds = max(0, Int(span.nanoseconds / 1_000))
    line.append(decimal: microseconds / 1_000_000)
    line.append(UInt8(ascii: "."))
    line.append(decimal: microseconds % 1_000_000, digits: 6)
  }

  /// Appends 32 digits.
  package func append(_ name: StaticString, hexadecimal value: (high: UInt64, low: UInt64), to line: inout ByteQueue) {
    begin(name, &line)
    if self == .json { line.append(UInt8(ascii: "\"")) }
    line.append(hexadecimal: value.high, digits: 16)
    line.append(hexadecimal: value.low, digits: 16)
    if self == .json { line.append(UInt8(ascii: "\"")) }
  }

  private func begin(_ name: StaticString, _ line: inout ByteQueue) {
    line.append(self == .json ? ",\"" as StaticString : "  ")
    line.append(name)
    line.append(self == .json ? "\":" as StaticString : "=")
  }
}

extension Span where Element == UInt8 {
  /// Whether every format writes these bytes unchanged, as one word.
  fileprivate var isPlainWord: Bool {
    guard !isEmpty else { return false }
    for index in indices {
      let byte = self[index]
      if byte <= 0x20 || byte >= 0x7F || byte == UInt8(ascii: "\"") || byte == UInt8(ascii: "\\") { return false }
    }
    return true
  }
}

extension ByteQueue {
  /// Appends `text` unchanged if it reads as one word, otherwise as a JSON string.
  fileprivate mutating func append(readableWord text: String) {
    let isWord =
      !text.isEmpty
      && text.unicodeScalars.allSatisfy { $0.value > 0x20 && $0 != "\"" && $0 != "\\" && !$0.controlsDisplay }
    if isWord { append(text) } else { append(printableJSONString: text) }
  }

  /// Appends `text` as a JSON string. Characters that control a display are escaped, even characters that JSON allows,
  /// since JSON lines are also read on terminals.
  fileprivate mutating func append(printableJSONString text: String) {
    guard text.utf8.contains(where: { $0 >= 0x7F }) else { return append(jsonString: text) }
    append(UInt8(ascii: "\""))
    for scalar in text.unicodeScalars {
      if scalar.value >= 0x7F, scalar.controlsDisplay {
        // Four digits suffice, since all these characters are in the Basic Multilingual Plane.
        let digits = String(scalar.value, radix: 16)
        append("\\u" + String(repeating: "0", count: 4 - digits.count) + digits)
      } else {
        append(jsonEscaped: Array(String(scalar).utf8).span)
      }
    }
    append(UInt8(ascii: "\""))
  }
}
