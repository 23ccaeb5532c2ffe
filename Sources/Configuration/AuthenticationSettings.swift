import ByteStreams
import Host
import TLSEngine

/// Who may use a gateway whose configuration has no authentication.
package enum OpenAccess: String, CaseIterable, Sendable {
  /// Only programs of this machine. A listener that other machines can reach is an error.
  case auto
  /// Everyone who can connect.
  case none
}

/// How clients authenticate. If no method is set, requests need no credentials.
package struct AuthenticationSettings: Equatable, Sendable {
  package struct JWT: Equatable, Sendable {
    /// The file of the keys; nil if JSON Web Tokens are not accepted.
    package var keys: String?
    package var audiences: [String] = []
    /// The accepted issuers. If empty, any issuer is accepted, or only the issuers that the keys name.
    package var issuers: [String] = []
    package var leeway = TimeSpan.seconds(60)
  }

  /// The rights of clients whose certificate has a certain name.
  package struct CertificateRule: Equatable, Sendable {
    /// A URI or DNS SAN: `uri:spiffe://example.org/billing`, or `dns:*.clients.example.org`.
    package var name: String
    package var scopes: [String]
    package var sessions: [String]
    package var topics: [String]

    /// If `sessions` or `topics` is left out, the rule allows all sessions or all topics.
    package init(name: String, scopes: [String], sessions: [String] = ["*"], topics: [String] = ["*"]) {
      self.name = name
      self.scopes = scopes
      self.sessions = sessions
      self.topics = topics
    }
  }

  /// The file of the static tokens; nil if there are no static tokens.
  package var tokens: String?
  package var jwt = JWT()
  package var certificates: [CertificateRule] = []

  /// Whether clients can authenticate with a token, with or without a certificate.
  package var acceptsTokens: Bool { tokens != nil || jwt.keys != nil }

  /// Whether requests need credentials.
  package var isConfigured: Bool { acceptsTokens || !certificates.isEmpty }
}

extension GatewaySettings {
  /// If clients on other machines can reach listeners without authentication, and the operator has not allowed that,
  /// returns the problems of these listeners.
  ///
  /// This check is not a rule of the section, because `healthcheck` reads the same settings but does not open the
  /// listeners.
  package func accessProblems() -> [SettingProblem] {
    if authentication.isConfigured || access == .none { return [] }
    // If client certificates are required, a client without a certificate of the authority cannot send a request to an
    // HTTPS listener.
    let isClosed = listeners.tls.clientCertificates == .required
    let keys = [("listeners.http", listeners.http), ("listeners.https", isClosed ? [] : listeners.https)]
    return keys.flatMap { key, addresses in addresses.enumerated().map { (key, $0, $1) } }.compactMap {
      key, index, address in
      guard address.ip.map({ !$0.isLoopback }) ?? false else { return nil }
      return SettingProblem(
        key, .item(index),
        "other machines can connect to it, and clients need no authentication: set authentication.tokens to a file of tokens ('drawbridge token --help'), use a loopback address or a Unix socket, or set access to none (--access none, DRAWBRIDGE_ACCESS=none) so that everyone who can connect may send and receive",
        comparedWith: Self.accessPaths)
    }
  }

  private static let accessPaths = [
    "access", "authentication.tokens", "authentication.jwt.keys", "authentication.certificates",
  ]
}
