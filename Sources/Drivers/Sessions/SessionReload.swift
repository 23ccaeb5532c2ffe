import Inbox
import Upstream
import UpstreamSession

/// What a configuration that was read again changes of a session.
package struct SessionReload: Sendable {
  package enum Upstream: Sendable {
    case unchanged
    /// Only the topics of pushes. The connection stays.
    case topics(SharedSettings)
    /// A new connection takes the place of the present one.
    case connection(SharedSettings, because: ReplacementReason)

    var settings: SharedSettings? {
      switch self {
      case .unchanged: nil
      case .topics(let settings), .connection(let settings, _): settings
      }
    }
  }

  /// nil: as before.
  package let retention: Retention?
  package let webhooks: [WebhookPlan]
  package let upstream: Upstream

  package init(retention: Retention?, webhooks: [WebhookPlan], upstream: Upstream) {
    self.retention = retention
    self.webhooks = webhooks
    self.upstream = upstream
  }
}
