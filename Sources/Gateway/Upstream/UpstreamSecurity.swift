import Configuration
import TLSEngine

/// The TLS context of a session's `wss` URLs: built once, and anew when one of its files has changed.
struct UpstreamSecurity: Sendable {
  let context: TLSContext

  init(_ settings: TLSClientSettings) throws(TLSSettingsError) {
    context = try TLSContext(settings)
  }

  private init(context: TLSContext) { self.context = context }

  /// A context for one dial, made off the loop.
  static func made(_ settings: TLSClientSettings) async throws(TLSSettingsError) -> UpstreamSecurity {
    try await offLoop { () throws(TLSSettingsError) in try UpstreamSecurity(settings) }
  }

  /// Looks at the files, off the loop.
  func refreshed() async throws(TLSSettingsError) -> UpstreamSecurity {
    let context = self.context
    return UpstreamSecurity(
      context: try await Self.offLoop { () throws(TLSSettingsError) in try context.reloadedIfChanged() ?? context })
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
