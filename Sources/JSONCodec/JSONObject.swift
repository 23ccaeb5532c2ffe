import ByteStreams

/// The members of a JSON object, found without building anything of it: places in the text, in order.
package struct JSONObject {
  package struct Member {
    /// Between the quotes, as it stands in the text.
    package let name: Range<Int>
    package let value: Range<Int>
  }

  package let members: [Member]

  /// Most members looked at; one that has more is no document a person wrote for us.
  package static let memberLimit = 1_024

  /// nil where `text`, which must be valid JSON (`JSONValidator`), is no object or has more than `memberLimit` members.
  package init?(_ text: Span<UInt8>) {
    var scanner = Scanner(index: 0)
    scanner.skipWhitespace(text)
    guard scanner.take(UInt8(ascii: "{"), text) else { return nil }
    var members: [Member] = []
    scanner.skipWhitespace(text)
    while scanner.index < text.count, text[scanner.index] != UInt8(ascii: "}") {
      guard members.count < Self.memberLimit else { return nil }
      let name = scanner.value(text)
      scanner.skipWhitespace(text)
      guard name.count >= 2, scanner.take(UInt8(ascii: ":"), text) else { return nil }
      scanner.skipWhitespace(text)
      let value = scanner.value(text)
      members.append(Member(name: name.lowerBound + 1..<name.upperBound - 1, value: value))
      scanner.skipWhitespace(text)
      if scanner.take(UInt8(ascii: ","), text) { scanner.skipWhitespace(text) }
    }
    self.members = members
  }
}

/// Steps over the values of a valid JSON text.
private struct Scanner {
  var index: Int

  mutating func take(_ byte: UInt8, _ text: Span<UInt8>) -> Bool {
    guard index < text.count, text[index] == byte else { return false }
    index += 1
    return true
  }

  mutating func skipWhitespace(_ text: Span<UInt8>) {
    while index < text.count, [0x20, 0x09, 0x0A, 0x0D].contains(text[index]) { index += 1 }
  }

  /// Steps over one value, be it nested; answers where it stands.
  mutating func value(_ text: Span<UInt8>) -> Range<Int> {
    let start = index
    var depth = 0
    while index < text.count {
      switch text[index] {
      case UInt8(ascii: "\""):
        skipString(text)
        if depth == 0 { return start..<index }
        continue
      case UInt8(ascii: "{"), UInt8(ascii: "["):
        depth += 1
      case UInt8(ascii: "}"), UInt8(ascii: "]"):
        if depth == 0 { return start..<index }
        depth -= 1
        if depth == 0 {
          index += 1
          return start..<index
        }
      case UInt8(ascii: ","), 0x20, 0x09, 0x0A, 0x0D:
        if depth == 0 { return start..<index }
      default:
        break
      }
      index += 1
    }
    return start..<index
  }

  private mutating func skipString(_ text: Span<UInt8>) {
    index += 1
    while index < text.count, text[index] != UInt8(ascii: "\"") {
      index += text[index] == UInt8(ascii: "\\") ? 2 : 1
    }
    index = min(index + 1, text.count)
  }
}
