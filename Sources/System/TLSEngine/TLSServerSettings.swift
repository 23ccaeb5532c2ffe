/// How a TLS server authenticates itself and its clients.
package struct TLSServerSettings: Equatable, Sendable {
  /// Whether the server requests certificates of clients.
  package enum ClientCertificates: String, CaseIterable, Sendable {
    /// No certificate is requested.
    case none
    /// A certificate is requested. A client without a certificate is accepted, a client with an invalid certificate is
    /// not.
    case optional
    /// A certificate is required. Without a valid certificate, the handshake fails.
    case required
  }

  /// Path of a PEM file: the certificate, followed by its intermediates.
  package var certificateFile = ""
  /// Path of the PEM file of the private key, which must not be encrypted. It may be the same file as
  /// `certificateFile`.
  package var keyFile = ""
  /// Path of a PEM file of the authorities of client certificates.
  package var clientCAFile = ""
  package var clientCertificates = ClientCertificates.none
  package var minimumVersion = TLSVersion.v1_2

  package init() {}

  /// The files that a `TLSServerContext` is built from, with the role of each.
  package var files: [(role: TLSSettingsError.Role, path: String)] {
    var files: [(TLSSettingsError.Role, String)] = [(.serverCertificate, certificateFile), (.serverKey, keyFile)]
    if clientCertificates != .none { files.append((.clientAuthorities, clientCAFile)) }
    return files
  }
}
