import ByteStreams
import UpstreamProtocol
import JSONCodec

/// Formats the settings that consist of several values as in the file: in YAML's flow style, which is nearly JSON.
enum StructureText {
  static func text(of template: Template?) -> String {
    let text = PrintableText.quoted(template?.description ?? "")
    return template?.kind == .binary ? "!!binary \(text)" : text
  }

  static func text(of templates: [Template]) -> String {
    "[\(templates.map { text(of: $0) }.joined(separator: ", "))]"
  }

  static func text(of matcher: Matcher?) -> String {
    let alternatives = (matcher?.alternatives ?? [[]]).map(text(of:))
    return alternatives.count == 1 ? alternatives[0] : "[\(alternatives.joined(separator: ", "))]"
  }

  private static func text(of conditions: [Matcher.Condition]) -> String {
    var members: [(name: String, value: String)] = []
    var values: [(place: String, value: String)] = []
    var prefixes: [(place: String, value: String)] = []
    var places: [String] = []
    var parts: [String] = []
    var operations: [(place: String, value: String)] = []
    for condition in conditions {
      switch condition {
      case .text(let text): members.append(("text", PrintableText.quoted(text)))
      case .prefix(let text): members.append(("prefix", PrintableText.quoted(text)))
      case .contains(let pattern): parts.append(PrintableText.quoted(pattern.text))
      case .value(let pointer, let text):
        values.append((PrintableText.quoted(pointer.description), PrintableText.quoted(text)))
      case .valuePrefix(let pointer, let text):
        prefixes.append((PrintableText.quoted(pointer.description), PrintableText.quoted(text)))
      case .present(let pointer): places.append(PrintableText.quoted(pointer.description))
      case .graphQL(let pointer, let operation):
        operations.append((PrintableText.quoted(pointer.description), operation.rawValue))
      }
    }
    if !parts.isEmpty { members.append(("contains", "[\(parts.joined(separator: ", "))]")) }
    if !values.isEmpty { members.append(("json", mapping(values))) }
    if !prefixes.isEmpty { members.append(("json_prefix", mapping(prefixes))) }
    if !places.isEmpty { members.append(("json_has", "[\(places.joined(separator: ", "))]")) }
    if !operations.isEmpty { members.append(("graphql", mapping(operations))) }
    return mapping(members)
  }

  static func text(of messages: [UpstreamConventions.OpeningMessage]) -> String {
    let items = messages.map { message in
      var members: [(String, String)] = []
      if let send = message.send { members.append(("send", text(of: send))) }
      if let expect = message.expect { members.append(("expect", text(of: expect))) }
      if let refuse = message.refuse { members.append(("refuse", text(of: refuse))) }
      if let resumed = message.resumed { members.append(("resumed", text(of: resumed))) }
      if let condition = message.condition {
        let name = condition.isCaptured ? "if_captured" : "unless_captured"
        members.append((name, PrintableText.quoted(condition.capture)))
      }
      members.append(("timeout", message.timeout.text))
      return mapping(members)
    }
    return "[\(items.joined(separator: ", "))]"
  }

  static func text(of rules: [TopicSource.Rule]) -> String {
    let items = rules.map { mapping([("match", text(of: $0.match)), ("topic", PrintableText.quoted($0.topic))]) }
    return "[\(items.joined(separator: ", "))]"
  }

  static func text(of failures: [UpstreamConventions.Failure]) -> String {
    let items = failures.map {
      mapping(
        [("match", text(of: $0.match)), ("cause", PrintableText.quoted($0.cause))]
          + ($0.forgetsCaptures ? [("forget", "true")] : []))
    }
    return "[\(items.joined(separator: ", "))]"
  }

  static func text(of acknowledgements: [UpstreamConventions.Acknowledgement]) -> String {
    let items = acknowledgements.map {
      mapping([("match", text(of: $0.match)), ("send", text(of: $0.send)), ("when", $0.moment.rawValue)])
    }
    return "[\(items.joined(separator: ", "))]"
  }

  static func text(of captures: [CaptureRule]) -> String {
    let items = captures.map { rule in
      var members: [(String, String)] = []
      if let match = rule.match { members.append(("match", text(of: match))) }
      members.append(("pointer", text(of: rule.source)))
      if rule.isShown { members.append(("show", "true")) }
      if rule.isKept { members.append(("keep", "true")) }
      return (rule.name, mapping(members))
    }
    return mapping(items)
  }

  static func text(of replacements: [SubscriptionRules.Replacement]) -> String {
    mapping(replacements.map { (PrintableText.quoted($0.place.description), PrintableText.quoted($0.capture)) })
  }

  /// One place, or a list of places.
  static func text(of source: ValueSource) -> String {
    let places = source.places.map { place in
      switch place {
      case .pointer(let pointer): return PrintableText.quoted(pointer.description)
      case .text(let pattern, let isPrefix, let end):
        var members = [(isPrefix ? "prefix" : "after", PrintableText.quoted(pattern.text))]
        if let end { members.append(("until", PrintableText.quoted(end.text))) }
        return mapping(members)
      }
    }
    return places.count == 1 ? places[0] : "[\(places.joined(separator: ", "))]"
  }

  static func text(of correlation: Correlation?) -> String {
    guard let correlation else { return PrintableText.quoted("") }
    var rest: [(String, String)] = []
    if let ignore = correlation.ignore { rest.append(("ignore", text(of: ignore))) }
    if correlation.ids != .keepType { rest.append(("ids", correlation.ids.rawValue)) }
    if correlation.isJSONRPC {
      return rest.isEmpty ? StructureReader.jsonRPC : mapping([("protocol", StructureReader.jsonRPC)] + rest)
    }
    let replies = correlation.replies.map { reply in
      var members = [("pointer", PrintableText.quoted(reply.pointer.description))]
      if case .matching(let matcher) = reply.shape { members.append(("match", text(of: matcher))) }
      return members
    }
    let request = ("request", PrintableText.quoted(correlation.request.description))
    if replies.count == 1 {
      return mapping([request] + replies[0].map { $0.0 == "pointer" ? ("reply", $0.1) : $0 } + rest)
    }
    return mapping([request, ("reply", "[\(replies.map(mapping).joined(separator: ", "))]")] + rest)
  }

  static func list(_ texts: [String]) -> String {
    "[" + texts.map(PrintableText.quoted).joined(separator: ", ") + "]"
  }

  static func mapping(_ members: [(String, String)]) -> String {
    "{" + members.map { "\($0): \($1)" }.joined(separator: ", ") + "}"
  }
}
