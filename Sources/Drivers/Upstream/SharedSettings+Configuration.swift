import Configuration
import TLSEngine

extension SharedSettings {
  /// From what the operator wrote.
  package convenience init(_ configured: GatewaySettings.Upstream) throws(SettingProblem) {
    let settings = try UpstreamSettings(configured)
    do throws(TLSSettingsError) {
      try self.init(settings)
    } catch {
      throw SettingProblem(error)
    }
  }
}

extension SettingProblem {
  /// What keeps `upstream.tls` from being used.
  init(_ error: TLSSettingsError) {
    switch error {
    case .unreadable(let role, _, _), .holdsNoCertificate(let role, _), .malformedCertificate(let role, _, _, _):
      let key =
        switch role {
        case .authorities: "ca_file"
        case .certificate: "client_certificate"
        case .key: "client_key"
        }
      self.init("upstream.tls." + key, .none, error.description)
    case .holdsNoPrivateKey, .encryptedPrivateKey, .keyDoesNotMatchCertificate:
      self.init("upstream.tls.client_key", .none, error.description)
    case .unusableCertificate: self.init("upstream.tls.client_certificate", .none, error.description)
    case .nothingTrusted, .noSystemStore, .systemStoreUnreadable:
      self.init("upstream.tls.system_ca", .none, error.description)
    case .badServerName:
      self.init(
        "upstream.tls.server_name", .value, "it takes 1 to 253 letters, digits, dots and hyphens, or an IP address")
    case .invertedVersionRange, .badApplicationProtocol, .library:
      self.init("upstream.tls", .none, error.description)
    }
  }
}
