import ByteStreams
import HTTPCodec

/// Resolution of redirects (RFC 9110 §15.4, §10.2.2).
extension WebSocketURL {
  /// Resolves the value of a `Location` field: a URL, or a reference relative to this URL (RFC 3986 §4.1). A fragment
  /// is dropped, since it has no meaning for a WebSocket. Credentials are passed on only to the same origin. A redirect
  /// from `wss` to `ws` is rejected.
  package func redirected(to location: String) throws(RedirectionError) -> WebSocketURL {
    let target: WebSocketURL
    do throws(WebSocketURLError) {
      target = try WebSocketURL(absolute(location.prefix { $0 != "#" }))
    } catch {
      throw .notWebSocketURL(error)
    }
    guard target.isSecure || !isSecure else { throw .toPlaintext }
    return target.credentials == nil && hasSameOrigin(as: target) ? target.with(credentials: credentials) : target
  }

  /// Resolves a reference without fragment (RFC 3986 §5.2.2).
  private func absolute(_ reference: Substring) -> String {
    if let scheme = Self.scheme(of: reference) {
      // RFC 6455 does not say whether a redirect has a `ws` or an `http` scheme, and servers use both.
      let rest = reference.dropFirst(scheme.count)
      switch scheme.lowercased() {
      case "http": return "ws" + rest
      case "https": return "wss" + rest
      default: return String(reference)
      }
    }
    let scheme = isSecure ? "wss:" : "ws:"
    if reference.hasPrefix("//") { return scheme + reference }
    let origin = scheme + "//\(URLAuthority.bracketed(host)):\(port)"
    let path = target.prefix { $0 != "?" }
    if reference.isEmpty { return origin + target }
    if reference.hasPrefix("?") { return origin + path + reference }
    let ownPath = reference.prefix { $0 != "?" }
    let query = reference[ownPath.endIndex...]
    // A relative path replaces everything after the last slash.
    let folder = ownPath.hasPrefix("/") ? "" : path.prefix(through: path.lastIndex(of: "/") ?? path.startIndex)
    return origin + Self.withoutDotSegments(folder + ownPath) + query
  }

  /// The scheme of `reference`, or nil if it does not begin with one.
  private static func scheme(of reference: Substring) -> Substring? {
    guard let colon = reference.firstIndex(of: ":") else { return nil }
    let scheme = reference[..<colon]
    return URICharacter.isScheme(scheme) ? scheme : nil
  }

  /// `/a/./b/../c` is `/a/c` (RFC 3986 §5.2.4).
  private static func withoutDotSegments(_ path: Substring) -> String {
    var kept: [Substring] = []
    let segments = path.split(separator: "/", omittingEmptySubsequences: false).dropFirst()
    for (index, segment) in zip(segments.indices, segments) {
      if segment == ".." { _ = kept.popLast() }
      if segment != "." && segment != ".." {
        kept.append(segment)
      } else if index == segments.endIndex - 1 {
        kept.append("")
      }
    }
    return "/" + kept.joined(separator: "/")
  }
}

/// Why a redirect is not followed.
package enum RedirectionError: Error, Equatable, CustomStringConvertible {
  case notWebSocketURL(WebSocketURLError)
  case toPlaintext

  package var description: String { report.description }

  package var report: ReportText {
    switch self {
    case .notWebSocketURL(let error):
      "redirected to a location that is not a WebSocket URL: \(quoted: error.description)"
    case .toPlaintext:
      "redirected from wss to ws, which is not followed: the connection would not be encrypted"
    }
  }
}
