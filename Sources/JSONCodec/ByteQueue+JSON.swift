import ByteStreams

extension ByteQueue {
  /// Appends `text`, which must be UTF-8, as a JSON string with its quotes. Runs that need no escape are copied whole.
  package mutating func append(jsonString text: Span<UInt8>) {
    append(UInt8(ascii: "\""))
    append(jsonEscaped: text)
    append(UInt8(ascii: "\""))
  }

  package mutating func append(jsonString text: String) { append(jsonString: Array(text.utf8).span) }

  /// As `append(jsonString:)`, without the quotes. Answers whether the bytes went in as they are.
  @discardableResult
  package mutating func append(jsonEscaped text: Span<UInt8>) -> Bool {
    var start = 0
    var index = 0
    while index < text.count {
      let byte = text[index]
      if byte >= 0x20, byte != 0x22, byte != 0x5C {
        index &+= 1
        continue
      }
      append(text.extracting(start..<index))
      append(escapeFor: byte)
      index &+= 1
      start = index
    }
    append(text.extracting(start..<text.count))
    return start == 0
  }

  private mutating func append(escapeFor byte: UInt8) {
    switch byte {
    case 0x22: append("\\\"" as StaticString)
    case 0x5C: append("\\\\" as StaticString)
    case 0x0A: append("\\n" as StaticString)
    case 0x0D: append("\\r" as StaticString)
    case 0x09: append("\\t" as StaticString)
    default:
      append("\\u00" as StaticString)
      append(byte >> 4 &+ 0x30)
      append(byte & 15 < 10 ? byte & 15 &+ 0x30 : byte & 15 &+ 0x57)
    }
  }
}
