import ByteStreams
import HTTPCodec
import TLSEngine
import WebSocketCodec

/// What a person should look at first when an attempt fails in one of the usual ways.
extension ConnectionAttempt {
  private static var tlsHint: String { ": is this a TLS port? Then the URL starts with wss://" }

  /// For the first bytes of the response to a plain `ws` request. A TLS record starts with its type: alert (21) or handshake
  /// (22), RFC 8446 §5.1. No HTTP response does.
  func hint(for beginning: Span<UInt8>) -> String {
    !url.isSecure && !beginning.isEmpty && (beginning[0] == 21 || beginning[0] == 22) ? Self.tlsHint : ""
  }

  /// For an HTTP response other than 101. Servers that notice plain HTTP on a TLS port say so in words: nginx, Apache, Go.
  func hint(for refusal: HTTPRefusal, body: String) -> String {
    !url.isSecure && refusal.status == 400 && body.contains("HTTPS") ? Self.tlsHint : ""
  }

  /// For the end of the connection without a response. Other servers only close; then the port says what it may have been.
  var hintForEnd: String { !url.isSecure && "\(url.port)".hasSuffix("443") ? Self.tlsHint : "" }
}

extension TLSError {
  /// Which setting mends it.
  var hint: String {
    switch self {
    case .unknownIssuer, .selfSignedCertificate: " ('upstream.tls.ca_file' or --ca-file adds certificates to trust)"
    default: ""
    }
  }
}
