import COpenSSL

/// A client's certificate that was verified during the handshake.
package final class ClientCertificate: Sendable {
  /// For logs: `CN = client, O = Example`. Printable ASCII.
  package let subject: String
  /// The DNS names of its subject alternative names, in lower case.
  package let dnsNames: [String]
  /// The URIs of its subject alternative names.
  package let uris: [String]
  /// When it expires: seconds since 1970 UTC.
  package let expiry: Int64

  package init(subject: String, dnsNames: [String], uris: [String], expiry: Int64) {
    self.subject = subject
    self.dnsNames = dnsNames
    self.uris = uris
    self.expiry = expiry
  }
}

extension ClientCertificate {
  /// Maximum number of names read from a certificate. Further names are ignored, since a certificate of a trusted
  /// authority has few.
  private static var nameLimit: Int { 64 }
  /// Maximum length of a name, in bytes; a longer name is ignored, never cut.
  private static var nameBytes: Int { 1024 }

  convenience init(_ certificate: OpaquePointer) {
    var names: [String] = []
    var uris: [String] = []
    var buffer = [CChar](repeating: 0, count: Self.nameBytes)
    for index in 0..<Self.nameLimit {
      var isURI: Int32 = 0
      let length = unsafe copenssl_identity_name(certificate, Int32(index), &isURI, &buffer, Int32(buffer.count))
      if length < 0 { break }
      let bytes = buffer.prefix(Int(length)).map { UInt8(bitPattern: $0) }
      // A NUL or a space could make another parser read a different name.
      guard !bytes.isEmpty, bytes.allSatisfy({ $0 > 0x20 && $0 < 0x7F }) else { continue }
      let text = String(decoding: bytes, as: UTF8.self)
      if isURI != 0 { uris.append(text) } else { names.append(text.lowercased()) }
    }
    self.init(
      subject: unsafe CertificateVerification.subject(of: certificate), dnsNames: names, uris: uris,
      expiry: unsafe CertificateVerification.expiry(of: certificate))
  }
}
