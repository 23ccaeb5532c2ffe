import Access
import Configuration
import HTTPServer
import Metrics
import Reactor
import Synchronization
import Threading

/// Who may use the gateway: the tokens and keys in effect. All event loops share it.
package final class AccessState: Sendable {
  /// Whether clients need no credentials.
  let isOpen: Bool
  /// Without credentials: the management listeners that serve the API.
  private let openManagement: Set<HTTPListener.Reach>
  let certificateRules: [CertificateGrants.Rule]
  let refusals: RefusalMetrics
  private let current: Locked<Credentials>
  private let number = Atomic<UInt64>(0)

  /// - Parameter openManagement: the result of `openManagement(_:clients:)`, if clients need no credentials.
  package init(
    _ settings: AuthenticationSettings, _ credentials: Credentials, openManagement: Set<HTTPListener.Reach>,
    _ registry: MetricsRegistry
  ) {
    isOpen = !settings.isConfigured
    self.openManagement = openManagement
    certificateRules = settings.certificates.map(CertificateGrants.Rule.init)
    refusals = RefusalMetrics(registry, isOpen: isOpen)
    current = Locked(credentials)
  }

  /// Returns which management listeners serve the API without credentials: those at which everyone who can connect can also connect to a
  /// listener for clients. Otherwise they would open the API to those whom a directory, a firewall or a client certificate keeps out.
  ///
  /// Never one that other machines can reach: a firewall may restrict the clients' port only.
  ///
  /// - Parameter clients: where clients need neither credentials nor a certificate.
  package static func openManagement(
    _ management: [SocketAddress], clients: [SocketAddress]
  ) -> Set<HTTPListener.Reach> {
    var open: Set<HTTPListener.Reach> = []
    // A program that can connect to a loopback address can connect to the other addresses of this machine.
    if clients.contains(where: { $0.ip != nil }) { open.insert(.loopback) }
    let directories = clients.compactMap(directory)
    let own = management.filter { $0.reach == .local }.map(directory)
    // The permissions of a socket are those of its directory.
    if own.allSatisfy({ $0.map(directories.contains) ?? false }) { open.insert(.local) }
    return open
  }

  /// The directory of a Unix socket.
  private static func directory(of address: SocketAddress) -> Substring? {
    guard case .unix(let path) = address, let slash = path.lastIndex(of: "/") else { return nil }
    return path[..<slash]
  }

  /// Whether a listener serves the API without credentials.
  func isOpen(on listener: HTTPListener) -> Bool {
    listener.role == .client || openManagement.contains(listener.reach)
  }

  /// Returns the problem of a request whose head was accepted, and whose credentials have ended since.
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
    return refusal.problem
  }

  package var credentials: Credentials { current.withLock { $0 } }

  /// Incremented whenever `credentials` has changed.
  var version: UInt64 { number.load(ordering: .acquiring) }

  /// Each event loop uses these from its next request on. What is held for tokens and keys that are gone ends.
  package func use(_ new: Credentials) {
    let old = current.withLock { current in
      let old = current
      current = new
      return old
    }
    number.wrappingAdd(1, ordering: .acquiringAndReleasing)
    // A loop that checks a token with the old ones at this moment finds it revoked, and tries again with the new ones.
    old.revokeGrants(notIn: new)
  }
}
