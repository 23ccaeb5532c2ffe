import HTTPCodec

/// Why a server's answer to the opening request makes no WebSocket (RFC 6455 §4.1).
package enum HandshakeError: Error, Equatable, Sendable, CustomStringConvertible {
  /// It is not HTTP, or not within the limits.
  case notHTTP(HTTPProtocolError)
  /// `Upgrade` does not say `websocket`.
  case noUpgrade
  /// `Connection` does not list `Upgrade`.
  case noConnectionUpgrade
  /// `Sec-WebSocket-Accept` is absent or not the answer to our key: a cache or a server that did not understand.
  case wrongAccept
  /// An extension that was not offered, or parameters that were not or cannot be agreed on.
  case badExtension(String)
  /// A subprotocol that was not offered, or several.
  case badSubprotocol(String)

  package var description: String {
    switch self {
    case .notHTTP(let error): "the answer to the opening request is not valid HTTP: \(error)"
    case .noUpgrade: "the 101 answer does not say 'Upgrade: websocket'"
    case .noConnectionUpgrade: "the 101 answer does not say 'Connection: Upgrade'"
    case .wrongAccept: "the 101 answer's Sec-WebSocket-Accept does not match our key; is this a WebSocket server?"
    case .badExtension(let reason): "the 101 answer's Sec-WebSocket-Extensions cannot be accepted: \(reason)"
    case .badSubprotocol(let reason): "the 101 answer's Sec-WebSocket-Protocol cannot be accepted: \(reason)"
    }
  }
}
