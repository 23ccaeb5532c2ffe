import Access
import HTTPServer
import Host
import Metrics
import Reactor
import Synchronization
import Threading

/// Who may use the gateway: the tokens and keys in effect. All event loops use it.
package final class AccessState: Sendable {
  /// Whether clients need no credentials.
  let isOpen: Bool
  /// Whether tokens are configured, and not only client certificates.
  let acceptsTokens: Bool
  /// Without authentication, the reaches of the management listeners that serve the API.
  private let openManagement: Set<HTTPListener.Reach>
  let certificateRules: [CertificateGrants.Rule]
  let refusals: RefusalMetrics
  private let current: Locked<Credentials>
  private let number = Atomic<UInt64>(0)

  /// - Parameter openManagement: the result of `openManagement(_:clients:)`, which is used if clients need no
  ///   credentials.
  package init(
    _ settings: AuthenticationSettings, _ credentials: Credentials, openManagement: Set<HTTPListener.Reach>,
    _ registry: MetricsRegistry
  ) {
    isOpen = !settings.isConfigured
    acceptsTokens = settings.acceptsTokens
    self.openManagement = openManagement
    certificateRules = settings.certificates.map(CertificateGrants.Rule.init)
    refusals = RefusalMetrics(registry, isOpen: isOpen)
    current = Locked(credentials)
  }

  /// Returns the reaches of the management listeners that serve the API without credentials. A management listener does
  /// so only if every program that can reach it can also reach a listener for clients. A listener that more programs
  /// can reach would open the API to programs that a directory, a firewall or a client certificate is meant to keep
  /// out.
  ///
  /// A listener that other machines can reach never serves the API without credentials: a firewall may restrict only
  /// the clients' port.
  ///
  /// - Parameter clients: the addresses at which clients need neither credentials nor a certificate.
  package static func openManagement(
    _ management: [SocketAddress], clients: [SocketAddress]
  ) -> Set<HTTPListener.Reach> {
    var open: Set<HTTPListener.Reach> = []
    // A program that can connect to a loopback address can also connect to the other addresses of this machine.
    if clients.contains(where: { $0.ip != nil }) { open.insert(.loopback) }
    let directories = clients.compactMap(directory)
    let own = management.filter { $0.reach == .local }.map(directory)
    // The permissions of the directory decide who can connect to a socket in it.
    if own.allSatisfy({ $0.map(directories.contains) ?? false }) { open.insert(.local) }
    return open
  }

  /// The directory of a Unix-domain socket.
  private static func directory(of address: SocketAddress) -> Substring? {
    guard case .unix(let path) = address, let slash = path.lastIndex(of: "/") else { return nil }
    return path[..<slash]
  }

  /// Whether a listener serves the API without credentials.
  func isOpen(on listener: HTTPListener) -> Bool {
    listener.role == .client || openManagement.contains(listener.reach)
  }

  /// Returns the problem if credentials that were valid when the head was read are no longer valid; otherwise nil.
  func refusal(of grant: Grant) -> Problem? {
    let refusal: AuthenticationRefusal
    if grant.isRevoked {
      refusal = .revoked
    } else if grant.expires != nil, grant.isExpired(at: ProcessInformation.wallClockMilliseconds()) {
      refusal = .expiredMeanwhile
    } else {
      return nil
    }
    refusals.count(refusal)
    return refusal.problem(acceptsTokens: acceptsTokens)
  }

  package var credentials: Credentials { current.withLock { $0 } }

  /// Incremented on every change of `credentials`.
  var version: UInt64 { number.load(ordering: .acquiring) }

  /// Replaces the credentials. Each event loop uses the new credentials from its next request on. Held requests and
  /// streams with removed tokens and keys end.
  package func use(_ new: Credentials) {
    let old = current.withLock { current in
      let old = current
      current = new
      return old
    }
    number.wrappingAdd(1, ordering: .acquiringAndReleasing)
    // A loop may be checking a token with the old credentials at this moment. It finds the grant revoked, and checks
    // the token again with the new credentials.
    old.revokeGrants(notIn: new)
  }
}
