import ByteStreams
import Configuration
import Outbox
import TLSEngine
import UpstreamProtocol
import UpstreamSession
import WebSocketCodec

/// One version of a session's settings, and the TLS context made from it.
///
/// A reload creates a new one; a connection keeps the one with which it was started. It is a class because the settings take more
/// than a kilobyte.
package final class SharedSettings: Sendable {
  package let value: UpstreamSettings
  /// nil if no URL is `wss`.
  let security: UpstreamSecurity?
  /// Copied for each connection as its application protocol; nil if messages are sent and passed on unchanged.
  let protocolPrototype: (any UpstreamProtocol)?

  /// Reads the files of `upstream.tls`. Blocks.
  package convenience init(_ value: UpstreamSettings) throws(TLSSettingsError) {
    var plan = SecurityPlan(fileTimeout: value.fileTimeout)
    try self.init(value, with: &plan)
  }

  /// The same as one of several sessions, which share what is equal.
  package convenience init(_ value: UpstreamSettings, with plan: inout SecurityPlan) throws(TLSSettingsError) {
    let conventions = value.conventions
    let isPlain = conventions.onOpen.isEmpty && conventions.client.message == nil && !conventions.examinesMessages
    try self.init(value, speaking: isPlain ? nil : PlainProtocol(conventions), &plan)
  }

  convenience init(_ value: UpstreamSettings, speaking prototype: (any UpstreamProtocol)?) throws(TLSSettingsError) {
    var plan = SecurityPlan(fileTimeout: value.fileTimeout)
    try self.init(value, speaking: prototype, &plan)
  }

  private convenience init(
    _ value: UpstreamSettings, speaking prototype: (any UpstreamProtocol)?, _ plan: inout SecurityPlan
  ) throws(TLSSettingsError) {
    let isSecure = value.urls.contains { $0.isSecure }
    self.init(value, prototype, security: isSecure ? try plan.security(for: value) : nil)
  }

  private init(_ value: UpstreamSettings, _ prototype: (any UpstreamProtocol)?, security: UpstreamSecurity?) {
    protocolPrototype = prototype
    var value = value
    // Nothing can be confirmed without barrier pings.
    if !value.session.liveness.isEnabled { value.outbox.confirms = false }
    self.value = value
    self.security = security
  }

  /// The same URLs, conventions and TLS context with another queue: a reload does not change that. Reads no file.
  package func with(_ value: UpstreamSettings) -> SharedSettings {
    precondition(value.tls == self.value.tls && value.urls == self.value.urls, "the TLS context is of other settings")
    return SharedSettings(value, protocolPrototype, security: security)
  }
}

extension SessionHandle {
  /// The settings of this session's queue. A reload does not change them.
  package var queueSettings: OutboxSettings { settings.value.outbox }

  /// TTL of messages whose sender sets none.
  package var defaultTimeToLive: TimeSpan { settings.value.outbox.timeToLive }
}
