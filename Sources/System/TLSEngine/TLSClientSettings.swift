/// How a TLS client verifies its peer and authenticates itself.
package struct TLSClientSettings: Equatable, Sendable {
  /// The certificates that a peer's chain may end in: the union of all these sources.
  package struct Trust: Equatable, Sendable {
    /// The operating system's store. `SSL_CERT_FILE` and `SSL_CERT_DIR` override its location.
    package var systemStore: Bool
    /// Path of a PEM file with one or more certificates.
    package var caFile: String?
    /// The text of a PEM file with one or more certificates.
    package var caPEM: String?

    package init(systemStore: Bool = true, caFile: String? = nil, caPEM: String? = nil) {
      self.systemStore = systemStore
      self.caFile = caFile
      self.caPEM = caPEM
    }
  }

  package enum Verification: Equatable, Sendable {
    /// The chain must end in a trusted certificate, be valid now, and name the host.
    case full
    /// No verification: an attacker on the path can read and change everything. Pins are still compared.
    case offForTestsOnly
  }

  /// The client certificate, for upstreams that request one. Both are paths of PEM files; they may be the same file.
  package struct ClientCertificate: Equatable, Sendable {
    /// The certificate, followed by its intermediates.
    package var certificateFile: String
    /// The private key. It must not be encrypted, since a passphrase cannot be entered.
    package var keyFile: String

    package init(certificateFile: String, keyFile: String) {
      self.certificateFile = certificateFile
      self.keyFile = keyFile
    }
  }

  package var trust = Trust()
  package var verification = Verification.full
  /// If not empty, the peer's key must be one of these keys. With full verification, it suffices that the key of any
  /// certificate in the verified chain is one of these keys.
  package var pins: [PublicKeyPin] = []
  package var clientCertificate: ClientCertificate?
  package var minimumVersion = TLSVersion.v1_2
  package var maximumVersion = TLSVersion.v1_3
  /// The name that is sent and verified instead of the URL's host.
  package var serverName: String?
  /// The protocols offered by ALPN (RFC 7301), in order of preference. If empty, ALPN is not used. An upstream that
  /// ignores the offer is accepted.
  package var applicationProtocols = ["http/1.1"]

  package init() {}

  /// Maximum bytes of a file. Certificate bundles are far smaller. The limit stops a read of a device or a log file
  /// that was named by mistake.
  package static var fileSizeLimit: Int { 16 << 20 }

  /// The files that a `TLSContext` is built from, with the role of each.
  package var files: [(role: TLSSettingsError.Role, path: String)] {
    var files: [(TLSSettingsError.Role, String)] = []
    if verification == .full, let path = trust.caFile { files.append((.authorities, path)) }
    if let clientCertificate {
      files.append((.certificate, clientCertificate.certificateFile))
      files.append((.key, clientCertificate.keyFile))
    }
    return files
  }
}
