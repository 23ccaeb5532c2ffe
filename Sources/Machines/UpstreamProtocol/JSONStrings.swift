import ByteStreams
import JSONCodec

enum JSONStrings {
  /// The contents of all strings of a JSON text except member names. Empty if the text is not valid.
  static func contents(of text: [UInt8]) -> [[UInt8]] {
    guard JSONValidator.isValid(text.span) else { return [] }
    var result: [[UInt8]] = []
    var start: Int?
    var index = 0
    while index < text.count {
      let byte = text[index]
      if byte == UInt8(ascii: "\\"), start != nil {
        index += 2
        continue
      }
      if byte == UInt8(ascii: "\"") {
        if let first = start {
          let next = text[(index + 1)...].first { $0 > 0x20 }
          if next != UInt8(ascii: ":"), let content = JSONString.content(of: text.span.extracting(first..<index + 1)) {
            result.append(content)
          }
          start = nil
        } else {
          start = index
        }
      }
      index += 1
    }
    return result
  }
}
