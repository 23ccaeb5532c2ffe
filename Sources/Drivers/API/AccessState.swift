import Access
import Configuration
import HTTPServer
import Metrics
import Synchronization
import Threading

/// Who may use the gateway: the tokens and keys in effect. All event loops share it.
package final class AccessState: Sendable {
  /// Whether clients need no credentials.
  let isOpen: Bool
  /// Without credentials: the widest reach of the listeners for clients.
  private let openReach: HTTPListener.Reach
  let certificateRules: [CertificateGrants.Rule]
  let refusals: RefusalMetrics
  private let current: Locked<Credentials>
  private let number = Atomic<UInt64>(0)

  /// - Parameter openReach: the widest reach of the listeners on which clients need neither credentials nor a certificate, if they need
  ///   no credentials.
  package init(
    _ settings: AuthenticationSettings, _ credentials: Credentials, openReach: HTTPListener.Reach = .network,
    _ registry: MetricsRegistry
  ) {
    isOpen = !settings.isConfigured
    self.openReach = openReach
    certificateRules = settings.certificates.map(CertificateGrants.Rule.init)
    refusals = RefusalMetrics(registry, isOpen: isOpen)
    current = Locked(credentials)
  }

  /// Whether a listener serves the API without credentials. A management listener does only if everyone who can connect to it can also
  /// connect to a listener for clients: otherwise it would open the API to those whom a Unix socket or a client certificate keeps out.
  func isOpen(on listener: HTTPListener) -> Bool { listener.role == .client || listener.reach <= openReach }

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
