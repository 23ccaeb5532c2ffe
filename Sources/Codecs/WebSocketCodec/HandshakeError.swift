import HTTPCodec

/// Why the response to the opening handshake does not establish a WebSocket connection (RFC 6455 §4.1).
package enum HandshakeError: Error, Equatable, Sendable, CustomStringConvertible {
  /// It is not valid HTTP, or exceeds a limit.
  case notHTTP(HTTPProtocolError)
  /// The connection ended before the response was complete.
  case endOfInput
  /// More interim responses than the limit, and no final one.
  case tooManyInterimResponses(limit: Int)
  /// HTTP/1.0 has no upgrade (RFC 9110 §7.8).
  case notHTTP11
  /// The value of `Upgrade` is not exactly `websocket`.
  case noUpgrade
  /// `Connection` does not list `Upgrade`.
  case noConnectionUpgrade
  /// `Sec-WebSocket-Accept` is absent or does not match the key: the response is from a cache, or from a server without WebSocket.
  case wrongAccept
  /// An extension that was not offered, or parameters that are invalid or were not offered.
  case badExtension(String)
  /// A subprotocol that was not offered, or more than one.
  case badSubprotocol(String)

  package var description: String {
    switch self {
    case .notHTTP(let error): "the answer to the opening request is not valid HTTP: \(error)"
    case .endOfInput: "the connection ended before the opening request was answered"
    case .tooManyInterimResponses(let limit): "more than \(limit) interim answers came to the opening request"
    case .notHTTP11: "the 101 answer is HTTP/1.0, which has no upgrade; it must be HTTP/1.1"
    case .noUpgrade: "the 101 answer does not say 'Upgrade: websocket'"
    case .noConnectionUpgrade: "the 101 answer does not say 'Connection: Upgrade'"
    case .wrongAccept: "the 101 answer's Sec-WebSocket-Accept does not match our key; is this a WebSocket server?"
    case .badExtension(let reason): "the 101 answer's Sec-WebSocket-Extensions cannot be accepted: \(reason)"
    case .badSubprotocol(let reason): "the 101 answer's Sec-WebSocket-Protocol cannot be accepted: \(reason)"
    }
  }
}
