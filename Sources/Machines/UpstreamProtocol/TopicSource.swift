import ByteStreams
import JSONCodec

/// Where the topic of a push is. Only text messages have one.
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

  /// The first one that matches applies.
  package var rules: [Rule] = []
  /// Where other messages contain their topic; nil: they have none.
  package var pointer: JSONPointer?

  package init() {}

  package var isEmpty: Bool { rules.isEmpty && pointer == nil }

  /// The topic of a push: the content of a string, or a number or boolean as written. Empty if there is none.
  ///
  /// Only the value itself must be valid JSON, not the text around it. An upstream that writes `NaN` in a price has topics all the same, and
  /// the text is not validated a second time.
  package func topic(of payload: Span<UInt8>) -> [UInt8] {
    for rule in rules where rule.match.matches(payload) { return Array(rule.topic.utf8) }
    guard let range = pointer?.find(in: payload) else { return [] }
    let token = payload.extracting(range)
    switch token[0] {
    case UInt8(ascii: "\""): return JSONString.content(of: token) ?? []
    // An object, an array or null names nothing.
    case UInt8(ascii: "{"), UInt8(ascii: "["), UInt8(ascii: "n"): return []
    default: return JSONValidator.isValid(token) ? [UInt8](copying: token) : []
    }
  }
}
