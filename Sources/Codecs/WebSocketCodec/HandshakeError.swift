import HTTPCodec

/// Why a server's answer to the opening request makes no WebSocket (RFC 6455 §4.1).
package enum HandshakeError: Error, Equatable, Sendable, CustomStringConvertible {
  /// It is not HTTP, or not within the limits.
  case notHTTP(HTTPProtocolError)
  /// The connection ended before the answer did.
  case endOfInput
  /// More than so many interim answers, and no other.
  case tooManyInterimAnswers(limit: Int)
  /// HTTP/1.0 has no upgrade (RFC 9110 §7.8).
  case notHTTP11
  /// `Upgrade` does not say `websocket`, and that alone.
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
    case .endOfInput: "the connection ended before the opening request was answered"
    case .tooManyInterimAnswers(let limit): "more than \(limit) interim answers came to the opening request"
    case .notHTTP11: "the 101 answer is HTTP/1.0, which has no upgrade; it must be HTTP/1.1"
    case .noUpgrade: "the 101 answer does not say 'Upgrade: websocket'"
    case .noConnectionUpgrade: "the 101 answer does not say 'Connection: Upgrade'"
    case .wrongAccept: "the 101 answer's Sec-WebSocket-Accept does not match our key; is this a WebSocket server?"
    case .badExtension(let reason): "the 101 answer's Sec-WebSocket-Extensions cannot be accepted: \(reason)"
    case .badSubprotocol(let reason): "the 101 answer's Sec-WebSocket-Protocol cannot be accepted: \(reason)"
    }
  }
}
