import ByteStreams
import JSONCodec

/// A test of a message's payload. The matcher matches if all conditions of at least one alternative are met.
package struct Matcher: Hashable, Sendable {
  package enum Condition: Hashable, Sendable {
    /// The whole payload equals this text.
    case text(String)
    /// The payload begins with this text.
    case prefix(String)
    /// The payload contains this text.
    case contains(TextPattern)
    /// The JSON value at the pointer is a string with this content, or another value with this JSON text.
    case value(JSONPointer, String)
    /// Like `value`, but compares only the beginning.
    case valuePrefix(JSONPointer, String)
    /// There is a JSON value at the pointer.
    case present(JSONPointer)
    /// The JSON string at the pointer is a GraphQL document whose operations all have this type.
    case graphQL(JSONPointer, GraphQLOperation)
  }

  /// Never empty, and no alternative is empty.
  package let alternatives: [[Condition]]

  package init(_ conditions: [Condition]) { self.init(anyOf: [conditions]) }

  package init(anyOf alternatives: [[Condition]]) {
    precondition(
      !alternatives.isEmpty && alternatives.allSatisfy { !$0.isEmpty },
      "a matcher without a condition would match everything")
    self.alternatives = alternatives
  }

  /// Whether the matcher searches for a text anywhere in the message.
  package var searchesText: Bool {
    alternatives.joined().contains { if case .contains = $0 { true } else { false } }
  }

  package func matches(_ payload: Span<UInt8>) -> Bool {
    for conditions in alternatives where Self.matches(conditions, payload) { return true }
    return false
  }

  private static func matches(_ conditions: [Condition], _ payload: Span<UInt8>) -> Bool {
    for condition in conditions {
      guard matches(condition, payload) else { return false }
    }
    return true
  }

  private static func matches(_ condition: Condition, _ payload: Span<UInt8>) -> Bool {
    switch condition {
    case .text(let text): payload.equals(Array(text.utf8).span)
    case .prefix(let text): starts(payload, with: text)
    case .contains(let pattern): pattern.isContained(in: payload)
    case .value(let pointer, let text): pointer.content(in: payload) == Array(text.utf8)
    case .valuePrefix(let pointer, let text): pointer.content(in: payload).map { starts($0.span, with: text) } ?? false
    case .present(let pointer): pointer.find(in: payload) != nil
    case .graphQL(let pointer, let operation):
      pointer.content(in: payload).map { operation.isOnlyOne(in: $0.span) } ?? false
    }
  }

  private static func starts(_ payload: Span<UInt8>, with text: String) -> Bool {
    let length = text.utf8.count
    return payload.count >= length && payload.extracting(first: length).equals(Array(text.utf8).span)
  }
}
