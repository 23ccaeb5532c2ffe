import ByteStreams
import Configuration
import HTTPCodec
import SocketIO
import TLSEngine
import UpstreamProtocol
import WebSocketCodec

/// Hints to the likely causes of common failures.
extension ConnectionAttempt {
  private static var tlsHint: String { ": if this is a TLS port, use wss:// in the URL" }

  /// For the first bytes of the response to a plain `ws` request. A TLS record starts with its type: alert (21) or handshake (22),
  /// RFC 8446 §5.1. No HTTP response starts with either.
  func hint(for beginning: Span<UInt8>) -> String {
    !url.isSecure && !beginning.isEmpty && (beginning[0] == 21 || beginning[0] == 22) ? Self.tlsHint : ""
  }

  /// For an HTTP response other than 101. nginx, Apache and Go report plain HTTP on a TLS port in the body.
  func hint(for refusal: HTTPRefusal, body: String) -> String {
    if !url.isSecure, refusal.status == 400, body.contains("HTTPS") { return Self.tlsHint }
    guard settings.conventions.kind == .socketIO else { return "" }
    if refusal.status == 404 { return ": is the path of 'upstream.url' that of a Socket.IO server?" }
    guard refusal.status == 400 else { return "" }
    return socketIOHint(EngineIORefusal(content: Array(body.utf8).span), body)
  }

  /// What the response of an Engine.IO server with status 400 means.
  private func socketIOHint(_ refusal: EngineIORefusal, _ body: String) -> String {
    let advice = refusal.advice(settings.conventions.socketIO.version)
    let text = EngineIORefusal.text(Array(body.utf8).span)
    return ": \(advice)" + (text.isEmpty ? "" : " (\(String(decoding: text.prefix(256), as: UTF8.self)))")
  }

  /// For the end of the connection without a response. Other servers just close, so the hint depends on the port.
  var hintForEnd: String {
    if !url.isSecure, "\(url.port)".hasSuffix("443") { return Self.tlsHint }
    return settings.conventions.kind == .socketIO
      ? ": the server may handle no upgrades at this path; check the path of 'upstream.url'" : ""
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
