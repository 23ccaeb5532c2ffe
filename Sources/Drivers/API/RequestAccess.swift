import Access
import ByteStreams
import HTTPCodec
import HTTPServer
import Host
import Reactor
import TLSEngine

/// Decides from the head, the client and the listener of a request whether it is served. Every request of every route
/// passes this check.
///
/// Each event loop has its own object, so that no lock is needed for a client with known credentials.
struct RequestAccess: ~Copyable {
  private let state: AccessState
  private let browsers: BrowserAccess
  private let limiter: RateLimiter
  /// The grant of all clients if no credentials are needed. Each loop has its own grant object: if they used one
  /// object, all loops would contend for its reference count.
  private let everything = Grant(principal: "", scopes: .all)
  private var acceptedHost = AcceptedHost()
  private var verifier: TokenVerifier
  private var certificates: CertificateGrants
  /// A version of the credentials. `verifier` uses the credentials of this version or of a later version.
  private var version: UInt64

  init(_ state: AccessState, _ browsers: BrowserAccess, _ limiter: RateLimiter) {
    self.state = state
    self.browsers = browsers
    self.limiter = limiter
    version = state.version
    verifier = TokenVerifier(state.credentials)
    certificates = CertificateGrants(state.certificateRules)
  }

  /// Returns the client's grant; nil if the request needs no credentials. Throws the problem of the response if the
  /// request is refused.
  mutating func admit(
    _ request: borrowing HTTPRequestHead, for path: Router.Path, on listener: HTTPListener,
    from client: borrowing ClientConnection
  ) throws(Problem) -> Grant? {
    if let problem = browsers.refusal(
      of: request, on: listener.reach, isSecure: client.isSecure, allowsLinks: path.allowsLinks, &acceptedHost)
    {
      throw problem
    }
    // Probes, metrics and the status page need no credentials: the address of the management listener decides who can
    // use them.
    if !path.isOfAPI { return everything }
    if state.isOpen {
      guard state.isOpen(on: listener) else { throw Self.managementIsWider }
      return everything
    }
    if path.needsNoCredentials { return nil }
    do throws(AuthenticationRefusal) {
      return try authenticate(request, client.certificate, from: client.origin)
    } catch {
      state.refusals.count(error)
      if case .token = error { limiter.noteFailure(from: client.origin, at: ProcessInformation.monotonicTime()) }
      throw error.problem(acceptsTokens: state.acceptsTokens)
    }
  }

  private static var managementIsWider: Problem {
    Problem(
      .accessNotConfigured,
      "this management listener does not serve /v1, because clients need no credentials and others may connect to it than to the listeners for clients: configure authentication, or let listeners.management be a loopback address while listeners.http has an IP address, or a Unix socket in the directory of one in listeners.http"
    )
  }

  /// Uses the latest version of the files of tokens and keys.
  private mutating func update() {
    guard state.version != version else { return }
    version = state.version
    verifier.use(state.credentials)
  }

  private mutating func authenticate(
    _ request: borrowing HTTPRequestHead, _ certificate: ClientCertificate?, from origin: ClientOrigin
  ) throws(AuthenticationRefusal) -> Grant {
    update()
    let now = ProcessInformation.wallClockMilliseconds()
    if let value = request.fields.first(.authorization) {
      return try grant(for: try RequestCredentials.bearerToken(in: value), from: origin, at: now)
    }
    if let certificate, let grant = certificates.grant(for: certificate) {
      if grant.isExpired(at: now) { throw .expiredCertificate }
      return grant
    }
    if let cookie = try RequestCredentials.cookie(of: request) {
      return try grant(for: request.fields.value(at: cookie.field).extracting(cookie.value), from: origin, at: now)
    }
    throw certificate == nil ? .missing(hasCookie: RequestCredentials.hasCookie(request)) : .unknownCertificate
  }

  private mutating func grant(
    for token: Span<UInt8>, from origin: ClientOrigin, at now: Int64
  ) throws(AuthenticationRefusal) -> Grant {
    if let grant = verifier.knownGrant(for: token, at: now) { return grant }
    // From here on, even a wrong token may cost the verification of a signature, so the failures of the address are
    // checked.
    do throws(Problem) {
      try limiter.checkFailures(from: origin, at: ProcessInformation.monotonicTime())
    } catch {
      throw .limited(error)
    }
    do throws(TokenRefusal) {
      return try verifier.verify(token, at: now)
    } catch {
      guard state.version != version else { throw .token(error) }
    }
    // The files have changed since the verifier was updated, so the token is checked again with their new contents.
    update()
    do throws(TokenRefusal) {
      return try verifier.verify(token, at: now)
    } catch {
      throw .token(error)
    }
  }
}
