import ByteStreams
import Dialing
import Digests
import Journal
import Outbox
import TLSEngine
import Threading
import UpstreamProtocol
import UpstreamSession
import WebSocketCodec

/// One version of a session's settings, and the TLS context made from it.
///
/// A reload creates a new object. A connection keeps the object with which it was started. This type is a class because
/// the settings take more than a kilobyte.
package final class PreparedSettings: Sendable {
  package let value: UpstreamSettings
  /// The TLS context; nil if no connection can be `wss`.
  let tlsContext: RefreshableTLSContext?
  /// The declaration of the upstream's protocol; nil for plain messages.
  let declaration: (any ProtocolDeclaration)?
  /// Each connection uses a copy of this value as its application protocol; nil if messages are sent and passed on
  /// unchanged.
  let protocolPrototype: (any UpstreamProtocol)?

  /// Reads the files of `upstream.tls`. Blocks.
  package convenience init(_ value: UpstreamSettings) throws(TLSSettingsError) {
    var cache = TLSContextCache(fileTimeout: value.fileTimeout)
    try self.init(value, with: &cache)
  }

  /// Reads the files of `upstream.tls`, unless another session has the same settings. Blocks.
  package convenience init(_ value: UpstreamSettings, with cache: inout TLSContextCache) throws(TLSSettingsError) {
    try self.init(value, declaration: value.conventions.declaration, &cache)
  }

  /// Reads the files of `upstream.tls`. Blocks.
  ///
  /// - Parameter declaration: replaces the protocol that the settings name.
  convenience init(_ value: UpstreamSettings, declaration: any ProtocolDeclaration) throws(TLSSettingsError) {
    var cache = TLSContextCache(fileTimeout: value.fileTimeout)
    try self.init(value, declaration: declaration, &cache)
  }

  private convenience init(
    _ value: UpstreamSettings, declaration: (any ProtocolDeclaration)?, _ cache: inout TLSContextCache
  ) throws(TLSSettingsError) {
    let isSecure = value.urlSource.isSet || value.urls.contains { $0.isSecure }
    self.init(value, declaration, isSecure ? try cache.context(for: value.tls, fileTimeout: value.fileTimeout) : nil)
  }

  /// The client identity: a digest of the values that identify this gateway to the server
  /// (`UpstreamSettings.isSameClient`). Every process computes the same digest from the same values, since the digest
  /// is stored and compared with the digest of a later process.
  var client: [UInt8] { keptClient ?? value.client }
  /// `client`, if it may be needed for many messages; nil if it is not.
  private let keptClient: [UInt8]?

  private init(
    _ value: UpstreamSettings, _ declaration: (any ProtocolDeclaration)?, _ tlsContext: RefreshableTLSContext?
  ) {
    let conventions = value.conventions
    let isPlain =
      conventions.onOpen.isEmpty && conventions.onClose.isEmpty && conventions.client.message == nil
      && !conventions.examinesMessages
    protocolPrototype =
      declaration?.makeProtocol(conventions, messageBytes: value.limits.messageBytes)
      ?? (isPlain ? nil : PlainProtocol(value.boxedConventions))
    self.declaration = declaration
    var value = value
    // Without pings, no message can be confirmed.
    if !value.session.liveness.isEnabled { value.outbox.confirms = false }
    self.value = value
    self.tlsContext = tlsContext
    keptClient = conventions.keptCaptures.isEmpty ? nil : value.client
  }

  private init(_ other: PreparedSettings, readURL: WebSocketURL) {
    var value = other.value
    value.readURL = readURL
    self.value = value
    tlsContext = other.tlsContext
    declaration = other.declaration
    protocolPrototype = other.protocolPrototype
    keptClient = other.client
  }

  /// These settings for a connection whose URL was read from `upstream.url.file` or `upstream.url.command`.
  func reading(_ url: WebSocketURL) -> PreparedSettings { PreparedSettings(self, readURL: url) }

  /// The capabilities of the protocol; none for plain messages.
  var capabilities: ProtocolCapabilities { protocolPrototype?.capabilities ?? [] }

  /// The setup step with this number, for texts for operators.
  func step(_ step: Int) -> ProtocolStep {
    ProtocolStep(step, of: declaration)
  }

  /// The kind of the upstream. It decides the form of stored messages.
  package var kind: UpstreamKind { value.conventions.kind }

  /// The prepared settings of one created session. This object has the settings of the session's profile, and the
  /// session uses the TLS context of the profile. Reads no file.
  package func session(_ value: UpstreamSettings) -> PreparedSettings {
    precondition(
      value.tls == self.value.tls && (tlsContext != nil || !value.urls.contains { $0.isSecure }),
      "the TLS context was built from other settings")
    return PreparedSettings(value, value.conventions.declaration, tlsContext)
  }

  /// A copy with the settings `value`. A reload uses it to keep the settings of a session's queue. `value` must have
  /// the same URLs, conventions and TLS settings as this object. Reads no file.
  package func with(_ value: UpstreamSettings) -> PreparedSettings {
    precondition(
      value.tls == self.value.tls && value.urls == self.value.urls && value.urlSource == self.value.urlSource,
      "the TLS context was built from other settings")
    return PreparedSettings(value, declaration, tlsContext)
  }
}

extension SessionHandle {
  /// The settings of this session's queue. A reload does not change them, except `confirms`.
  package var queueSettings: OutboxSettings { settings.value.outbox }

  /// Whether pings confirm messages.
  package var confirms: Bool { guarded.withLock { $0.confirms } }

  /// TTL of messages whose sender sets no TTL.
  package var defaultTimeToLive: TimeSpan { settings.value.outbox.timeToLive }
}
