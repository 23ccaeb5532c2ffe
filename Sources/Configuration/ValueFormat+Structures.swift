import ByteStreams
import UpstreamProtocol
import JSONCodec

/// Formats that consist of several values: templates, pointers, matchers and the opening.

extension ValueFormat where Value == Template? {
  /// A message with placeholders. An empty text means that there is no message (nil).
  static func template(_ place: Template.Context) -> ValueFormat {
    .structure(
      "a message; placeholders such as ${cursor} are replaced when it is sent", isText: true,
      read: { reader in { node, key throws(ConfigurationError) in try reader.template(node, in: place, key) } },
      format: StructureText.text(of:))
  }
}

extension ValueFormat where Value == [Template] {
  static var closing: ValueFormat {
    .structure(
      "a message, or a list of messages", schema: .texts, read: StructureReader.closing,
      format: StructureText.text(of:))
  }
}

extension ValueFormat where Value == JSONPointer? {
  static var pointer: ValueFormat {
    .structure(
      "a JSON pointer such as /data/sequence", isText: true, read: StructureReader.pointer,
      format: { PrintableText.quoted($0?.description ?? "") })
  }
}

extension ValueFormat where Value == Matcher? {
  static var matcher: ValueFormat {
    .structure(
      "text, one or more of \(StructureReader.matcherKeys.joined(separator: ", ")), or a list of these",
      schema: StructureReader.matcherSchema, read: StructureReader.matcher,
      format: StructureText.text(of:))
  }

  /// A matcher of messages that change the session (`StructureReader.strictMatcher`).
  static var strictMatcher: ValueFormat {
    .structure(
      "text, one or more of \(StructureReader.strictMatcherKeys.joined(separator: ", ")), or a list of these",
      schema: StructureReader.strictMatcherSchema, read: StructureReader.strictMatcher,
      format: StructureText.text(of:))
  }
}

extension ValueFormat where Value == [UpstreamConventions.OpeningMessage] {
  static var opening: ValueFormat {
    .structure(
      "a list of steps, each with one or more of " + StructureReader.openingKeys.joined(separator: ", "),
      schema: .list(.members(StructureReader.openingMembers)), read: StructureReader.opening,
      format: StructureText.text(of:))
  }
}

extension ValueFormat where Value == [TopicSource.Rule] {
  static var topicRules: ValueFormat {
    .structure(
      "a list of rules such as {match: {prefix: tick}, topic: ticks}",
      schema: .list(.members(StructureReader.topicRuleMembers, required: ["match", "topic"])),
      read: StructureReader.topicRules,
      format: StructureText.text(of:))
  }
}

extension ValueFormat where Value == [UpstreamConventions.Failure] {
  static var failures: ValueFormat {
    let members = ValueSchema.members(StructureReader.failureMembers, required: ["match", "cause"])
    return .structure(
      "{match: …, cause: a sentence}, or a list of these", schema: .any([members, .list(members)]),
      read: StructureReader.failures, format: StructureText.text(of:))
  }
}

extension ValueFormat where Value == [UpstreamConventions.Acknowledgement] {
  static var acknowledgements: ValueFormat {
    let members = ValueSchema.members(StructureReader.acknowledgementMembers, required: ["match", "send"])
    return .structure(
      "{match: …, send: a message}, or a list of these", schema: .any([.text, members, .list(members)]),
      read: StructureReader.acknowledgements, format: StructureText.text(of:))
  }
}

extension ValueFormat where Value == ValueSource? {
  /// One or more places of a value, or empty text for nil.
  static var places: ValueFormat {
    .structure(
      "a JSON pointer such as /data/sequence, the texts around the value, or a list of these",
      schema: StructureReader.placeSchema, read: StructureReader.source,
      format: { source in source.map { StructureText.text(of: $0) } ?? PrintableText.quoted("") })
  }
}

extension ValueFormat where Value == [CaptureRule] {
  static var captures: ValueFormat {
    .structure(
      "names with their places, such as {session: {pointer: /session_id}}",
      schema: .any([.text, .pairs(.members(StructureReader.captureMembers, required: ["pointer"]))]),
      read: StructureReader.captures, format: StructureText.text(of:))
  }
}

extension ValueFormat where Value == String? {
  /// The name of a captured value, or empty text for nil.
  static var captureName: ValueFormat {
    .scalar(
      "the name of a captured value: letters, digits, '_' and '-'",
      read: { $0.isEmpty ? .some(nil) : CaptureRule.isValid(name: $0) ? $0 : nil },
      format: { PrintableText.quoted($0 ?? "") })
  }
}

extension ValueFormat where Value == [SubscriptionRules.Replacement] {
  static var replacements: ValueFormat {
    .structure(
      "JSON pointers with the names of captured values, such as {/session_id: session}",
      schema: .any([.text, .pairs(.text)]), read: StructureReader.replacements, format: StructureText.text(of:))
  }
}

extension ValueFormat where Value == CapturedInterval? {
  static var capturedInterval: ValueFormat {
    .scalar(
      "the name of a captured value in milliseconds, or NAME:seconds",
      read: { $0.isEmpty ? .some(nil) : CapturedInterval($0).map { .some($0) } },
      format: { PrintableText.quoted($0?.description ?? "") })
  }
}

extension ValueFormat where Value == Correlation? {
  static var correlation: ValueFormat {
    .structure(
      "jsonrpc, or JSON pointers such as {request: /id, reply: /id}",
      schema: .any([
        .text, .members(StructureReader.correlationMembers, required: ["request", "reply"]),
        .members(StructureReader.correlationMembers, required: ["protocol"]),
      ]), read: StructureReader.correlation,
      format: StructureText.text(of:))
  }
}
