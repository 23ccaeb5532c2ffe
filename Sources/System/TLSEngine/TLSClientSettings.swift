/// How a TLS client judges its peer and presents itself.
package struct TLSClientSettings: Equatable, Sendable {
  /// The certificates that a peer's chain may end in. Any number of sources; their certificates are added up.
  package struct Trust: Equatable, Sendable {
    /// The store that the operating system keeps (`SSL_CERT_FILE` and `SSL_CERT_DIR` override where it is looked for).
    package var systemStore: Bool
    /// Path of a PEM file with one or more certificates.
    package var caFile: String?
    /// The text of such a file.
    package var caPEM: String?

    package init(systemStore: Bool = true, caFile: String? = nil, caPEM: String? = nil) {
      self.systemStore = systemStore
      self.caFile = caFile
      self.caPEM = caPEM
    }
  }

  package enum Verification: Equatable, Sendable {
    /// The chain must end in a trusted certificate, be valid today, and name the host.
    case full
    /// Anyone may answer: whoever sits on the path can read and change everything. Pins are still compared.
    case offForTestsOnly
  }

  /// Our own certificate, for upstreams that ask for one. Both are paths of PEM files; they may be the same file.
  package struct ClientCertificate: Equatable, Sendable {
    /// The certificate first, then those that lead to its root.
    package var certificateFile: String
    /// The private key, not encrypted: there is nobody to ask for a passphrase.
    package var keyFile: String

    package init(certificateFile: String, keyFile: String) {
      self.certificateFile = certificateFile
      self.keyFile = keyFile
    }
  }

  package var trust = Trust()
  package var verification = Verification.full
  /// When not empty, one of these keys must be the peer's or, with full verification, one of its verified chain's.
  package var pins: [PublicKeyPin] = []
  package var clientCertificate: ClientCertificate?
  package var minimumVersion = TLSVersion.v1_2
  package var maximumVersion = TLSVersion.v1_3
  /// The name to send and to expect in place of the host that was dialled.
  package var serverName: String?
  /// Offered by ALPN (RFC 7301), best first; empty: no offer. An upstream that ignores the offer is accepted.
  package var applicationProtocols = ["http/1.1"]

  package init() {}

  /// Bytes of a file. No bundle of certificates comes near; a device or a log file given by mistake does.
  package static var fileSizeLimit: Int { 16 << 20 }

  /// The files that a `TLSContext` is made from, with what each is for.
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
