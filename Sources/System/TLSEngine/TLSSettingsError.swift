/// Why settings cannot be used. Reported before any connection attempt.
package enum TLSSettingsError: Error, Equatable, Sendable, CustomStringConvertible {
  /// The purpose of a file.
  package enum Role: String, Sendable {
    case authorities = "CA file"
    case certificate = "client certificate file"
    case key = "client key file"
    case serverCertificate = "certificate file"
    case serverKey = "key file"
    case clientAuthorities = "client CA file"
  }

  case unreadable(Role, file: String, reason: String)
  /// The file was read, but contains no PEM block of the expected kind.
  case noCertificate(Role, file: String)
  case noPrivateKey(file: String)
  /// The certificate at `index` (from 1) cannot be parsed.
  case malformedCertificate(Role, file: String, index: Int, reason: String)
  case encryptedPrivateKey(file: String)
  case keyDoesNotMatchCertificate(keyFile: String, certificateFile: String)
  /// OpenSSL refuses the certificate: for example, its key is too small or its digest too weak.
  case unusableCertificate(file: String, reason: String)
  case noTrustedCertificate
  case noSystemStore
  case systemStoreUnreadable(reason: String)
  case invertedVersionRange(minimum: TLSVersion, maximum: TLSVersion)
  case badServerName(String)
  case badApplicationProtocol(String)
  case library(reason: String)

  package var description: String {
    switch self {
    case .unreadable(let role, let file, let reason):
      "\(role.rawValue) \(file) cannot be read: \(reason)"
    case .noCertificate(let role, let file):
      "\(role.rawValue) \(file) has no certificate: it must be PEM text with '-----BEGIN CERTIFICATE-----'"
    case .noPrivateKey(let file):
      "key file \(file) has no private key: it must be PEM text with '-----BEGIN PRIVATE KEY-----'"
    case .malformedCertificate(let role, let file, let index, let reason):
      "\(role.rawValue) \(file): certificate \(index) is malformed: \(reason)"
    case .encryptedPrivateKey(let file):
      "key file \(file) is encrypted: use a key without a passphrase, readable by this process only"
    case .keyDoesNotMatchCertificate(let keyFile, let certificateFile):
      "the key in \(keyFile) does not match the certificate in \(certificateFile)"
    case .unusableCertificate(let file, let reason):
      "the certificate in \(file) cannot be used: \(reason)"
    case .noTrustedCertificate:
      "no certificate is trusted: set a CA file, trust the system's certificates, or turn verification off explicitly"
    case .noSystemStore:
      "the system has no certificate store: install ca-certificates, set SSL_CERT_FILE, or set a CA file"
    case .systemStoreUnreadable(let reason):
      "the system's certificates cannot be read: \(reason)"
    case .invertedVersionRange(let minimum, let maximum):
      "no TLS version is allowed: the minimum \(minimum) is above the maximum \(maximum)"
    case .badServerName(let name):
      "'\(name)' is not a host name: use 1 to 253 letters, digits, dots and hyphens, or an IP address"
    case .badApplicationProtocol(let name):
      "'\(name)' is not an ALPN protocol name: use 1 to 255 bytes"
    case .library(let reason):
      "OpenSSL could not be set up: \(reason)"
    }
  }
}
