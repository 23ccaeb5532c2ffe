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
