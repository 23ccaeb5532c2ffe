import Inbox
import Upstream

/// What one session is started with.
package struct SessionPlan: Sendable {
  package let name: String
  package let settings: SharedSettings
  /// How many pushes are kept, and for how long.
  package let retention: Retention
}
