import Inbox
import Upstream
import UpstreamSession

/// The changes of a session by a reload of the configuration.
package struct SessionReload: Sendable {
  package enum Upstream: Sendable {
    case unchanged
    /// Only the topics of pushes change. The connection stays.
    case topics(PreparedSettings)
    /// A new connection replaces the present connection.
    case connection(PreparedSettings, because: ReplacementReason)

    var settings: PreparedSettings? {
      switch self {
      case .unchanged: nil
      case .topics(let settings), .connection(let settings, _): settings
      }
    }
  }

  /// The new limits of retention; nil if the limits do not change.
  package let retention: Retention?
  package let webhooks: [WebhookPlan]
  package let upstream: Upstream

  package init(retention: Retention?, webhooks: [WebhookPlan], upstream: Upstream) {
    self.retention = retention
    self.webhooks = webhooks
    self.upstream = upstream
  }
}
