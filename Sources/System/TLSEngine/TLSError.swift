import ByteStreams
import COpenSSL

/// Why a TLS connection failed. Every error is final: the connection sends its pending bytes (an alert) and ends.
package enum TLSError: Error, Equatable, Sendable, CustomStringConvertible {
  // The peer's certificate is not accepted. Times are seconds since 1970 UTC.
  case certificateExpired(subject: String, at: Int64)
  case certificateNotYetValid(subject: String, from: Int64)
  /// `covers`: the first few names in the certificate.
  case wrongHost(expected: String, covers: [String])
  case selfSignedCertificate(subject: String)
  case unknownIssuer(issuer: String)
  case pinMismatch(presented: PublicKeyPin)
  /// The certificate is rejected for another reason, such as a bad signature, a wrong purpose or a weak key.
  case certificateRejected(subject: String, reason: String)

  // The two ends could not agree.
  case versionUnsupported(minimum: TLSVersion, maximum: TLSVersion)
  case clientCertificateRequired
  /// The client has sent no certificate, and the server requires one.
  case noClientCertificate
  /// No cipher, key exchange or application protocol is acceptable to both.
  case nothingInCommon(reason: String)
  /// The peer ended the connection with this alert (RFC 8446 §6.2).
  case alert(TLSAlert)

  // The received bytes are not valid.
  /// The first bytes are not a TLS record.
  case notTLS
  /// The first bytes are an HTTP request.
  case plainHTTP
  /// A record was altered in transit, or encrypted with another key.
  case badRecord
  case protocolViolation(reason: String)
  /// The connection ended without close_notify: received data may be incomplete (RFC 8446 §6.1).
  case truncated
  case closedDuringHandshake

  package var description: String { report.description }

  package var report: ReportText {
    switch self {
    case .certificateExpired(let subject, let moment):
      "the certificate of \(quoted: subject) expired at \(Self.date(moment))"
    case .certificateNotYetValid(let subject, let moment):
      "the certificate of \(quoted: subject) is not valid before \(Self.date(moment)): is the clock of this machine correct?"
    case .wrongHost(let expected, let covers) where covers.isEmpty:
      "the certificate is not for \(expected): it names no host at all (a subject alternative name is needed)"
    case .wrongHost(let expected, let covers):
      "the certificate is not for \(expected): it covers \(quoted: covers.joined(separator: ", "))"
    case .selfSignedCertificate(let subject):
      "the certificate of \(quoted: subject) is self-signed: to trust it, configure it as CA file"
    case .unknownIssuer(let issuer):
      "the certificate's issuer \(quoted: issuer) is not trusted: its CA is missing from the trust store, or the peer does not"
        + " send its intermediate certificates"
    case .pinMismatch(let presented):
      "the peer's key is not pinned: it presented \(presented)"
    case .certificateRejected(let subject, let reason):
      "the certificate of \(quoted: subject) is rejected: \(reason)"
    case .versionUnsupported(let minimum, let maximum) where minimum == maximum:
      "the peer does not speak \(minimum), the only version allowed here"
    case .versionUnsupported(let minimum, let maximum):
      "the peer does not speak any version from \(minimum) to \(maximum)"
    case .clientCertificateRequired:
      "the peer requires a client certificate and none is configured"
    case .noClientCertificate:
      "the client sent no certificate, and one is required"
    case .nothingInCommon(let reason):
      "the two ends have nothing in common to use: \(reason)"
    case .plainHTTP:
      "the client sent plain HTTP to an HTTPS port"
    case .alert(let alert):
      "the peer ended the connection with the alert '\(alert)'"
    case .notTLS:
      "the peer does not speak TLS on this port"
    case .badRecord:
      "a record failed its integrity check: it was altered in transit"
    case .protocolViolation(let reason):
      "the peer violated the TLS protocol: \(reason)"
    case .truncated:
      "the connection was cut off: it ended without close_notify"
    case .closedDuringHandshake:
      "the peer closed the connection during the TLS handshake"
    }
  }

  /// `2026-11-21T09:30:00Z`.
  private static func date(_ seconds: Int64) -> String {
    let (milliseconds, overflow) = seconds.multipliedReportingOverflow(by: 1000)
    guard !overflow else { return "an invalid date" }
    var text = ByteQueue()
    var writer = TimestampWriter()
    writer.write(milliseconds: milliseconds, into: &text)
    text.removeLast(5)
    text.append("Z")
    return text.bytes.text()
  }
}

/// A TLS alert (RFC 8446 §6).
package struct TLSAlert: Equatable, Sendable, CustomStringConvertible {
  package let code: UInt8

  package init(code: UInt8) { self.code = code }

  package static let handshakeFailure = TLSAlert(code: 40)
  package static let protocolVersion = TLSAlert(code: 70)
  package static let certificateRequired = TLSAlert(code: 116)

  package var description: String {
    guard let name = unsafe SSL_alert_desc_string_long(Int32(code)) else { return "\(code)" }
    return unsafe "\(String(cString: name)) (\(code))"
  }
}
