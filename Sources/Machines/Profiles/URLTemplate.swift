import ByteStreams
import WebSocketCodec

/// The URL of a profile's upstream, with placeholders in its path, its query and, with an allow-list, its host:
/// `wss://{region}.feed.example/{symbol}?depth={depth}`.
package struct URLTemplate: Hashable, Sendable {
  /// The URL as written. It may contain credentials.
  package let text: String
  private let host: VariableText
  /// Everything before the host: scheme and credentials.
  private let beginning: String
  /// The port with its colon, or nothing.
  private let port: String
  /// Path and query.
  private let target: VariableText
  /// The URL with every placeholder replaced by `x`.
  package let sample: WebSocketURL

  /// Throws an error that names the fault, and does not repeat parts that may be secret.
  package init(_ text: String) throws(VariableError) {
    self.text = text
    guard let scheme = Self.range(of: "://", in: text) else { throw VariableError(Self.expectation) }
    let rest = text[scheme.upperBound...]
    let authorityEnd = rest.firstIndex { $0 == "/" || $0 == "?" } ?? rest.endIndex
    let authority = rest[..<authorityEnd]
    let hostStart = authority.lastIndex(of: "@").map { authority.index(after: $0) } ?? authority.startIndex
    let hostAndPort = authority[hostStart...]
    // The port of `[::1]:80` is after the bracket.
    let afterAddress = hostAndPort.lastIndex(of: "]") ?? hostAndPort.startIndex
    let colon = hostAndPort[afterAddress...].firstIndex(of: ":") ?? hostAndPort.endIndex
    beginning = String(text[..<hostStart])
    host = VariableText(String(hostAndPort[..<colon]))
    port = String(hostAndPort[colon...])
    target = VariableText(String(rest[authorityEnd...]))
    guard VariableText(beginning).variables.isEmpty, VariableText(port).variables.isEmpty else {
      throw VariableError("a variable may be part of the host, the path and the query only")
    }
    sample = try Self.parse(beginning + host.replaced { _ in "x" } + port + target.replaced { _ in "x" })
  }

  package static let expectation = "use a URL such as wss://feed.example/{symbol}"

  package var variables: Set<String> { host.variables.union(target.variables) }

  /// Whether the host depends on a variable.
  package var hasVariableHost: Bool { !host.variables.isEmpty }

  /// Returns the URL with these values. In path and query they are percent-encoded.
  package func url(_ values: [String: String]) throws(VariableError) -> WebSocketURL {
    for name in host.variables.sorted() {
      // Only the characters of names are accepted. Other characters could end the host, and begin a port, a path or
      // another host.
      guard let value = values[name], Self.isName(value) else {
        throw VariableError(
          "variable '\(name)' is part of the host, and must consist of letters, digits, dots and inner hyphens")
      }
    }
    let filled = target.replaced { PercentEncoder.encode(Array((values[$0] ?? "").utf8).span) }
    let path = filled.prefix { $0 != "?" }
    guard target.variables.isEmpty || !path.split(separator: "/").contains(where: { $0 == "." || $0 == ".." }) else {
      throw VariableError("the variables make a path with '.' or '..', which would name another resource")
    }
    return try Self.parse(beginning + host.replaced { values[$0] ?? "" } + port + filled)
  }

  private static func isName(_ text: String) -> Bool {
    guard !text.isEmpty, text.utf8.first != UInt8(ascii: "-"), text.utf8.last != UInt8(ascii: "-") else {
      return false
    }
    return text.utf8.allSatisfy { byte in
      ASCII.isDigit(byte) || (0x61...0x7A).contains(byte | 0x20) || byte == UInt8(ascii: "-")
        || byte == UInt8(ascii: ".")
    }
  }

  private static func parse(_ text: String) throws(VariableError) -> WebSocketURL {
    do throws(WebSocketURLError) {
      return try WebSocketURL(text)
    } catch {
      throw VariableError(error.description)
    }
  }

  private static func range(of word: String, in text: String) -> Range<String.Index>? {
    var start = text.startIndex
    while start < text.endIndex {
      if text[start...].hasPrefix(word) { return start..<text.index(start, offsetBy: word.count) }
      start = text.index(after: start)
    }
    return nil
  }
}
