import ByteStreams
import JSONCodec

/// The location of a value in a message: one or more places. The first place that has a value applies.
package struct ValueSource: Hashable, Sendable {
  package enum Place: Hashable, Sendable {
    /// A JSON value.
    case pointer(JSONPointer)
    /// The text after `start`, up to `end` or to the end of the message. `isPrefix`: the message begins with `start`.
    /// Otherwise, `start` is searched for.
    case text(after: TextPattern, isPrefix: Bool, until: TextPattern?)
  }

  /// Never empty.
  package let places: [Place]

  package init(_ places: [Place]) {
    precondition(!places.isEmpty, "a value needs a place")
    self.places = places
  }

  package init(_ pointer: JSONPointer) { self.init([.pointer(pointer)]) }

  /// The content of a string or of a text, or a number or boolean as written.
  package func value(in message: Span<UInt8>) -> FoundValue {
    for place in places {
      switch place {
      case .pointer(let pointer):
        if let range = pointer.find(in: message) { return Self.value(of: message.extracting(range)) }
      case .text(let pattern, let isPrefix, let end):
        guard let start = isPrefix ? pattern.end(atStartOf: message) : pattern.end(in: message) else { continue }
        let rest = message.extracting(start..<message.count)
        guard let end else { return Self.text(rest) }
        // A text without its end is not complete.
        guard let after = end.end(in: rest) else { continue }
        let text = rest.extracting(first: after - end.count)
        // Both forms of a line break end a line.
        let isCut = end.text == "\n" && !text.isEmpty && text[text.count - 1] == UInt8(ascii: "\r")
        return Self.text(text.extracting(first: text.count - (isCut ? 1 : 0)))
      }
    }
    return .none
  }

  /// If the text is too long for every use, only its beginning is returned.
  private static func text(_ text: Span<UInt8>) -> FoundValue {
    .value([UInt8](copying: text.extracting(first: CapturedValue.maximumBytes + 1)), isText: true)
  }

  private static func value(of token: Span<UInt8>) -> FoundValue {
    switch token[0] {
    case UInt8(ascii: "\""): JSONString.content(of: token).map { .value($0, isText: true) } ?? .unusable
    case UInt8(ascii: "{"), UInt8(ascii: "["): .unusable
    case UInt8(ascii: "n"): .none
    default: JSONValidator.isValid(token) ? .value([UInt8](copying: token), isText: false) : .unusable
    }
  }
}

/// The result of a search for a value.
package enum FoundValue: Equatable, Sendable {
  /// There is no value, or it is null.
  case none
  /// An object, an array or invalid JSON.
  case unusable
  /// `isText`: it is a text or a string. Otherwise, it is a number or boolean.
  case value([UInt8], isText: Bool)
}
