import COpenSSL

/// A client's certificate that was verified during the handshake.
package final class ClientCertificate: Sendable {
  /// The subject for logs, in printable ASCII: `CN = client, O = Example`.
  package let subject: String
  /// The DNS names among the certificate's subject alternative names, in lower case.
  package let dnsNames: [String]
  /// The URIs among the certificate's subject alternative names.
  package let uris: [String]
  /// When the certificate expires, in seconds since 1970 UTC.
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
  /// Maximum length of a name, in bytes. A longer name is ignored and not truncated.
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
      // A name with a NUL or a space is ignored, since another parser could read it as a different name.
      guard !bytes.isEmpty, bytes.allSatisfy({ $0 > 0x20 && $0 < 0x7F }) else { continue }
      let text = String(decoding: bytes, as: UTF8.self)
      if isURI != 0 { uris.append(text) } else { names.append(text.lowercased()) }
    }
    self.init(
      subject: unsafe CertificateVerification.subject(of: certificate), dnsNames: names, uris: uris,
      expiry: unsafe CertificateVerification.expiry(of: certificate))
  }
}
