import ByteStreams

/// The hosts to which the sessions of a profile may connect, also after a redirect: names, addresses, `*.example.org`
/// for the subdomains of a name, and `*` for any host.
package struct HostPatterns: Hashable, Sendable {
  /// As written.
  package let texts: [String]

  package static let expectation = "use a name, an address, '*.example.org' for its subdomains, or '*' for any host"

  package init() { texts = [] }

  /// Throws the index of the first text that is not a pattern.
  package init(_ texts: [String]) throws(HostPatternError) {
    for (index, text) in texts.enumerated() where !Self.isPattern(text) { throw HostPatternError(index: index) }
    self.texts = texts
  }

  package var isEmpty: Bool { texts.isEmpty }

  /// Whether one of the patterns is `*`.
  package var isAny: Bool { texts.contains("*") }

  /// - Parameter host: a name or an address, without brackets.
  package func contains(_ host: String) -> Bool {
    let host = Self.normalized(host)
    return texts.contains { text in
      let pattern = Self.normalized(text)
      if pattern == "*" { return true }
      guard pattern.hasPrefix("*.") else { return host == pattern }
      // A subdomain has a label before the name.
      let suffix = pattern.dropFirst()
      return host.hasSuffix(suffix) && host.utf8.count > suffix.utf8.count
    }
  }

  private static func isPattern(_ text: String) -> Bool {
    if text == "*" || IPAddress(text) != nil { return true }
    let name = text.hasPrefix("*.") ? text.dropFirst(2) : text[...]
    guard let first = name.utf8.first, first != UInt8(ascii: ".") else { return false }
    return name.utf8.allSatisfy { byte in
      ASCII.isDigit(byte) || (0x61...0x7A).contains(byte | 0x20) || byte == UInt8(ascii: "-")
        || byte == UInt8(ascii: ".") || byte == UInt8(ascii: "_")
    }
  }

  /// Returns `host` in lower case, without the final dot of a fully qualified name.
  private static func normalized(_ host: String) -> String {
    let host = host.lowercased()
    return host.hasSuffix(".") ? String(host.dropLast()) : host
  }
}

package struct HostPatternError: Error, Equatable, Sendable {
  package let index: Int
}
