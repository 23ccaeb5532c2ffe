import Access
import Configuration
import Metrics

/// Who may use the gateway. All event loops share it.
package final class AccessState: Sendable {
  /// Whether clients need no credentials.
  let isOpen: Bool
  let certificateRules: [CertificateGrants.Rule]
  let refusals: RefusalMetrics

  package init(_ settings: AuthenticationSettings, _ registry: MetricsRegistry) {
    isOpen = !settings.isConfigured
    certificateRules = settings.certificates.map(CertificateGrants.Rule.init)
    refusals = RefusalMetrics(registry, isOpen: isOpen)
  }
}
