import ByteStreams
import JSONCodec

/// Selects messages by topic (exact topics, or all topics with a prefix) and by namespace. A new filter selects all
/// messages.
package struct TopicFilter: Hashable, Sendable {
  private struct Pattern: Hashable, Sendable {
    /// The topic with JSON escapes, as in a rendered message. JSON escapes each character on its own, so equality and
    /// prefixes are preserved.
    let escaped: [UInt8]
    let isPrefix: Bool
  }

  /// nil if messages are not selected by topic. An empty list selects no message.
  private var topics: [Pattern]?
  /// nil if messages are not selected by namespace.
  package private(set) var namespaces: [[UInt8]]?

  /// Maximum number of patterns. Each pattern is compared with each push while a poll is held.
  package static var maximumPatterns: Int { 16 }

  package init() {}

  /// A filter for the topics that an operator allows; it selects nothing if `patterns` is empty. The number of these
  /// patterns has its own limit.
  package init(granted patterns: [[UInt8]]) {
    topics = patterns.filter { !$0.isEmpty }.map { Self.pattern($0.span) }
  }

  /// Number of patterns.
  var count: Int { (topics?.count ?? 0) + (namespaces?.count ?? 0) }

  /// Adds a topic. With a final `*`, adds all topics that begin with the text before the `*`. Returns false if the text
  /// is empty or longer than a topic, or if the filter has its maximum number of patterns.
  package mutating func add(_ text: Span<UInt8>) -> Bool {
    guard !text.isEmpty, count < Self.maximumPatterns else { return false }
    let isPrefix = text[text.count - 1] == UInt8(ascii: "*")
    guard text.count - (isPrefix ? 1 : 0) <= PushTopic.maximumBytes else { return false }
    topics = (topics ?? []) + [Self.pattern(text)]
    return true
  }

  /// Adds a namespace. Returns false if the filter has its maximum number of patterns.
  package mutating func add(namespace: Span<UInt8>) -> Bool {
    guard count < Self.maximumPatterns else { return false }
    namespaces = (namespaces ?? []) + [[UInt8](copying: namespace)]
    return true
  }

  /// Returns this filter of a request, limited to `granted`, the topics that the client may receive. The topics that
  /// the request names must be among the granted topics.
  package func within(_ granted: TopicFilter) -> TopicFilter {
    var filter = self
    if filter.topics == nil { filter.topics = granted.topics }
    return filter
  }

  private static func pattern(_ text: Span<UInt8>) -> Pattern {
    let isPrefix = text[text.count - 1] == UInt8(ascii: "*")
    let topic = isPrefix ? text.extracting(first: text.count - 1) : text
    var escaped = ByteQueue()
    escaped.append(jsonString: topic)
    return Pattern(escaped: [UInt8](copying: escaped.bytes.extracting(1..<escaped.count - 1)), isPrefix: isPrefix)
  }

  /// Whether the message has one of the topics, if the filter has topics, and one of the namespaces, if the filter has
  /// namespaces. A message without a topic matches no topic.
  func matches(_ message: RetainedMessage) -> Bool {
    if let namespaces, !Self.matches(message.namespace, namespaces) { return false }
    guard let topics else { return true }
    return message.hasTopic && Self.matches(message.escapedTopic, topics)
  }

  private static func matches(_ topic: Span<UInt8>, _ topics: [Pattern]) -> Bool {
    for pattern in topics {
      if pattern.escaped.count > topic.count { continue }
      guard pattern.isPrefix || pattern.escaped.count == topic.count else { continue }
      if topic.extracting(first: pattern.escaped.count).equals(pattern.escaped.span) { return true }
    }
    return false
  }

  private static func matches(_ namespace: Span<UInt8>, _ namespaces: [[UInt8]]) -> Bool {
    for name in namespaces where namespace.equals(name.span) { return true }
    return false
  }

  /// Appends the topics as query parameters, each after `&`.
  package func writeTopics(into output: inout ByteQueue) {
    for pattern in topics ?? [] {
      output.append("&topic=" as StaticString)
      let token = [UInt8(ascii: "\"")] + pattern.escaped + [UInt8(ascii: "\"")]
      let topic = JSONString.content(of: token.span) ?? []
      output.append(PercentEncoder.encode(topic.span))
      if pattern.isPrefix { output.append(UInt8(ascii: "*")) }
    }
  }

  /// Appends the namespaces as query parameters, each after `&`.
  package func writeNamespaces(into output: inout ByteQueue) {
    for namespace in namespaces ?? [] {
      output.append("&namespace=" as StaticString)
      output.append(PercentEncoder.encode(namespace.span))
    }
  }
}
