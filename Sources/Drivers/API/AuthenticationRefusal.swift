import ByteStreams
import Metrics

/// Why a request is refused with 401. The problem says no more than the client needs, and repeats nothing of its credentials.
enum AuthenticationRefusal: Error, CaseIterable {
  case missing
  case otherScheme
  case repeatedCookie
  case unknownCertificate
  case expiredCertificate
  case unknownToken

  /// The label of the metric.
  var name: String {
    switch self {
    case .missing: "missing"
    case .otherScheme: "other-scheme"
    case .repeatedCookie: "repeated-cookie"
    case .unknownCertificate: "unknown-certificate"
    case .expiredCertificate: "expired-certificate"
    case .unknownToken: "unknown-token"
    }
  }

  private var challenge: Challenge {
    switch self {
    case .missing, .otherScheme, .unknownCertificate: .missing
    case .repeatedCookie: .invalidToken("the cookie is repeated")
    case .expiredCertificate: .invalidToken("the certificate has expired")
    case .unknownToken: .invalidToken("the token is not valid")
    }
  }

  private var detail: String {
    let remedy = "send Authorization: Bearer and a token"
    return switch self {
    case .missing:
      "the request has no credentials: \(remedy). The cookie drawbridge_token counts only for GET and HEAD, with Sec-Fetch-Site: same-origin or an allowed Origin"
    case .otherScheme: "Authorization has another scheme than Bearer, or no token: \(remedy)"
    case .repeatedCookie: "the cookie drawbridge_token is repeated: remove it for all paths and domains but one"
    case .unknownCertificate:
      "no rule of authentication.certificates has a name of the client certificate: \(remedy), or use another certificate"
    case .expiredCertificate: "the client certificate has expired: connect again with a new one"
    case .unknownToken: "the token is not valid: use one that is not expired, for this gateway and unchanged"
    }
  }

  var problem: Problem { Problem(.unauthorized, detail: detail, challenge: challenge) }
}

/// How many requests were refused for each reason.
struct RefusalMetrics: Sendable {
  private let counters: [Counter]

  init(_ registry: MetricsRegistry, isOpen: Bool) {
    // None without authentication.
    counters = (isOpen ? [] : AuthenticationRefusal.allCases).map {
      registry.counter(
        "drawbridge_requests_unauthenticated_total", "Requests without valid credentials, by reason.",
        [("reason", $0.name)])
    }
  }

  func count(_ refusal: AuthenticationRefusal) {
    guard let index = AuthenticationRefusal.allCases.firstIndex(of: refusal), index < counters.count else { return }
    counters[index].add()
  }
}
