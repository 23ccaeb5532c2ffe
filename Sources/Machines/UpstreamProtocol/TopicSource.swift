import ByteStreams
import JSONCodec

/// How the topic of a push is found. Only text messages have a topic.
package struct TopicSource: Equatable, Sendable {
  /// Messages that have a fixed topic.
  package struct Rule: Hashable, Sendable {
    package var match: Matcher
    package var topic: String

    package init(match: Matcher, topic: String) {
      self.match = match
      self.topic = topic
    }
  }

  /// The first matching rule applies.
  package var rules: [Rule] = []
  /// The location of the topic in other messages; nil if they have no topic.
  package var source: ValueSource?

  package init() {}

  package var isEmpty: Bool { rules.isEmpty && source == nil }

  /// The topic of a push: the content of a string, or a number or boolean as written. Empty if there is none.
  ///
  /// Only the value itself must be valid JSON, not the text around it. So messages have topics even if an upstream
  /// writes `NaN` for a price, and the text is not validated a second time.
  package func topic(of payload: Span<UInt8>) -> [UInt8] {
    for rule in rules where rule.match.matches(payload) { return Array(rule.topic.utf8) }
    if case .value(let content, _)? = source?.value(in: payload) { return content }
    return []
  }
}
