import ByteStreams

/// The members of a JSON object as ranges of the text, in order. No values are created.
package struct JSONObject {
  package struct Member {
    /// The range of the name's token, quotes included. `JSONString` decodes it.
    package let name: Range<Int>
    /// The range of the value.
    package let value: Range<Int>
  }

  package let members: [Member]

  /// The maximum number of members. No document written for the gateway has more.
  package static let memberLimit = 1_024

  /// `text` must be valid JSON (`JSONValidator`). Returns nil if it is not an object or has more than `memberLimit`
  /// members.
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
