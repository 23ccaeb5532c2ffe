import Access
import ByteStreams
import Metrics

/// Why a request is refused with 401. The text of the problem contains only what the client needs, and does not repeat
/// the credentials.
enum AuthenticationRefusal: Error {
  /// - Parameter hasCookie: whether the request has the cookie although it may not use the cookie.
  case missing(hasCookie: Bool)
  case otherScheme
  case repeatedCookie
  case unknownCertificate
  case expiredCertificate
  case token(TokenRefusal)
  /// The credentials were removed while the request was being received or held. The request was not executed.
  case revoked
  /// The credentials expired while the request was being received. The request was not executed.
  case expiredMeanwhile
  /// Too many wrong credentials came from this address. The limiter counts these refusals, so `names` does not contain
  /// their label.
  case limited(Problem)

  /// The label of the metric.
  var name: String {
    switch self {
    case .missing: "missing"
    case .otherScheme: "other-scheme"
    case .repeatedCookie: "repeated-cookie"
    case .unknownCertificate: "unknown-certificate"
    case .expiredCertificate: "expired-certificate"
    case .token(let refusal): refusal.label
    case .revoked: "revoked"
    case .expiredMeanwhile: TokenRefusal.expired.label
    case .limited: "limited"
    }
  }

  /// All labels of the metric.
  static let names =
    [
      "missing", "other-scheme", "repeated-cookie", "unknown-certificate", "expired-certificate", "revoked",
    ] + TokenRefusal.labels

  private var challenge: Challenge {
    switch self {
    case .missing, .otherScheme, .unknownCertificate, .limited: .missing
    case .repeatedCookie: .invalidToken("the cookie is repeated")
    case .expiredCertificate: .invalidToken("the certificate has expired")
    case .token(let refusal): .invalidToken(refusal.clientDescription)
    case .revoked: .invalidToken("the credentials are no longer valid")
    case .expiredMeanwhile: .invalidToken("the credentials have expired")
    }
  }

  private func detail(acceptsTokens: Bool) -> String {
    let remedy = acceptsTokens ? "send Authorization: Bearer and a token" : "connect with a client certificate"
    return switch self {
    case .missing(hasCookie: true) where acceptsTokens:
      "the cookie drawbridge_token counts only for GET and HEAD, with Sec-Fetch-Site: same-origin or an allowed Origin: \(remedy)"
    case .missing: "the request has no credentials: \(remedy)"
    case .otherScheme: "Authorization has another scheme than Bearer, or no token: \(remedy)"
    case .repeatedCookie: "the cookie drawbridge_token is repeated: remove it for all paths and domains but one"
    case .unknownCertificate:
      "no rule of authentication.certificates has a name of the client certificate: \(acceptsTokens ? "\(remedy), or " : "")use another certificate"
    case .expiredCertificate: "the client certificate has expired: connect again with a new one"
    case .token(let refusal): "\(refusal.clientDescription): use a valid one of this gateway, unchanged"
    case .revoked:
      "the credentials were removed, or their rights were changed, while this request was received or held: nothing was done; repeat it with valid credentials"
    case .expiredMeanwhile:
      "the credentials have expired while this request was received: nothing was done; repeat it with valid credentials"
    case .limited(let problem): problem.detail
    }
  }

  /// - Parameter acceptsTokens: whether tokens are configured, and not only client certificates.
  func problem(acceptsTokens: Bool) -> Problem {
    if case .limited(let problem) = self { return problem }
    var problem = Problem(.unauthorized, detail(acceptsTokens: acceptsTokens), .challenge(challenge))
    if case .token(let refusal) = self { problem.logDetail = refusal.description }
    return problem
  }
}

/// Counts the requests that were refused because of their credentials. Without authentication there are no counters.
struct RefusalMetrics: Sendable {
  /// The counters, by the reason of the refusal.
  private let counters: [String: Counter]
  /// Requests whose credentials are valid but do not allow the request.
  let forbidden: Counter?

  init(_ registry: MetricsRegistry, isOpen: Bool) {
    var counters: [String: Counter] = [:]
    for name in isOpen ? [] : AuthenticationRefusal.names {
      counters[name] = registry.counter(
        "drawbridge_requests_unauthenticated_total", "Requests without valid credentials, by reason.",
        [("reason", name)])
    }
    self.counters = counters
    forbidden =
      isOpen
      ? nil
      : registry.counter(
        "drawbridge_requests_forbidden_total", "Requests whose credentials do not allow the operation.")
  }

  func count(_ refusal: AuthenticationRefusal) { counters[refusal.name]?.add() }
}

extension TokenRefusal {
  static let labels = [
    "malformed-token", "unknown-token", "signature", "expired", "not-yet-valid", "audience", "issuer", "claims",
  ]

  /// The label of the metric. Refusals that an operator resolves in the same way have one label.
  var label: String {
    switch self {
    case .length, .character, .notThreeParts, .notBase64URL, .notAnObject, .duplicateMember, .tooManyMembers,
      .parameter, .type,
      .algorithm, .keyID:
      "malformed-token"
    case .unknown, .unknownKey, .ambiguousKey, .otherAlgorithm: "unknown-token"
    case .signature: "signature"
    case .expired: "expired"
    case .notYetValid: "not-yet-valid"
    case .otherAudience: "audience"
    case .otherIssuer, .issuerOfOtherKey: "issuer"
    case .missing, .malformed: "claims"
    }
  }
}
