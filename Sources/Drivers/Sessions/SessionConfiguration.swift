import Inbox
import Upstream
import Webhooks

/// The configuration of one session: its upstream, and which pushes are kept for clients.
///
/// A named session starts from the built-in defaults and not from the values of the default session, since credentials
/// and conventions of one upstream must never be used for another upstream.
package struct SessionConfiguration: Equatable, Sendable {
  package var upstream = UpstreamSettings()
  package var retention = Retention()
  /// The webhooks of the session. Always empty in a profile, since only the operator may choose the URLs of webhooks.
  package var webhooks: [WebhookSettings] = []

  package init() {}
}
