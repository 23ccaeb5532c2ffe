import Access
import ByteStreams
import HTTPCodec
import HTTPServer
import Reactor
import TLSEngine

/// Decides whether a request is served, from its head, its client and its listener. Every request of every route passes through here.
///
/// One per event loop, so that a client whose credentials were checked before takes no lock.
struct RequestAccess: ~Copyable {
  private let state: AccessState
  private let browsers: BrowserAccess
  /// What the clients of an open gateway may do. Of this loop: all loops would contend for the reference count of a shared one.
  private let everything = Grant(principal: "", scopes: .all)
  private var acceptedHost = AcceptedHost()
  private var certificates: CertificateGrants

  init(_ state: AccessState, _ browsers: BrowserAccess) {
    self.state = state
    self.browsers = browsers
    certificates = CertificateGrants(state.certificateRules)
  }

  /// Returns what the client may do; nil if the request needs no credentials. Throws the problem to respond with if it is refused.
  mutating func admit(
    _ request: borrowing HTTPRequestHead, on listener: HTTPListener, from client: borrowing ClientConnection
  ) throws(ProblemError) -> Grant? {
    if let problem = browsers.refusal(of: request, on: listener.reach, &acceptedHost) { throw ProblemError(problem) }
    // Who may use a management listener is decided by its address.
    if state.isOpen || listener.role == .management { return everything }
    if Router.needsNoCredentials(request) { return nil }
    do throws(AuthenticationRefusal) {
      return try authenticate(request, client.certificate)
    } catch {
      state.refusals.count(error)
      throw ProblemError(error.problem)
    }
  }

  /// Uses the files as last read. Tokens that are no longer in them are revoked.
  mutating func update() {}

  private mutating func authenticate(
    _ request: borrowing HTTPRequestHead, _ certificate: ClientCertificate?
  ) throws(AuthenticationRefusal) -> Grant {
    update()
    let now = ProcessInformation.wallClockMilliseconds()
    if let value = request.fields.first(.authorization) {
      return try grant(for: try RequestCredentials.bearerToken(in: value), at: now)
    }
    if let certificate, let grant = certificates.grant(for: certificate) {
      if grant.isExpired(at: now) { throw .expiredCertificate }
      return grant
    }
    if let cookie = try RequestCredentials.cookie(of: request) {
      return try grant(for: request.fields.value(at: cookie.field).extracting(cookie.value), at: now)
    }
    throw certificate == nil ? .missing : .unknownCertificate
  }

  private mutating func grant(
    for token: Span<UInt8>, at now: Int64
  ) throws(AuthenticationRefusal) -> Grant {
    throw .unknownToken
  }
}
