import Configuration
import TLSEngine
import Threading

/// The TLS context of one version of a session's settings: built once, and again when one of its files has changed.
///
/// It belongs to those settings (`SharedSettings`). A connection attempt refreshes the context of the settings that it was
/// started with, so an attempt that a reload has outdated cannot change what later attempts use.
final class UpstreamSecurity: Sendable {
  private let context: Locked<TLSContext>

  init(_ settings: TLSClientSettings) throws(TLSSettingsError) {
    context = Locked(try TLSContext(settings))
  }

  /// A context for one attempt, made off the loop.
  static func made(_ settings: TLSClientSettings) async throws(TLSSettingsError) -> TLSContext {
    try await offLoop { () throws(TLSSettingsError) in try TLSContext(settings) }
  }

  /// The context, as its files are now. Reads them off the loop.
  func refreshed() async throws(TLSSettingsError) -> TLSContext {
    let current = context.withLock { $0 }
    let refreshed = try await Self.offLoop { () throws(TLSSettingsError) in
      try current.reloadedIfChanged() ?? current
    }
    context.withLock { $0 = refreshed }
    return refreshed
  }

  /// Reading files blocks, and the system's store alone is 150 certificates to parse.
  private static func offLoop<Value: Sendable>(
    _ work: @escaping @Sendable () throws(TLSSettingsError) -> Value
  ) async throws(TLSSettingsError) -> Value {
    let answer = await Task.detached { () -> Result<Value, TLSSettingsError> in
      do throws(TLSSettingsError) {
        return .success(try work())
      } catch {
        return .failure(error)
      }
    }.value
    return try answer.get()
  }
}

extension TLSClientSettings {
  /// For an origin that a redirection led to: our certificate is not shown to it, nor is it asked to be whom we configured.
  var forForeignOrigin: TLSClientSettings {
    var settings = self
    settings.clientCertificate = nil
    settings.serverName = nil
    return settings
  }

  /// From what the operator wrote.
  init(_ configured: GatewaySettings.TLS) throws(UpstreamSettingsError) {
    self.init()
    trust.systemStore = configured.systemCA
    if !configured.caFile.isEmpty { trust.caFile = configured.caFile }
    if !configured.verify { verification = .offForTestsOnly }
    if !configured.serverName.isEmpty { serverName = configured.serverName }
    for text in configured.pins {
      guard let pin = PublicKeyPin(text) else {
        throw UpstreamSettingsError(
          key: "upstream.tls.pins", reason: "'\(text)' is not the SHA-256 of a public key: 44 characters of base64")
      }
      pins.append(pin)
    }
    switch (configured.clientCertificate.isEmpty, configured.clientKey.isEmpty) {
    case (true, true): break
    case (false, false):
      clientCertificate = ClientCertificate(
        certificateFile: configured.clientCertificate, keyFile: configured.clientKey)
    case (false, true), (true, false):
      throw UpstreamSettingsError(
        key: "upstream.tls.client_certificate", reason: "a certificate and its key belong together: give both or none")
    }
    if let version = TLSVersion(configured.minimumVersion) { minimumVersion = version }
  }
}

/// What keeps configured settings from being used.
package struct UpstreamSettingsError: Error, Equatable, Sendable, CustomStringConvertible {
  package let key: String
  package let reason: String

  package var description: String { "'\(key)' cannot be used: \(reason)" }
}
