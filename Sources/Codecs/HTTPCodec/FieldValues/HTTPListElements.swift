import ByteStreams

/// Iterates over the elements of a comma-separated list (RFC 9110 §5.6.1).
///
/// Whitespace around elements is removed. Empty elements are skipped, as a recipient must. A separator inside a quoted string does
/// not separate. Other separators are for grammars such as the parameters of an element.
package struct HTTPListElements: ~Escapable {
  private let list: Span<UInt8>
  private let separator: UInt8
  private var position = 0

  @_lifetime(copy list)
  package init(_ list: Span<UInt8>, separatedBy separator: UInt8 = UInt8(ascii: ",")) {
    self.list = list
    self.separator = separator
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
          if byte == UInt8(ascii: "\\") { end &+= 1 }
          if byte == UInt8(ascii: "\"") { quoted = false }
        } else if byte == UInt8(ascii: "\"") {
          quoted = true
        } else if byte == separator {
          break
        }
        end &+= 1
      }
      // A backslash as the last byte advances one byte too far.
      if end > list.count { end = list.count }
      position = end &+ 1
      let element = list.extracting(start..<end).trimmingWhitespace()
      if !element.isEmpty { return element }
    }
    return nil
  }
}
