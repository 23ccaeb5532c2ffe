import ByteStreams

/// The text of a URL with an authority, `scheme://authority/path` (RFC 3986 §3), split at its delimiters. This type
/// parses every URL of the program first. A second type, such as `HTTPURL`, then decides which schemes, paths and
/// credentials are accepted.
package struct URLParts {
  /// The scheme as written. A text before `://` that is not a scheme may be a secret, so it is not accepted.
  package let scheme: Substring
  /// `user:password@host:port`, not verified.
  package let authority: Substring
  /// Path, query and fragment: empty, or begins with `/`, `?` or `#`.
  package let path: Substring

  /// Returns nil unless `text` begins with a scheme and `://`.
  package init?(_ text: String) {
    guard let separator = text.firstRange(of: "://"), URICharacter.isScheme(text[..<separator.lowerBound]) else {
      return nil
    }
    let rest = text[separator.upperBound...]
    scheme = text[..<separator.lowerBound]
    authority = rest.prefix { !"/?#".contains($0) }
    path = rest[authority.endIndex...]
  }

  /// Whether the scheme is the secure scheme of `schemes`; nil if it is neither.
  package func isSecure(_ schemes: (plain: String, secure: String)) -> Bool? {
    let scheme = scheme.lowercased()
    return scheme == schemes.secure ? true : scheme == schemes.plain ? false : nil
  }

  /// Verifies that the URL consists of printable ASCII, and parses its authority.
  package func parseAuthority() throws(URLAuthorityError) -> URLAuthority {
    let isPrintable = { (byte: UInt8) in byte > 0x20 && byte < 0x7F }
    guard authority.utf8.allSatisfy(isPrintable), path.utf8.allSatisfy(isPrintable) else {
      let host = authority.lastIndex(of: "@").map { authority[authority.index(after: $0)...] } ?? authority
      throw host.utf8.contains { $0 > 0x7F } ? .internationalName : .badCharacter
    }
    do throws(URLAuthorityError) {
      return try URLAuthority(authority)
    } catch {
      // An '@' in the path means that a password probably contains a delimiter.
      throw (error == .badPort || error == .badHost) && path.contains("@") ? .unencodedDelimiter : error
    }
  }
}
