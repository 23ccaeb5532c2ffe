import UpstreamProtocol
import JSONCodec

/// Values that are more than one value: messages with placeholders, what matches a message, the opening.

extension ValueForm where Value == Template? {
  /// A message with placeholders, or nothing.
  static func template(_ place: Template.Context) -> ValueForm {
    ValueForm(
      expectation: "a message; placeholders such as ${cursor} are replaced when it is sent",
      reader: .structure(isText: true) { reader, node, key throws(ConfigurationError) in
        try reader.template(node, in: place, key)
      }, show: StructureText.text(of:))
  }
}

extension ValueForm where Value == JSONPointer? {
  static var pointer: ValueForm {
    ValueForm(
      expectation: "a JSON pointer such as /data/sequence",
      reader: .structure(isText: true) { reader, node, key throws(ConfigurationError) in
        try reader.pointer(node, key)
      }, show: { PrintableText.quoted($0?.description ?? "") })
  }
}

extension ValueForm where Value == Matcher? {
  static var matcher: ValueForm {
    ValueForm(
      expectation: "a text, or one or more of " + StructureReader.matcherKeys.joined(separator: ", "),
      reader: .structure(isText: false) { reader, node, key throws(ConfigurationError) in
        try reader.matcher(node, key)
      }, show: StructureText.text(of:))
  }
}

extension ValueForm where Value == [UpstreamConventions.OpeningMessage] {
  static var opening: ValueForm {
    ValueForm(
      expectation: "a list, each of " + StructureReader.openingKeys.joined(separator: ", "),
      reader: .structure(isText: false) { reader, node, key throws(ConfigurationError) in
        try reader.opening(node, key)
      }, show: StructureText.text(of:))
  }
}
