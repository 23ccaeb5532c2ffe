import ByteStreams

/// The members of a JSON object, found without building anything of it: places in the text, in order.
package struct JSONObject {
  package struct Member {
    /// The name's token, quotes included (`JSONString` reads it).
    package let name: Range<Int>
    package let value: Range<Int>
  }

  package let members: [Member]

  /// Most members looked at; one that has more is no document a person wrote for us.
  package static let memberLimit = 1_024

  /// nil where `text`, which must be valid JSON (`JSONValidator`), is no object or has more than `memberLimit` members.
  package init?(_ text: Span<UInt8>) {
    var scanner = JSONScanner()
    guard scanner.skip(UInt8(ascii: "{"), text) else { return nil }
    var members: [Member] = []
    while !scanner.skip(UInt8(ascii: "}"), text) {
      guard members.count < Self.memberLimit, let name = scanner.name(in: text), let value = scanner.value(in: text)
      else { return nil }
      members.append(Member(name: name, value: value))
      _ = scanner.skip(UInt8(ascii: ","), text)
    }
    self.members = members
  }
}
