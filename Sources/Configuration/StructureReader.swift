import ByteStreams
import Inbox
import UpstreamProtocol
import JSONCodec

/// Reads the settings that consist of several values: templates, matchers, pointers and the opening.
struct StructureReader {
  let environment: [String: String]
  let readFile: ConfigurationLoader.FileReader
  let paths: PathResolver
  /// Returns the place of a node, for error messages.
  let place: (YAMLNode) -> String

  static let matcherMembers: [ValueSchema.Member] = [
    .init("text", .text), .init("prefix", .text), .init("contains", .texts), .init("json", .pairs(.text)),
    .init("json_prefix", .pairs(.text)), .init("json_has", .texts),
    .init("graphql", .pairs(.words(GraphQLOperation.allCases.map(\.rawValue)))),
  ]
  static var matcherKeys: [String] { matcherMembers.map(\.name) }
  static let matcherSchema = ValueSchema.shared(
    "matcher", .any([.text, .members(matcherMembers), .list(.any([.text, .members(matcherMembers)]))]))
  static let strictMatcherMembers = matcherMembers.filter { $0.name != "contains" }
  static var strictMatcherKeys: [String] { strictMatcherMembers.map(\.name) }
  static let strictMatcherSchema = ValueSchema.shared(
    "strict_matcher",
    .any([.text, .members(strictMatcherMembers), .list(.any([.text, .members(strictMatcherMembers)]))]))
  static let replyMembers: [ValueSchema.Member] = [.init("pointer", .text), .init("match", matcherSchema)]
  static let correlationMembers: [ValueSchema.Member] = [
    .init("protocol", .words([jsonRPC])), .init("request", .text),
    .init("reply", .any([.text, .list(.members(replyMembers, required: ["pointer"]))])), .init("match", matcherSchema),
    .init("ignore", matcherSchema),
    .init("ids", .words(Correlation.IDs.allCases.map(\.rawValue))),
  ]
  static let jsonRPC = "jsonrpc"
  static let openingMembers: [ValueSchema.Member] = [
    .init("send", .text), .init("expect", matcherSchema), .init("refuse", strictMatcherSchema),
    .init("resumed", strictMatcherSchema), .init("if_captured", .text), .init("unless_captured", .text),
    .init("timeout", .duration(.milliseconds(1)...(.longestParsable))),
  ]
  static var openingKeys: [String] { openingMembers.map(\.name) }
  static let topicRuleMembers: [ValueSchema.Member] = [.init("match", matcherSchema), .init("topic", .text)]

  /// Maximum number of steps of an opening. A longer exchange is not a handshake.
  private static let openingLimit = 64
  /// Maximum size of a template, in bytes.
  private static let templateLimit = 64 << 10
  /// Maximum number of rules for topics. Each may scan every message.
  private static let topicRuleLimit = 64
  static let failureMembers: [ValueSchema.Member] = [
    .init("match", strictMatcherSchema), .init("cause", .text), .init("forget", .boolean),
  ]
  /// Maximum number of failures. Each may scan every message.
  private static let failureLimit = 16
  /// Maximum number of forms of replies. Each may scan every message while a call waits.
  private static let replyLimit = 16
  /// Maximum number of conditions of a matcher. Each may scan the whole message.
  private static let conditionLimit = 16

  func fail(_ node: YAMLNode, _ message: String) -> ConfigurationError {
    ConfigurationError(place: place(node), message: message)
  }

  func scalar(_ node: YAMLNode, _ key: String) throws(ConfigurationError) -> String {
    if case .binary = node.value { throw fail(node, "'\(key)' \(Self.noBinary)") }
    guard case .scalar(let text) = node.value else { throw fail(node, "'\(key)' must be a plain value") }
    return text
  }

  static let noBinary =
    "must be text: '!!binary' is accepted for messages of 'on_open', 'on_close' and 'heartbeat' only"

  func items(_ node: YAMLNode, _ key: String, maximum: Int) throws(ConfigurationError) -> [YAMLNode] {
    guard case .sequence(let items) = node.value, items.count <= maximum else {
      throw fail(node, "'\(key)' must be a list of at most \(maximum) plain values")
    }
    return items
  }

  /// Returns the keys and values of a node whose keys must be in `known`.
  func members(
    _ node: YAMLNode, _ key: String, _ known: [String]
  ) throws(ConfigurationError) -> [(name: String, value: YAMLNode)] {
    guard case .mapping(let pairs) = node.value else {
      throw fail(node, "'\(key)' must have keys and values: use the keys \(known.joined(separator: ", "))")
    }
    var result: [(name: String, value: YAMLNode)] = []
    for (keyNode, value) in pairs {
      let name = try scalar(keyNode, key)
      guard known.contains(name) else {
        let hint = Suggestion.text(for: name, among: known)
        throw fail(
          keyNode, "unknown key '\(key).\(name)'\(hint.isEmpty ? ": use \(known.joined(separator: ", "))" : hint)"
        )
      }
      guard !result.contains(where: { $0.name == name }) else { throw fail(keyNode, "'\(key).\(name)' is set twice") }
      result.append((name, value))
    }
    return result
  }

  func template(
    _ node: YAMLNode, in home: Template.Context, _ key: String
  ) throws(ConfigurationError) -> Template? {
    if case .binary(let bytes) = node.value, home.acceptsBinary {
      guard bytes.count <= Self.templateLimit else {
        throw fail(node, "'\(key)' is longer than \(Self.templateLimit) bytes")
      }
      return Template(binary: bytes)
    }
    let text = paths.absoluteReferences(in: try scalar(node, key), at: place(node))
    guard !text.isEmpty else { return nil }
    guard text.utf8.count <= Self.templateLimit else {
      throw fail(node, "'\(key)' is longer than \(Self.templateLimit) bytes")
    }
    let template: Template
    do throws(TemplateSyntaxError) {
      template = try Template(text, in: home, environment: environment)
    } catch {
      throw fail(node, "in '\(key)': \(error)")
    }
    for path in template.files.sorted() where readFile(path) == nil {
      throw fail(node, "file '\(path)' cannot be read")
    }
    return template
  }

  func pointer(_ node: YAMLNode, _ key: String) throws(ConfigurationError) -> JSONPointer? {
    let text = try scalar(node, key)
    return text.isEmpty ? nil : try pointer(text, node)
  }

  private func pointer(_ text: String, _ node: YAMLNode) throws(ConfigurationError) -> JSONPointer {
    guard let pointer = JSONPointer(text) else {
      throw fail(node, "'\(text)' is not a JSON pointer: it must begin with '/', as in /data/sequence")
    }
    return pointer
  }

  private func duration(_ node: YAMLNode, _ key: String) throws(ConfigurationError) -> TimeSpan {
    let text = try scalar(node, key)
    guard let span = TimeSpan(text), span > .zero else {
      throw fail(node, "'\(text)' is not valid for '\(key)': use a duration such as 500ms, 20s or 10m")
    }
    return span
  }

  // MARK: Matchers

  /// Returns a matcher of messages that change the session, such as a refusal. Such a matcher must not search the whole
  /// message, since a text that a user writes could then match.
  func strictMatcher(_ node: YAMLNode, _ key: String) throws(ConfigurationError) -> Matcher? {
    let matcher = try matcher(node, key)
    guard matcher?.searchesText != true else {
      throw fail(
        node,
        "'\(key)' must not use 'contains', since any text in a message could then trigger it: use \(Self.strictMatcherKeys.joined(separator: ", "))"
      )
    }
    return matcher
  }

  /// Reads a matcher. A plain text matches a message that is equal to it. A list has alternatives. Returns nil for an
  /// empty text.
  func matcher(_ node: YAMLNode, _ key: String) throws(ConfigurationError) -> Matcher? {
    var alternatives: [[Matcher.Condition]] = []
    if case .sequence(let items) = node.value {
      for (index, item) in items.enumerated() {
        let conditions = try conditions(item, "\(key)[\(index)]")
        guard !conditions.isEmpty else { throw fail(item, "'\(key)[\(index)]' is empty and would match every message") }
        alternatives.append(conditions)
      }
    } else {
      let conditions = try conditions(node, key)
      if !conditions.isEmpty { alternatives.append(conditions) }
    }
    guard alternatives.reduce(0, { $0 + $1.count }) <= Self.conditionLimit else {
      throw fail(node, "'\(key)' has more than \(Self.conditionLimit) conditions")
    }
    return alternatives.isEmpty ? nil : Matcher(anyOf: alternatives)
  }

  private func conditions(_ node: YAMLNode, _ key: String) throws(ConfigurationError) -> [Matcher.Condition] {
    if case .scalar(let text) = node.value { return text.isEmpty ? [] : [.text(text)] }
    var conditions: [Matcher.Condition] = []
    for (name, value) in try members(node, key, Self.matcherKeys) {
      switch name {
      case "text": conditions.append(.text(try scalar(value, "\(key).text")))
      case "prefix": conditions.append(.prefix(try scalar(value, "\(key).prefix")))
      case "contains":
        for (text, item) in try oneOrMore(value, "\(key).contains") {
          guard !text.isEmpty else { throw fail(item, "'\(key).contains' is empty and would match every message") }
          conditions.append(.contains(TextPattern(text)))
        }
      case "json_has":
        for (text, item) in try oneOrMore(value, "\(key).json_has") {
          conditions.append(.present(try pointer(text, item)))
        }
      case "graphql":
        for (place, text) in try values(value, "\(key).graphql") {
          guard let operation = GraphQLOperation(rawValue: text) else {
            throw fail(
              value,
              "'\(text)' is not valid for '\(key).graphql': use "
                + GraphQLOperation.allCases.map(\.rawValue).joined(separator: ", "))
          }
          conditions.append(.graphQL(place, operation))
        }
      default:
        for (place, text) in try values(value, "\(key).\(name)") {
          conditions.append(name == "json" ? .value(place, text) : .valuePrefix(place, text))
        }
      }
    }
    return conditions
  }

  /// Returns the texts of a list, or the only text.
  private func oneOrMore(
    _ node: YAMLNode, _ key: String
  ) throws(ConfigurationError) -> [(text: String, node: YAMLNode)] {
    guard case .sequence(let items) = node.value else { return [(try scalar(node, key), node)] }
    var result: [(String, YAMLNode)] = []
    for item in items { result.append((try scalar(item, key), item)) }
    return result
  }

  private func values(
    _ node: YAMLNode, _ key: String
  ) throws(ConfigurationError) -> [(JSONPointer, String)] {
    guard case .mapping(let pairs) = node.value else {
      throw fail(node, "'\(key)' must map JSON pointers to values, as in {/type: auth_ok}")
    }
    var result: [(JSONPointer, String)] = []
    for (place, value) in pairs {
      result.append((try pointer(try scalar(place, key), place), try scalar(value, key)))
    }
    return result
  }

  // MARK: Topics

  func topicRules(_ node: YAMLNode, _ key: String) throws(ConfigurationError) -> [TopicSource.Rule] {
    if case .scalar(let text) = node.value, text.isEmpty { return [] }
    guard case .sequence(let items) = node.value, items.count <= Self.topicRuleLimit else {
      throw fail(
        node,
        "'\(key)' must be a list of at most \(Self.topicRuleLimit) rules, as in [{match: {prefix: tick}, topic: ticks}]"
      )
    }
    var result: [TopicSource.Rule] = []
    for (index, item) in items.enumerated() {
      let key = "\(key)[\(index)]"
      let (match, topic) = try rule(item, key, Self.topicRuleMembers, matcher)
      guard let match, (1...PushTopic.maximumBytes).contains(topic.utf8.count) else {
        throw fail(item, "'\(key)' needs 'match' and a 'topic' of 1 to \(PushTopic.maximumBytes) bytes")
      }
      result.append(TopicSource.Rule(match: match, topic: topic))
    }
    return result
  }

  /// Reads the members of a rule: `match`, and one text.
  private func rule(
    _ node: YAMLNode, _ key: String, _ known: [ValueSchema.Member],
    _ readMatcher: (YAMLNode, String) throws(ConfigurationError) -> Matcher?
  ) throws(ConfigurationError) -> (match: Matcher?, text: String) {
    var match: Matcher?
    var text = ""
    for (name, value) in try members(node, key, known.map(\.name)) {
      if name == "match" {
        match = try readMatcher(value, "\(key).match")
      } else {
        text = try scalar(value, "\(key).\(name)")
      }
    }
    return (match, text)
  }

  // MARK: Failures

  func failures(_ node: YAMLNode, _ key: String) throws(ConfigurationError) -> [UpstreamConventions.Failure] {
    if case .scalar(let text) = node.value, text.isEmpty { return [] }
    guard case .sequence(let items) = node.value else { return [try failure(node, key)] }
    guard items.count <= Self.failureLimit else {
      throw fail(node, "'\(key)' has more than \(Self.failureLimit) entries")
    }
    var result: [UpstreamConventions.Failure] = []
    for (index, item) in items.enumerated() { result.append(try failure(item, "\(key)[\(index)]")) }
    return result
  }

  private func failure(_ node: YAMLNode, _ key: String) throws(ConfigurationError) -> UpstreamConventions.Failure {
    var (match, cause, forgets): (Matcher?, String, Bool) = (nil, "", false)
    for (name, value) in try members(node, key, Self.failureMembers.map(\.name)) {
      switch name {
      case "match": match = try strictMatcher(value, "\(key).match")
      case "cause": cause = try scalar(value, "\(key).cause")
      default: forgets = try flag(value, "\(key).forget")
      }
    }
    let longest = UpstreamConventions.Failure.maximumCause
    guard let match, (1...longest).contains(cause.utf8.count) else {
      throw fail(
        node,
        "'\(key)' needs 'match' and a 'cause' of 1 to \(longest) bytes, as in {match: {json: {/type: timeout}}, cause: the session has timed out}"
      )
    }
    return UpstreamConventions.Failure(match: match, cause: cause, forgetsCaptures: forgets)
  }

  // MARK: Acknowledgements

  static let acknowledgementMembers: [ValueSchema.Member] = [
    .init("match", matcherSchema), .init("send", .text),
    .init("when", .words(UpstreamConventions.Acknowledgement.Moment.allCases.map(\.rawValue))),
  ]

  func acknowledgements(
    _ node: YAMLNode, _ key: String
  ) throws(ConfigurationError) -> [UpstreamConventions.Acknowledgement] {
    if case .scalar(let text) = node.value, text.isEmpty { return [] }
    guard case .sequence(let items) = node.value else { return [try acknowledgement(node, key)] }
    guard items.count <= UpstreamConventions.Acknowledgement.maximumCount else {
      throw fail(node, "'\(key)' has more than \(UpstreamConventions.Acknowledgement.maximumCount) entries")
    }
    var result: [UpstreamConventions.Acknowledgement] = []
    for (index, item) in items.enumerated() { result.append(try acknowledgement(item, "\(key)[\(index)]")) }
    return result
  }

  private func acknowledgement(
    _ node: YAMLNode, _ key: String
  ) throws(ConfigurationError) -> UpstreamConventions.Acknowledgement {
    var match: Matcher?
    var send: Template?
    var moment = UpstreamConventions.Acknowledgement.Moment.received
    for (name, value) in try members(node, key, Self.acknowledgementMembers.map(\.name)) {
      switch name {
      case "match": match = try matcher(value, "\(key).match")
      case "send": send = try template(value, in: .reply, "\(key).send")
      default:
        let words = UpstreamConventions.Acknowledgement.Moment.allCases.map(\.rawValue)
        moment = try word(value, "\(key).when", words) { .init(rawValue: $0) }
      }
    }
    guard let match, let send else {
      throw fail(
        node, "'\(key)' needs 'match' and 'send', as in {match: {json_has: /ack}, send: '{\"ack\":${raw:/ack}}'}")
    }
    return .init(match: match, send: send, when: moment)
  }

  // MARK: Captures

  /// One place of a value: a JSON pointer, or the texts around it.
  static let textPlaceMembers: [ValueSchema.Member] = [
    .init("prefix", .text), .init("after", .text), .init("until", .text),
  ]
  static let placeSchema = ValueSchema.shared(
    "place", .any([.text, .members(textPlaceMembers), .list(.any([.text, .members(textPlaceMembers)]))]))
  static let captureMembers: [ValueSchema.Member] = [
    .init("match", matcherSchema), .init("pointer", placeSchema), .init("show", .boolean), .init("keep", .boolean),
  ]
  /// Maximum number of places of a value. Each may scan every message.
  private static let placeLimit = 8

  func captures(_ node: YAMLNode, _ key: String) throws(ConfigurationError) -> [CaptureRule] {
    if case .scalar(let text) = node.value, text.isEmpty { return [] }
    guard case .mapping(let pairs) = node.value, pairs.count <= CaptureRule.maximumCount else {
      throw fail(
        node,
        "'\(key)' must have at most \(CaptureRule.maximumCount) names, as in {session: {pointer: /session_id}}")
    }
    var result: [CaptureRule] = []
    for (nameNode, value) in pairs {
      let name = try scalar(nameNode, key)
      guard CaptureRule.isValid(name: name) else {
        throw fail(
          nameNode,
          "'\(name)' is not a valid name for '\(key)': use 1 to \(CaptureRule.maximumName) letters, digits, '_' and '-'"
        )
      }
      guard !result.contains(where: { $0.name == name }) else { throw fail(nameNode, "'\(key).\(name)' is set twice") }
      result.append(try capture(value, "\(key).\(name)", name))
    }
    return result
  }

  private func capture(_ node: YAMLNode, _ key: String, _ name: String) throws(ConfigurationError) -> CaptureRule {
    var match: Matcher?
    var source: ValueSource?
    var (isShown, isKept) = (false, false)
    for (member, value) in try members(node, key, Self.captureMembers.map(\.name)) {
      switch member {
      case "match": match = try matcher(value, "\(key).match")
      case "pointer": source = try self.source(value, "\(key).pointer")
      case "show": isShown = try flag(value, "\(key).show")
      default: isKept = try flag(value, "\(key).keep")
      }
    }
    guard let source else {
      throw fail(node, "'\(key)' needs 'pointer': the JSON pointer of the value, such as /session_id")
    }
    var rule = CaptureRule(name, source, match: match)
    (rule.isShown, rule.isKept) = (isShown, isKept)
    return rule
  }

  func replacements(
    _ node: YAMLNode, _ key: String
  ) throws(ConfigurationError) -> [SubscriptionRules.Replacement] {
    if case .scalar(let text) = node.value, text.isEmpty { return [] }
    let replacements = try values(node, key).map { SubscriptionRules.Replacement($0.0, with: $0.1) }
    guard replacements.count <= SubscriptionRules.Replacement.maximumCount else {
      throw fail(node, "'\(key)' has more than \(SubscriptionRules.Replacement.maximumCount) places")
    }
    for replacement in replacements where !CaptureRule.isValid(name: replacement.capture) {
      throw fail(node, "'\(replacement.capture)' is not valid for '\(key)': use the name of a captured value")
    }
    return replacements
  }

  private func flag(_ node: YAMLNode, _ key: String) throws(ConfigurationError) -> Bool {
    let text = try scalar(node, key)
    guard let value = Bool(text) else { throw fail(node, "'\(text)' is not valid for '\(key)': use true or false") }
    return value
  }

  /// Reads one place of a value, or a list of places. Returns nil for an empty text.
  func source(_ node: YAMLNode, _ key: String) throws(ConfigurationError) -> ValueSource? {
    guard case .sequence(let items) = node.value else {
      return try place(node, key).map { ValueSource([$0]) }
    }
    guard (1...Self.placeLimit).contains(items.count) else {
      throw fail(node, "'\(key)' must have 1 to \(Self.placeLimit) places")
    }
    var places: [ValueSource.Place] = []
    for (index, item) in items.enumerated() {
      guard let place = try place(item, "\(key)[\(index)]") else { throw fail(item, "'\(key)[\(index)]' is empty") }
      places.append(place)
    }
    return ValueSource(places)
  }

  private func place(_ node: YAMLNode, _ key: String) throws(ConfigurationError) -> ValueSource.Place? {
    guard case .mapping = node.value else { return try pointer(node, key).map { .pointer($0) } }
    var start: (text: TextPattern, isPrefix: Bool)?
    var end: TextPattern?
    for (member, value) in try members(node, key, Self.textPlaceMembers.map(\.name)) {
      let text = try scalar(value, "\(key).\(member)")
      switch member {
      case "until":
        guard !text.isEmpty else {
          throw fail(value, "'\(key).until' is empty: leave it out for the rest of the message")
        }
        end = TextPattern(text)
      default:
        guard start == nil else { throw fail(node, "'\(key)' must have only one of 'prefix' and 'after'") }
        start = (TextPattern(text), member == "prefix")
      }
    }
    guard let start else {
      throw fail(
        node, "'\(key)' needs 'prefix' or 'after': the text before the value, as in {prefix: \"tick \", until: \" \"}")
    }
    return .text(after: start.text, isPrefix: start.isPrefix, until: end)
  }

  // MARK: Calls

  /// Reads how replies are assigned to calls. Returns nil for an empty text.
  func correlation(_ node: YAMLNode, _ key: String) throws(ConfigurationError) -> Correlation? {
    if case .scalar(let text) = node.value {
      if text.isEmpty { return nil }
      guard text == Self.jsonRPC else {
        throw fail(node, "'\(text)' is not valid for '\(key)': use jsonrpc, or {request: /id, reply: /id}")
      }
      return .jsonRPC
    }
    var request: JSONPointer?
    var replies: [Correlation.Reply] = []
    var (match, ignore): (Matcher?, Matcher?)
    var ids = Correlation.IDs.keepType
    var isJSONRPC = false
    let given = try members(node, key, Self.correlationMembers.map(\.name))
    for (name, value) in given {
      switch name {
      case "protocol":
        isJSONRPC = true
        _ = try word(value, "\(key).protocol", [Self.jsonRPC]) { $0 }
      case "ids":
        ids = try word(value, "\(key).ids", Correlation.IDs.allCases.map(\.rawValue), Correlation.IDs.init)
      case "request": request = try pointer(value, "\(key).request")
      case "reply": replies = try self.replies(value, "\(key).reply")
      case "ignore": ignore = try matcher(value, "\(key).ignore")
      default: match = try matcher(value, "\(key).match")
      }
    }
    if isJSONRPC {
      guard given.allSatisfy({ ["protocol", "ids", "ignore"].contains($0.name) }) else {
        throw fail(node, "'\(key).protocol' already says where the id is: leave out 'request', 'reply' and 'match'")
      }
      return .jsonRPC(ids, ignore: ignore)
    }
    guard let request, !replies.isEmpty else {
      throw fail(node, "'\(key)' needs 'request' and 'reply': the JSON pointers of the id in each, such as /id")
    }
    if let match {
      guard replies.count == 1, replies[0].shape == .any else {
        throw fail(node, "'\(key).match' has no effect on a list: write 'match' into each entry of '\(key).reply'")
      }
      replies = [Correlation.Reply(replies[0].pointer, .matching(match))]
    }
    return Correlation(request: request, replies: replies, ignore: ignore, ids: ids)
  }

  /// Reads the forms of replies: a pointer, or a list of pointers with matchers. For a message, the first entry that
  /// applies is used.
  private func replies(_ node: YAMLNode, _ key: String) throws(ConfigurationError) -> [Correlation.Reply] {
    guard case .sequence(let items) = node.value else {
      return try pointer(node, key).map { [Correlation.Reply($0, .any)] } ?? []
    }
    guard items.count <= Self.replyLimit else {
      throw fail(node, "'\(key)' has more than \(Self.replyLimit) entries")
    }
    var result: [Correlation.Reply] = []
    for (index, item) in items.enumerated() {
      let key = "\(key)[\(index)]"
      var (place, match): (JSONPointer?, Matcher?)
      for (name, value) in try members(item, key, Self.replyMembers.map(\.name)) {
        if name == "match" {
          match = try matcher(value, "\(key).match")
        } else {
          place = try pointer(value, "\(key).pointer")
        }
      }
      guard let place else { throw fail(item, "'\(key)' needs 'pointer': the JSON pointer of the id, such as /id") }
      result.append(Correlation.Reply(place, match.map { .matching($0) } ?? .any))
    }
    return result
  }

  private func word<Value>(
    _ node: YAMLNode, _ key: String, _ words: [String], _ value: (String) -> Value?
  ) throws(ConfigurationError) -> Value {
    let text = try scalar(node, key)
    guard words.contains(text), let value = value(text) else {
      throw fail(
        node,
        "'\(text)' is not valid for '\(key)': use \(words.joined(separator: ", "))\(Suggestion.text(for: text, among: words))"
      )
    }
    return value
  }

  // MARK: Opening and closing

  /// Maximum number of messages before a close frame.
  private static let closingLimit = 16

  func closing(_ node: YAMLNode, _ key: String) throws(ConfigurationError) -> [Template] {
    guard case .sequence(let items) = node.value else {
      return try template(node, in: .closing, key).map { [$0] } ?? []
    }
    guard items.count <= Self.closingLimit else {
      throw fail(node, "'\(key)' has more than \(Self.closingLimit) messages")
    }
    var result: [Template] = []
    for (index, item) in items.enumerated() {
      guard let message = try template(item, in: .closing, "\(key)[\(index)]") else {
        throw fail(item, "'\(key)[\(index)]' is empty")
      }
      result.append(message)
    }
    return result
  }

  func opening(
    _ node: YAMLNode, _ key: String
  ) throws(ConfigurationError) -> [UpstreamConventions.OpeningMessage] {
    if case .scalar(let text) = node.value, text.isEmpty { return [] }
    guard case .sequence(let items) = node.value, items.count <= Self.openingLimit else {
      throw fail(
        node,
        "'\(key)' must be a list of at most \(Self.openingLimit) steps, as in [{send: hello, expect: {prefix: welcome}}]"
      )
    }
    var result: [UpstreamConventions.OpeningMessage] = []
    for (index, item) in items.enumerated() { result.append(try openingMessage(item, "\(key)[\(index)]")) }
    return result
  }

  private func openingMessage(
    _ node: YAMLNode, _ key: String
  ) throws(ConfigurationError) -> UpstreamConventions.OpeningMessage {
    var message = UpstreamConventions.OpeningMessage()
    for (name, value) in try members(node, key, Self.openingKeys) {
      switch name {
      case "send": message.send = try template(value, in: .opening, "\(key).send")
      case "expect": message.expect = try matcher(value, "\(key).expect")
      case "refuse": message.refuse = try strictMatcher(value, "\(key).refuse")
      case "resumed": message.resumed = try strictMatcher(value, "\(key).resumed")
      case "if_captured", "unless_captured":
        guard message.condition == nil else {
          throw fail(value, "'\(key)' must have only one of 'if_captured' and 'unless_captured'")
        }
        let capture = try scalar(value, "\(key).\(name)")
        guard CaptureRule.isValid(name: capture) else {
          throw fail(value, "'\(capture)' is not valid for '\(key).\(name)': use the name of a captured value")
        }
        message.condition = .init(capture: capture, isCaptured: name == "if_captured")
      default: message.timeout = try duration(value, "\(key).timeout")
      }
    }
    guard message.send != nil || message.expect != nil else {
      throw fail(node, "'\(key)' does nothing: set 'send', 'expect' or both")
    }
    guard message.refuse == nil || message.expect != nil else {
      throw fail(node, "'\(key)' has 'refuse' without 'expect': set 'expect' as well")
    }
    guard message.resumed == nil || message.expect != nil else {
      throw fail(node, "'\(key)' has 'resumed' without 'expect': set 'expect' as well")
    }
    return message
  }
}

extension Template.Context {
  /// Whether a template in this context is a message, which may be binary.
  fileprivate var acceptsBinary: Bool {
    switch self {
    case .opening, .heartbeat, .reply, .closing: true
    case .field, .value: false
    }
  }
}
