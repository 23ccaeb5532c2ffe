import ByteStreams
import JSONCodec

/// What makes a message the one that is meant. All conditions must hold.
package struct Matcher: Hashable, Sendable {
  package enum Condition: Hashable, Sendable {
    /// The whole payload is this.
    case text(String)
    /// The payload begins with this.
    case prefix(String)
    /// A JSON string with this content stands there, or another value that is written so.
    case value(JSONPointer, String)
    /// A JSON string there, or another value, begins with this.
    case valuePrefix(JSONPointer, String)
    /// Any JSON value stands there.
    case present(JSONPointer)
  }

  /// At least one.
  package let conditions: [Condition]

  package init(_ conditions: [Condition]) {
    precondition(!conditions.isEmpty, "a matcher without a condition would match everything")
    self.conditions = conditions
  }

  package func matches(_ payload: Span<UInt8>) -> Bool {
    for condition in conditions {
      guard Self.holds(condition, payload) else { return false }
    }
    return true
  }

  private static func holds(_ condition: Condition, _ payload: Span<UInt8>) -> Bool {
    switch condition {
    case .text(let text): payload.equals(Array(text.utf8).span)
    case .prefix(let text): starts(payload, with: text)
    case .value(let pointer, let text): pointer.content(in: payload) == Array(text.utf8)
    case .valuePrefix(let pointer, let text): pointer.content(in: payload).map { starts($0.span, with: text) } ?? false
    case .present(let pointer): pointer.find(in: payload) != nil
    }
  }

  private static func starts(_ payload: Span<UInt8>, with text: String) -> Bool {
    let length = text.utf8.count
    return payload.count >= length && payload.extracting(first: length).equals(Array(text.utf8).span)
  }
}
