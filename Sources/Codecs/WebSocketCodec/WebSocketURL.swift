import HTTPCodec

/// A `ws:` or `wss:` URL (RFC 6455 §3): an `http:` or `https:` URL with another scheme.
package struct WebSocketURL: Hashable, Sendable {
  private var http: HTTPURL
  /// Whether the path may be secret, because the upstream has sent the URL, or a file or command has returned it.
  package private(set) var hasSecretPath = false

  package var isSecure: Bool { http.isSecure }
  /// Name or address, without brackets. A link-local address is followed by its zone: `fe80::1%eth0`.
  package var host: String { http.host }
  package var port: UInt16 { http.port }
  /// Path and query, as sent in the request. They always begin with `/`.
  package var target: String { http.target }
  /// `user:password`, percent-decoded, for Basic authentication.
  package var credentials: String? { http.credentials }

  /// Parses a URL. The error says what is wrong and does not repeat parts that may be secret.
  package init(_ text: String) throws(WebSocketURLError) {
    guard let url = URLParts(text) else { throw .noScheme }
    guard let isSecure = url.isSecure(("ws", "wss")) else { throw .wrongScheme(String(url.scheme)) }
    guard !url.path.contains("#") else { throw .fragment }
    do throws(URLAuthorityError) {
      http = try HTTPURL(url, isSecure: isSecure)
    } catch {
      throw .authority(error)
    }
  }

  /// This URL with other credentials.
  package func with(credentials: String?) -> WebSocketURL {
    var url = self
    url.http.credentials = credentials
    return url
  }

  /// This URL without credentials.
  package var withoutCredentials: WebSocketURL { with(credentials: nil) }

  /// This URL with the query of `other`; unchanged if this URL has a query.
  package func withQuery(of other: WebSocketURL?) throws(WebSocketURLError) -> WebSocketURL {
    guard let other, !target.contains("?") else { return self }
    return try WebSocketURL(text + other.target.drop { $0 != "?" })
  }

  package var withSecretPath: WebSocketURL {
    var url = self
    url.hasSecretPath = true
    return url
  }

  package func hasSameOrigin(as other: WebSocketURL) -> Bool {
    isSecure == other.isSecure && host.lowercased() == other.host.lowercased() && port == other.port
  }

  /// Scheme, host in lower case, and port. URLs with the same origin have the same text.
  package var origin: String { (isSecure ? "wss://" : "ws://") + server }

  /// The whole URL with its credentials. It can be parsed again.
  package var text: String { "ws" + http.text.dropFirst(4) }

  /// The URL for logs and responses: without credentials and query, which may contain tokens.
  /// A path that may be secret is hidden.
  package var redacted: String {
    let path = target.prefix { $0 != "?" }
    return "ws" + http.origin.dropFirst(4) + (hasSecretPath && path != "/" ? "/***" : path)
  }

  /// Host in lower case and port: the key for limits per host.
  package var server: String { "\(host.lowercased()):\(port)" }

  /// The value of the Host field.
  package var hostField: String { http.hostField }

  /// Host and port, always with the port: the target of CONNECT.
  package var authority: String { http.authority }

  /// The value of the Authorization field for the URL's credentials (RFC 7617).
  package var basicAuthorization: String? { http.basicAuthorization }
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
