import ByteStreams
import JSONCodec

/// Selects messages by topic: exact topics, or all that begin with a prefix; and by namespace.
package struct TopicFilter: Hashable, Sendable {
  private struct Pattern: Hashable, Sendable {
    /// As it is in a rendered message: JSON escapes each character on its own, so equality and prefixes stay the same.
    let escaped: [UInt8]
    let isPrefix: Bool
    /// Whether it is a namespace, and no topic.
    var isNamespace = false
  }

  private var patterns: [Pattern] = []

  /// Maximum number of patterns. Each is compared with each push while the poll is held.
  package static var maximumPatterns: Int { 16 }

  package init() {}

  /// A filter for the topics that an operator allows, which may be more. Their number has its own limit.
  package init(granted patterns: [[UInt8]]) {
    for pattern in patterns where !pattern.isEmpty { append(pattern.span) }
  }

  package var isEmpty: Bool { patterns.isEmpty }
  private var hasNamespaces: Bool {
    for pattern in patterns where pattern.isNamespace { return true }
    return false
  }
  /// Whether it selects by topic.
  package var hasTopics: Bool { patterns.contains { !$0.isNamespace } }
  package var namespaces: [[UInt8]] { patterns.filter(\.isNamespace).map(\.escaped) }
  /// Number of patterns.
  var count: Int { patterns.count }

  /// Adds a topic, or with a final `*` all topics that begin with the text before it. Returns false if the text is empty or longer
  /// than a topic, or the filter has its maximum number of patterns.
  package mutating func add(_ text: Span<UInt8>) -> Bool {
    guard !text.isEmpty, patterns.count < Self.maximumPatterns else { return false }
    let isPrefix = text[text.count - 1] == UInt8(ascii: "*")
    guard text.count - (isPrefix ? 1 : 0) <= PushTopic.maximumBytes else { return false }
    append(text)
    return true
  }

  /// Adds a namespace. Returns false if the filter has its maximum number of patterns.
  package mutating func add(namespace: Span<UInt8>) -> Bool {
    guard patterns.count < Self.maximumPatterns else { return false }
    patterns.append(Pattern(escaped: [UInt8](copying: namespace), isPrefix: false, isNamespace: true))
    return true
  }

  /// Adds the topics of `other`, whose number has a limit of its own.
  package mutating func add(topicsOf other: TopicFilter) { patterns += other.patterns.filter { !$0.isNamespace } }

  private mutating func append(_ text: Span<UInt8>) {
    let isPrefix = text[text.count - 1] == UInt8(ascii: "*")
    let topic = isPrefix ? text.extracting(first: text.count - 1) : text
    var escaped = ByteQueue()
    escaped.append(jsonString: topic)
    patterns.append(
      Pattern(escaped: [UInt8](copying: escaped.bytes.extracting(1..<escaped.count - 1)), isPrefix: isPrefix))
  }

  /// Whether the message has one of the topics, if there are any, and one of the namespaces, if there are any. A message without a topic has
  /// none of them.
  func matches(_ message: RetainedMessage) -> Bool {
    if hasNamespaces {
      guard matchesNamespace(message) else { return false }
      guard hasTopics else { return true }
    }
    guard message.hasTopic else { return false }
    let topic = message.escapedTopic
    for pattern in patterns where !pattern.isNamespace {
      if pattern.escaped.count > topic.count { continue }
      guard pattern.isPrefix || pattern.escaped.count == topic.count else { continue }
      if topic.extracting(first: pattern.escaped.count).equals(pattern.escaped.span) { return true }
    }
    return false
  }

  private func matchesNamespace(_ message: RetainedMessage) -> Bool {
    let namespace = message.namespace
    for pattern in patterns where pattern.isNamespace && namespace.equals(pattern.escaped.span) { return true }
    return false
  }

  /// Appends the patterns as query parameters, each after `&`.
  package func writeQuery(into output: inout ByteQueue) {
    for pattern in patterns {
      if pattern.isNamespace {
        output.append("&namespace=" as StaticString)
        output.append(PercentEncoder.encode(pattern.escaped.span))
        continue
      }
      output.append("&topic=" as StaticString)
      let token = [UInt8(ascii: "\"")] + pattern.escaped + [UInt8(ascii: "\"")]
      let topic = JSONString.content(of: token.span) ?? []
      output.append(PercentEncoder.encode(topic.span))
      if pattern.isPrefix { output.append(UInt8(ascii: "*")) }
    }
  }
}
