import ByteStreams

/// Walks the elements of a comma-separated list (RFC 9110 §5.6.1).
///
/// Elements come without white space around them; empty ones are skipped, as a recipient must; a comma inside a quoted
/// string separates nothing. For a grammar that separates by other signs, such as the parameters of an element, give the sign.
package struct HTTPListElements: ~Escapable {
  private let list: Span<UInt8>
  private let separator: UInt8
  private var position = 0

  @_lifetime(copy list)
  package init(_ list: Span<UInt8>, separatedBy separator: UInt8 = UInt8(ascii: ",")) {
    self.list = list
    self.separator = separator
  }

  /// The next element; nil at the end.
  @_lifetime(copy self)
  package mutating func next() -> Span<UInt8>? {
    while position < list.count {
      let start = position
      var quoted = false
      var end = start
      while end < list.count {
        let byte = list[end]
        if quoted {
          if byte == UInt8(ascii: "\\") { end &+= 1 }
          if byte == UInt8(ascii: "\"") { quoted = false }
        } else if byte == UInt8(ascii: "\"") {
          quoted = true
        } else if byte == separator {
          break
        }
        end &+= 1
      }
      // A backslash as the very last byte steps one too far.
      if end > list.count { end = list.count }
      position = end &+ 1
      let element = list.extracting(start..<end).trimmingWhitespace()
      if !element.isEmpty { return element }
    }
    return nil
  }
}
