import ByteStreams

/// An `http:` or `https:` URL (RFC 9110 §4.2), split into its parts.
package struct HTTPURL: Hashable, Sendable {
  package let isSecure: Bool
  /// Name or address, without brackets. A link-local address is followed by its zone: `fe80::1%eth0`.
  package let host: String
  package let port: UInt16
  /// Path and query, as sent in the request. They always begin with `/`.
  package let target: String
  /// `user:password`, percent-decoded, for Basic authentication.
  package var credentials: String?

  /// Parses a URL. The error says what is wrong and does not repeat parts that may be secret.
  package init(_ text: String) throws(HTTPURLError) {
    guard let url = URLParts(text), let isSecure = url.isSecure(("http", "https")) else { throw .scheme }
    guard !url.path.contains("#") else { throw .fragment }
    do throws(URLAuthorityError) {
      try self.init(url, isSecure: isSecure)
    } catch {
      throw .authority(error)
    }
  }

  /// - Parameter url: a URL of any scheme, without a fragment.
  package init(_ url: URLParts, isSecure: Bool) throws(URLAuthorityError) {
    let authority = try url.parseAuthority()
    self.isSecure = isSecure
    credentials = try authority.userinfo.map(URLAuthority.percentDecoded)
    host = authority.host
    port = authority.port ?? (isSecure ? 443 : 80)
    target = url.path.hasPrefix("/") ? String(url.path) : "/" + url.path
  }

  /// Scheme, host and port. The other parts of the URL, including the path, may contain tokens.
  package var origin: String { (isSecure ? "https://" : "http://") + withPort(URLAuthority.bracketed(host)) }

  /// The whole URL with its credentials. It can be parsed again.
  package var text: String {
    let userinfo = credentials.map { PercentEncoder.encode(Array($0.utf8).span) + "@" } ?? ""
    return (isSecure ? "https://" : "http://") + userinfo + withPort(URLAuthority.bracketed(host)) + target
  }

  /// The value of the Host field.
  package var hostField: String { withPort(URLAuthority.bracketedWithoutZone(host)) }

  /// Host and port, always with the port: the target of CONNECT.
  package var authority: String { "\(URLAuthority.bracketedWithoutZone(host)):\(port)" }

  /// The value of the Authorization field for the URL's credentials (RFC 7617).
  package var basicAuthorization: String? { credentials.map(BasicCredentials.fieldValue) }

  private func withPort(_ name: String) -> String { port == (isSecure ? 443 : 80) ? name : "\(name):\(port)" }
}

/// Why a URL is invalid.
package enum HTTPURLError: Error, Equatable, Sendable, CustomStringConvertible {
  case scheme
  case fragment
  case authority(URLAuthorityError)

  package var description: String {
    switch self {
    case .scheme: "it does not begin with http:// or https://"
    case .fragment: "a fragment is never sent: write '#' as %23"
    case .authority(let error): error.description
    }
  }
}
