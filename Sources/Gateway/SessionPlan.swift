import Inbox
import Sessions
import Upstream

/// The settings of one session, together with the files that they name.
package struct SessionPlan: Sendable {
  package let name: String
  package let settings: PreparedSettings
  /// How many pushes are kept, and for how long.
  package let retention: Retention
  package let webhooks: [WebhookPlan]
}
