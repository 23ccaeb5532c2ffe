import ByteStreams

/// Iterates over the entity tags of a list (RFC 9110 §8.8.3, §13.1.2), without `W/` and quotes.
///
/// Inside the quotes a backslash is an ordinary character, so the tags are not quoted strings. A tag without quotes is
/// accepted, since some clients remove the quotes.
package struct HTTPEntityTags: ~Escapable {
  private let list: Span<UInt8>
  private var position = 0

  @_lifetime(copy list)
  package init(_ list: Span<UInt8>) { self.list = list }

  /// Returns the next tag, which is empty for `""`, or nil at the end.
  @_lifetime(copy self)
  package mutating func next() -> Span<UInt8>? {
    while position < list.count, Self.isBetweenTags(list[position]) { position &+= 1 }
    guard position < list.count else { return nil }
    if list.extracting(position..<list.count).starts(with: "W/") { position &+= 2 }
    let isQuoted = position < list.count && list[position] == UInt8(ascii: "\"")
    let start = isQuoted ? position &+ 1 : position
    let terminator = isQuoted ? UInt8(ascii: "\"") : UInt8(ascii: ",")
    var end = start
    while end < list.count, list[end] != terminator { end &+= 1 }
    position = min(end &+ 1, list.count)
    let tag = list.extracting(start..<end)
    return isQuoted ? tag : tag.trimmingWhitespace()
  }

  private static func isBetweenTags(_ byte: UInt8) -> Bool {
    byte == UInt8(ascii: ",") || byte == UInt8(ascii: " ") || byte == UInt8(ascii: "\t")
  }
}

extension HTTPFields {
  /// Calls `body` with each entity tag of a field, over all its lines in order.
  package func forEachEntityTag(of field: HTTPFieldName, _ body: (Span<UInt8>) -> Void) {
    var next = index(of: field)
    while let index = next {
      var tags = HTTPEntityTags(value(at: index))
      while let tag = tags.next() { body(tag) }
      next = self.index(of: field, from: index &+ 1)
    }
  }
}
