import ByteStreams
import HTTPCodec

/// A `ws:` or `wss:` URL (RFC 6455 §3), split into its parts.
package struct WebSocketURL: Hashable, Sendable {
  package let isSecure: Bool
  /// Name or address, without brackets. A link-local address is followed by its zone: `fe80::1%eth0`.
  package let host: String
  package let port: UInt16
  /// Path and query, as sent in the request. Always begins with `/`.
  package let target: String
  /// `user:password`, percent-decoded, for Basic authentication.
  package let credentials: String?

  /// Parses a URL. The error says what is wrong and does not repeat parts that may be secret.
  package init(_ text: String) throws(WebSocketURLError) {
    guard let scheme = text.firstRange(of: "://"), URICharacter.isScheme(text[..<scheme.lowerBound]) else {
      throw .noScheme
    }
    switch text[..<scheme.lowerBound].lowercased() {
    case "ws": isSecure = false
    case "wss": isSecure = true
    default: throw .wrongScheme(String(text[..<scheme.lowerBound]))
    }
    let rest = text[scheme.upperBound...]
    guard !rest.contains("#") else { throw .fragment }
    let authorityEnd = rest.firstIndex { $0 == "/" || $0 == "?" } ?? rest.endIndex
    let path = rest[authorityEnd...]
    target = path.hasPrefix("/") ? String(path) : "/" + path

    do throws(URLAuthorityError) {
      try URLAuthority.verifyCharacters(of: rest)
      let authority = try URLAuthority(rest[..<authorityEnd])
      credentials = try authority.userinfo.map(URLAuthority.percentDecoded)
      host = authority.host
      port = authority.port ?? (isSecure ? 443 : 80)
    } catch {
      throw .authority(URLAuthority.explained(error, path: path))
    }
  }

  private init(isSecure: Bool, host: String, port: UInt16, target: String, credentials: String?) {
    self.isSecure = isSecure
    self.host = host
    self.port = port
    self.target = target
    self.credentials = credentials
  }

  /// This URL with other credentials.
  func with(credentials: String?) -> WebSocketURL {
    WebSocketURL(isSecure: isSecure, host: host, port: port, target: target, credentials: credentials)
  }

  package func hasSameOrigin(as other: WebSocketURL) -> Bool {
    isSecure == other.isSecure && host.lowercased() == other.host.lowercased() && port == other.port
  }

  /// The whole URL with its credentials. It can be parsed again.
  package var text: String {
    let userinfo = credentials.map { PercentEncoder.encode(Array($0.utf8).span) + "@" } ?? ""
    return scheme + userinfo + withPort(URLAuthority.bracketed(host)) + target
  }

  /// The URL for logs and responses: without credentials and query, which may contain tokens.
  package var redacted: String { scheme + withPort(URLAuthority.bracketed(host)) + target.prefix { $0 != "?" } }

  private var scheme: String { isSecure ? "wss://" : "ws://" }

  /// Host in lower case and port: the key for limits per host.
  package var server: String { "\(host.lowercased()):\(port)" }

  /// The value of the Host field.
  package var hostField: String { withPort(URLAuthority.bracketedWithoutZone(host)) }

  private func withPort(_ name: String) -> String { port == (isSecure ? 443 : 80) ? name : "\(name):\(port)" }

  /// Host and port, always with the port: the target of CONNECT.
  package var authority: String { "\(URLAuthority.bracketedWithoutZone(host)):\(port)" }

  /// The value of the Authorization field for the URL's credentials (RFC 7617).
  package var basicAuthorization: String? { credentials.map(BasicCredentials.fieldValue) }
}

/// Why a URL is invalid.
package enum WebSocketURLError: Error, Equatable, Sendable, CustomStringConvertible {
  case noScheme
  case wrongScheme(String)
  case fragment
  case authority(URLAuthorityError)

  package var description: String {
    switch self {
    case .noScheme: "no scheme: write ws://host/path or wss://host/path"
    case .wrongScheme(let scheme): "'\(scheme)' is not a WebSocket scheme: write ws:// or wss://"
    case .fragment: "a WebSocket URL must not have a fragment: write '#' as %23"
    case .authority(let error): error.description
    }
  }
}
