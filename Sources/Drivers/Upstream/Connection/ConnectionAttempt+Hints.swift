import ByteStreams
import HTTPCodec
import TLSEngine
import UpstreamProtocol
import WebSocketCodec

/// Hints to the likely causes of common failures.
extension ConnectionAttempt {
  private static var tlsHint: String { ": if this is a TLS port, use wss:// in the URL" }

  /// The hint for the first bytes of the response to a plain `ws` request. A TLS record starts with its type: alert
  /// (21) or handshake (22), RFC 8446 §5.1. No HTTP response starts with either.
  func hint(for beginning: Span<UInt8>) -> String {
    !url.isSecure && !beginning.isEmpty && (beginning[0] == 21 || beginning[0] == 22) ? Self.tlsHint : ""
  }

  /// The hint for an HTTP response other than 101. nginx, Apache and Go report plain HTTP on a TLS port in the body.
  func hint(for refusal: HTTPRefusal, body: String) -> String {
    if !url.isSecure, refusal.status == 400, body.contains("HTTPS") { return Self.tlsHint }
    return preparedSettings.declaration?.hint(status: refusal.status, body: body) ?? ""
  }

  /// The hint for a connection that ends without a response. Many servers close without a message, so the hint depends
  /// on the port.
  var hintForEnd: String {
    if !url.isSecure, "\(url.port)".hasSuffix("443") { return Self.tlsHint }
    return preparedSettings.declaration?.hintForEnd ?? ""
  }
}

extension TLSError {
  /// The setting that resolves the error.
  var hint: String {
    switch self {
    case .unknownIssuer, .selfSignedCertificate: " ('upstream.tls.ca_file' or --ca-file adds certificates to trust)"
    default: ""
    }
  }
}
