import Dialing
import HTTPCodec
import TLSEngine
import Webhooks

/// A webhook, with the contents of the files that its settings name.
package struct WebhookPlan: Sendable {
  package let settings: WebhookSettings
  let endpoint: HTTPEndpoint

  /// Reads `ca_file`, unless `cache` has a context with the same settings. Blocks.
  package init(_ settings: WebhookSettings, with cache: inout TLSContextCache) throws(TLSSettingsError) {
    self.settings = settings
    var tls = TLSClientSettings()
    if !settings.caFile.isEmpty { tls.trust.caFile = settings.caFile }
    endpoint = try HTTPEndpoint(settings.url, tls, settings.rules, with: &cache)
  }

  private init(_ settings: WebhookSettings, _ endpoint: HTTPEndpoint) {
    self.settings = settings
    self.endpoint = endpoint
  }

  /// This plan with the endpoint object of `other`, so that the connections of `other` can be used again. Both
  /// endpoints must be equal (`hasSameEndpoint`).
  func with(endpointOf other: WebhookPlan) -> WebhookPlan { WebhookPlan(settings, other.endpoint) }

  /// Whether connections to the endpoint of `other` can be used for this plan. The content of `ca_file` may differ,
  /// since each new connection reads the file again.
  func hasSameEndpoint(as other: WebhookPlan) -> Bool {
    settings.url == other.settings.url && settings.rules == other.settings.rules
      && settings.caFile == other.settings.caFile
  }
}
