import ByteStreams

/// Iterates over the elements of a comma-separated list (RFC 9110 §5.6.1).
///
/// Whitespace around elements is removed. Empty elements are skipped, as RFC 9110 requires of a recipient. Whether a
/// separator inside quotes separates elements depends on the field (`Quoting`). Separators other than the comma are for
/// other grammars, such as the parameters of an element.
package struct HTTPListElements: ~Escapable {
  /// The meaning of a quotation mark in the elements of a list.
  package enum Quoting: Sendable {
    /// It has no meaning, because the elements are tokens or addresses. An unmatched quotation mark in a client's value
    /// therefore does not hide an element that a proxy has appended.
    case none
    /// It begins or ends a quoted string, in which a backslash escapes the next character (RFC 9110 §5.6.4).
    case strings
    /// It begins or ends an entity tag, in which a backslash is a character like any other (RFC 9110 §8.8.3).
    case entityTags
  }

  private let list: Span<UInt8>
  private let separator: UInt8
  private let quoting: Quoting
  private var position = 0

  @_lifetime(copy list)
  package init(_ list: Span<UInt8>, separatedBy separator: UInt8 = UInt8(ascii: ","), quoting: Quoting) {
    self.list = list
    self.separator = separator
    self.quoting = quoting
  }

  /// Returns the next element, or nil at the end.
  @_lifetime(copy self)
  package mutating func next() -> Span<UInt8>? {
    while position < list.count {
      let start = position
      var quoted = false
      var end = start
      while end < list.count {
        let byte = list[end]
        if quoted {
          if byte == UInt8(ascii: "\\"), quoting == .strings { end &+= 1 }
          if byte == UInt8(ascii: "\""), quoting != .none { quoted = false }
        } else if byte == UInt8(ascii: "\""), quoting != .none {
          quoted = true
        } else if byte == separator {
          break
        }
        end &+= 1
      }
      // If the last byte is a backslash, `end` is one byte too far.
      if end > list.count { end = list.count }
      position = end &+ 1
      let element = list.extracting(start..<end).trimmingWhitespace()
      if !element.isEmpty { return element }
    }
    return nil
  }
}
