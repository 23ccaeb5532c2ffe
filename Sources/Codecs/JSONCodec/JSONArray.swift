import ByteStreams

/// The elements of a JSON array as ranges of the text. No values are created.
package enum JSONArray {
  /// `text` must be valid JSON (`JSONValidator`). Returns nil if it is not an array or has more than `maximum`
  /// elements.
  package static func elements(of text: Span<UInt8>, maximum: Int) -> [Range<Int>]? {
    var scanner = JSONScanner()
    guard scanner.skip(UInt8(ascii: "["), text) else { return nil }
    var elements: [Range<Int>] = []
    while !scanner.skip(UInt8(ascii: "]"), text) {
      guard elements.count < maximum, let value = scanner.value(in: text) else { return nil }
      elements.append(value)
      _ = scanner.skip(UInt8(ascii: ","), text)
    }
    return elements
  }
}
