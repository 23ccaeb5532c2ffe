import ByteStreams
import JSONCodec

/// One named field of a log line. It must never contain a payload, a token, or anything that a user sent.
package struct LogField: Sendable {
  enum Value: Sendable {
    case text(String)
    case number(Int)
    case fraction(Double)
    case flag(Bool)
  }
  let name: StaticString
  let value: Value

  package static func text(_ name: StaticString, _ value: String) -> LogField {
    LogField(name: name, value: .text(value))
  }
  package static func number(_ name: StaticString, _ value: Int) -> LogField {
    LogField(name: name, value: .number(value))
  }
  package static func fraction(_ name: StaticString, _ value: Double) -> LogField {
    LogField(name: name, value: .fraction(value))
  }
  package static func flag(_ name: StaticString, _ value: Bool) -> LogField {
    LogField(name: name, value: .flag(value))
  }
}

/// Formats one log line.
struct LogLine {
  let level: LogLevel
  let message: StaticString
  let fields: [LogField]
  let milliseconds: Int64

  func write(_ format: Logger.Format, _ clock: inout TimestampWriter, into buffer: inout ByteQueue) {
    switch format {
    case .json: writeJSON(&clock, into: &buffer)
    case .text: writeText(color: nil, &clock, into: &buffer)
    case .coloredText: writeText(color: level.color, &clock, into: &buffer)
    }
  }

  private func writeJSON(_ clock: inout TimestampWriter, into buffer: inout ByteQueue) {
    buffer.append("{\"time\":\"" as StaticString)
    clock.write(milliseconds: milliseconds, into: &buffer)
    buffer.append("\",\"level\":\"" as StaticString)
    buffer.append(level.name)
    buffer.append("\",\"message\":" as StaticString)
    buffer.append(jsonString: message.description)
    for field in fields {
      buffer.append(",\"" as StaticString)
      buffer.append(field.name)
      buffer.append("\":" as StaticString)
      switch field.value {
      case .text(let text): buffer.append(printableJSONString: text)
      case .number(let number): buffer.append(decimal: number)
      case .fraction(let fraction): buffer.append(fraction.isFinite ? String(fraction) : "null")
      case .flag(let flag): buffer.append(flag ? "true" as StaticString : "false")
      }
    }
    buffer.append("}\n" as StaticString)
  }

  private func writeText(color: String?, _ clock: inout TimestampWriter, into buffer: inout ByteQueue) {
    clock.write(milliseconds: milliseconds, into: &buffer)
    let name = color.map { $0 + level.name + "\u{1B}[0m" } ?? level.name
    let padding = String(repeating: " ", count: 8 - level.name.count)
    buffer.append(" \(name)\(padding)\(message)")
    for field in fields {
      buffer.append("  " as StaticString)
      buffer.append(field.name)
      buffer.append("=" as StaticString)
      switch field.value {
      case .text(let text): buffer.append(readableWord: text)
      case .number(let number): buffer.append(decimal: number)
      case .fraction(let fraction): buffer.append(String(fraction))
      case .flag(let flag): buffer.append(flag ? "true" as StaticString : "false")
      }
    }
    buffer.append("\n" as StaticString)
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

  /// Appends `text` as a JSON string. Characters that control a display are escaped, including those that JSON allows: JSON lines
  /// are read on terminals too.
  fileprivate mutating func append(printableJSONString text: String) {
    guard text.utf8.contains(where: { $0 >= 0x7F }) else { return append(jsonString: text) }
    append(UInt8(ascii: "\""))
    for scalar in text.unicodeScalars {
      if scalar.value >= 0x7F, scalar.controlsDisplay {
        // All of them are in the Basic Multilingual Plane.
        let digits = String(scalar.value, radix: 16)
        append("\\u" + String(repeating: "0", count: 4 - digits.count) + digits)
      } else {
        append(jsonEscaped: Array(String(scalar).utf8).span)
      }
    }
    append(UInt8(ascii: "\""))
  }
}
