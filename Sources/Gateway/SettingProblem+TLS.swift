import Configuration
import TLSEngine

extension SettingProblem {
  /// A problem with the `upstream.tls` settings of a session. `prefix` is the prefix of the session's setting paths.
  init(_ error: TLSSettingsError, prefix: String) {
    let (name, subject, reason): (String, Subject, String) =
      switch error {
      case .unreadable(let role, _, _), .noCertificate(let role, _), .malformedCertificate(let role, _, _, _):
        switch role {
        case .authorities, .clientAuthorities: (".ca_file", .none, error.description)
        case .certificate, .serverCertificate: (".client_certificate", .none, error.description)
        case .key, .serverKey: (".client_key", .none, error.description)
        }
      case .noPrivateKey, .encryptedPrivateKey, .keyDoesNotMatchCertificate:
        (".client_key", .none, error.description)
      case .unusableCertificate: (".client_certificate", .none, error.description)
      case .noTrustedCertificate, .noSystemStore, .systemStoreUnreadable: (".system_ca", .none, error.description)
      case .badServerName:
        (".server_name", .value, "use 1 to 253 letters, digits, dots and hyphens, or an IP address")
      case .invertedVersionRange, .badApplicationProtocol, .library: ("", .none, error.description)
      }
    self.init(prefix + "upstream.tls" + name, subject, reason)
  }
}
