import ByteStreams

/// A media type with its parameters (RFC 9110 §8.3.1): `text/plain; charset=utf-8`.
package struct HTTPMediaType: ~Escapable {
  /// `text`
  package let type: Span<UInt8>
  /// `plain`
  package let subtype: Span<UInt8>
  private let parameters: Span<UInt8>

  /// Returns nil unless `text` begins with `type/subtype`. The parameters are not validated.
  @_lifetime(copy text)
  package init?(_ text: Span<UInt8>) {
    let semicolon = text.firstIndex(of: UInt8(ascii: ";")) ?? text.count
    let essence = text.extracting(first: semicolon).trimmingWhitespace()
    let slash = essence.firstIndex(of: UInt8(ascii: "/")) ?? essence.count
    guard slash < essence.count else { return nil }
    let type = essence.extracting(first: slash)
    let subtype = essence.extracting((slash &+ 1)..<essence.count)
    guard type.isToken(), subtype.isToken() else { return nil }
    self.type = type
    self.subtype = subtype
    parameters = text.extracting(min(semicolon &+ 1, text.count)..<text.count)
  }

  /// Whether this is `type/subtype`, ignoring parameters. The arguments must be in lower case.
  package func `is`(_ type: StaticString, _ subtype: StaticString) -> Bool {
    self.type.equalsIgnoringCase(type) && self.subtype.equalsIgnoringCase(subtype)
  }

  /// Whether the subtype ends with `suffix`, such as `+json` (RFC 6838 §4.2.8). `suffix` must be in lower case.
  package func hasSuffix(_ suffix: StaticString) -> Bool {
    let size = suffix.utf8CodeUnitCount
    guard subtype.count > size else { return false }
    return subtype.extracting((subtype.count &- size)..<subtype.count).equalsIgnoringCase(suffix)
  }

  /// The value of the parameter `name`, which must be in lower case. Returns a quoted string without its quotes.
  /// Backslash escapes are not decoded, since the parameters that are used here have none.
  @_lifetime(copy self)
  package func parameter(_ name: StaticString) -> Span<UInt8>? {
    var list = HTTPListElements(parameters, separatedBy: UInt8(ascii: ";"), quoting: .strings)
    while let element = list.next() {
      let equals = element.firstIndex(of: UInt8(ascii: "=")) ?? element.count
      guard equals < element.count, element.extracting(first: equals).equalsIgnoringCase(name) else { continue }
      return element.extracting((equals &+ 1)..<element.count).withoutQuotes()
    }
    return nil
  }
}

extension Span where Element == UInt8 {
  /// Whether this is a `token`: one or more `tchar`.
  package func isToken() -> Bool {
    guard !isEmpty else { return false }
    for index in indices where !ASCII.isToken(self[index]) { return false }
    return true
  }

  /// The content of a quoted string, with its backslashes. Any other value is returned unchanged.
  @_lifetime(copy self)
  package func withoutQuotes() -> Span<UInt8> {
    guard count >= 2, self[0] == UInt8(ascii: "\""), self[count &- 1] == UInt8(ascii: "\"") else { return self }
    return extracting(1..<(count &- 1))
  }
}
