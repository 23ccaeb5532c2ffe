import ByteStreams

/// URLs for logs and terminals: without userinfo and query, which may contain secrets.
package enum MaskedURL {
  private static let mask = "***"

  /// `text` with userinfo, query and fragment replaced. The text may be a misspelt URL, so if its parts are ambiguous,
  /// more of it is replaced.
  ///
  /// - Parameter impliedScheme: the scheme of a text that has no scheme, such as `redis`; nil if a text without a
  ///   scheme is not a URL.
  package static func text(_ text: String, impliedScheme: String? = nil) -> String {
    if text.isEmpty { return "" }
    if let impliedScheme, !text.contains("://") {
      return String(self.text("\(impliedScheme)://\(text)").dropFirst(impliedScheme.count + 3))
    }
    let text = Substring(text)
    guard let separator = text.firstRange(of: "://") else { return mask }
    let scheme = text[..<separator.lowerBound]
    guard URICharacter.isScheme(scheme), scheme.utf8.count <= longestShownScheme else { return mask }
    let rest = text[separator.upperBound...]
    let queryStart = rest.firstIndex { $0 == "?" || $0 == "#" } ?? rest.endIndex
    let query = rest[queryStart...]
    // If an '@' follows a '?', the '?' may be part of a password, which ends at the '@'.
    guard !query.contains("@") else { return "\(scheme)://\(mask)" }
    var shown = rest[..<queryStart]
    var userinfo = ""
    // A password may also contain an unescaped '/', so the userinfo ends at the last '@'.
    if let at = shown.lastIndex(of: "@") {
      userinfo = mask + "@"
      shown = shown[shown.index(after: at)...]
    }
    guard isAuthority(shown.prefix { $0 != "/" }), shown.utf8.allSatisfy({ $0 > 0x20 && $0 < 0x7F }) else {
      return "\(scheme)://\(mask)"
    }
    return "\(scheme)://\(userinfo)\(shown)" + (query.isEmpty ? "" : "?\(mask)")
  }

  /// The text before `://` is not shown if it has more characters than this, since it is probably a secret that was
  /// written in the wrong place.
  private static let longestShownScheme = 8

  /// `host`, `host:port` or `[address]:port`. Only digits may follow a colon, since any other text may be a password.
  private static func isAuthority(_ text: Substring) -> Bool {
    var rest = text
    if rest.hasPrefix("["), let close = rest.firstIndex(of: "]") {
      guard rest[..<close].utf8.dropFirst().allSatisfy({ isHostByte($0) || $0 == UInt8(ascii: ":") }) else {
        return false
      }
      rest = rest[rest.index(after: close)...]
    } else {
      let host = rest.prefix { $0 != ":" }
      guard !host.isEmpty, host.utf8.allSatisfy(isHostByte) else { return false }
      rest = rest.dropFirst(host.count)
    }
    return rest.isEmpty || rest.first == ":" && rest.dropFirst().utf8.allSatisfy(ASCII.isDigit)
  }

  private static func isHostByte(_ byte: UInt8) -> Bool { ASCII.isUnreserved(byte) || byte == UInt8(ascii: "%") }
}
