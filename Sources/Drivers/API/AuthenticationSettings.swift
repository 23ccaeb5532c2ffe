import ByteStreams

/// How clients authenticate. If no method is set, requests need no credentials.
package struct AuthenticationSettings: Equatable, Sendable {
  package struct JWT: Equatable, Sendable {
    /// The file of the keys; nil if JSON Web Tokens are not accepted.
    package var keys: String?
    package var audiences: [String] = []
    /// The accepted issuers. If empty, any issuer is accepted, or only the issuers that the keys name.
    package var issuers: [String] = []
    package var leeway = TimeSpan.seconds(60)

    package init() {}
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

  package init() {}

  /// Whether clients can authenticate with a token, with or without a certificate.
  package var acceptsTokens: Bool { tokens != nil || jwt.keys != nil }

  /// Whether requests need credentials.
  package var isConfigured: Bool { acceptsTokens || !certificates.isEmpty }
}
