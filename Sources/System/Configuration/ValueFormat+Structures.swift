import UpstreamProtocol
import JSONCodec

/// Formats that consist of several values: templates, pointers, matchers and the opening.

extension ValueFormat where Value == Template? {
  /// A message with placeholders, or empty text for nil.
  static func template(_ place: Template.Context) -> ValueFormat {
    ValueFormat(
      expectation: "a message; placeholders such as ${cursor} are replaced when it is sent",
      reader: .structure(isText: true) { reader, node, key throws(ConfigurationError) in
        try reader.template(node, in: place, key)
      }, format: StructureText.text(of:))
  }
}

extension ValueFormat where Value == JSONPointer? {
  static var pointer: ValueFormat {
    ValueFormat(
      expectation: "a JSON pointer such as /data/sequence",
      reader: .structure(isText: true) { reader, node, key throws(ConfigurationError) in
        try reader.pointer(node, key)
      }, format: { PrintableText.quoted($0?.description ?? "") })
  }
}

extension ValueFormat where Value == Matcher? {
  static var matcher: ValueFormat {
    ValueFormat(
      expectation: "text, or one or more of " + StructureReader.matcherKeys.joined(separator: ", "),
      reader: .structure(isText: false) { reader, node, key throws(ConfigurationError) in
        try reader.matcher(node, key)
      }, format: StructureText.text(of:))
  }
}

extension ValueFormat where Value == [UpstreamConventions.OpeningMessage] {
  static var opening: ValueFormat {
    ValueFormat(
      expectation: "a list of steps, each with one or more of " + StructureReader.openingKeys.joined(separator: ", "),
      reader: .structure(isText: false) { reader, node, key throws(ConfigurationError) in
        try reader.opening(node, key)
      }, format: StructureText.text(of:))
  }
}

extension ValueFormat where Value == [TopicSource.Rule] {
  static var topicRules: ValueFormat {
    ValueFormat(
      expectation: "a list of rules such as {match: {prefix: tick}, topic: ticks}",
      reader: .structure(isText: false) { reader, node, key throws(ConfigurationError) in
        try reader.topicRules(node, key)
      }, format: StructureText.text(of:))
  }
}

extension ValueFormat where Value == Correlation? {
  static var correlation: ValueFormat {
    ValueFormat(
      expectation: "jsonrpc, or JSON pointers such as {request: /id, reply: /id}",
      reader: .structure(isText: false) { reader, node, key throws(ConfigurationError) in
        try reader.correlation(node, key)
      }, format: StructureText.text(of:))
  }
}
