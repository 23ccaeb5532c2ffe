import ByteStreams

/// A part of a command: its name, or an argument. A command is an array of parts.
///
///     output.append(command: ["SET", .bytes(key), .decimal(value)])
package enum RESPPart: ExpressibleByStringLiteral, Sendable {
  case literal(StaticString)
  case text(String)
  case bytes([UInt8])
  /// A number in decimal digits.
  case decimal(UInt64)

  package init(stringLiteral literal: StaticString) { self = .literal(literal) }

  /// A part with the bytes that `write` appends.
  package static func written(_ write: (inout ByteQueue) -> Void) -> RESPPart {
    var output = ByteQueue()
    write(&output)
    return .bytes(output.copyBytes())
  }
}

extension ByteQueue {
  /// Appends a command as an array of strings (RESP2).
  package mutating func append(command parts: [RESPPart]) {
    append("*")
    append(decimal: parts.count)
    append("\r\n")
    for part in parts {
      switch part {
      case .literal(let text):
        begin(part: text.utf8CodeUnitCount)
        append(text)
      case .text(let text):
        begin(part: text.utf8.count)
        append(text.utf8Span.span)
      case .bytes(let bytes):
        begin(part: bytes.count)
        append(bytes.span)
      case .decimal(let value):
        begin(part: Self.digits(of: value))
        append(decimal: value)
      }
      append("\r\n")
    }
  }

  private mutating func begin(part count: Int) {
    append("$")
    append(decimal: count)
    append("\r\n")
  }

  private static func digits(of value: UInt64) -> Int {
    var digits = 1
    var rest = value / 10
    while rest > 0 {
      digits += 1
      rest /= 10
    }
    return digits
  }
}
