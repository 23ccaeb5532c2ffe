import ByteStreams
import HTTPCodec

/// The URL of a proxy: `http://user:password@host:port`, `socks5h://host:port`.
package struct ProxyURL: Hashable, Sendable {
  package enum Scheme: String, CaseIterable, Sendable {
    /// CONNECT over plain TCP.
    case http
    /// SOCKS5; names are resolved by the gateway. (The names `socks5` and `socks5h` come from curl.)
    case socks5
    /// SOCKS5; names are resolved by the proxy.
    case socks5h

    package var isSOCKS: Bool { self != .http }
    /// 80 for HTTP (RFC 9110 §4.2.1), 1080 for SOCKS (IANA).
    var defaultPort: UInt16 { isSOCKS ? 1080 : 80 }
  }

  package let scheme: Scheme
  package let host: String
  package let port: UInt16
  package let credentials: ProxyCredentials?

  /// Parses a URL. The error says what is wrong and does not repeat parts that may be secret.
  package init(_ text: String) throws(ProxyURLError) {
    guard let url = URLParts(text) else { throw .noScheme }
    let name = url.scheme.lowercased()
    guard let scheme = Scheme(rawValue: name) else { throw .wrongScheme(name) }
    // Values in the environment often end with a slash.
    guard url.path.isEmpty || url.path == "/" else {
      throw url.path.contains("@") ? .authority(.unencodedDelimiter) : .path
    }
    do throws(URLAuthorityError) {
      let authority = try url.parseAuthority()
      host = authority.host
      port = authority.port ?? scheme.defaultPort
      credentials = try authority.credentials().map { ProxyCredentials(username: $0.user, password: $0.password) }
    } catch {
      throw .authority(error)
    }
    if let problem = credentials?.problem(forSOCKS: scheme.isSOCKS) { throw .credentials(problem) }
    self.scheme = scheme
  }

  /// The whole URL with its credentials. It can be parsed again.
  package var text: String {
    let userinfo = credentials.map { credentials in
      let parts = [credentials.username, credentials.password].map { PercentEncoder.encode(Array($0.utf8).span) }
      return "\(parts.joined(separator: ":"))@"
    }
    return "\(scheme.rawValue)://\(userinfo ?? "")\(URLAuthority.bracketed(host)):\(port)"
  }

  /// The URL for logs and responses, without credentials.
  package var redacted: String { "\(scheme.rawValue)://\(URLAuthority.bracketed(host)):\(port)" }
}

/// Why a proxy's URL is invalid.
package enum ProxyURLError: Error, Equatable, Sendable, CustomStringConvertible {
  case noScheme
  case wrongScheme(String)
  case path
  case authority(URLAuthorityError)
  case credentials(String)

  package var description: String {
    switch self {
    case .noScheme: "no scheme: write http://, socks5:// or socks5h:// before the host"
    case .wrongScheme("https"):
      "TLS to the proxy itself is not supported: write http:// (wss is encrypted inside the tunnel)"
    case .wrongScheme(let scheme): "'\(scheme)' is not a proxy's scheme: write http://, socks5:// or socks5h://"
    case .path: "a proxy's URL must end with its port, without path, query or fragment"
    case .authority(let error): error.description
    case .credentials(let problem): problem
    }
  }
}
