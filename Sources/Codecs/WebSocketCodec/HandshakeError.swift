import ByteStreams
import HTTPCodec

/// Why the response to the opening handshake does not establish a WebSocket connection (RFC 6455 §4.1).
package enum HandshakeError: Error, Equatable, Sendable, CustomStringConvertible {
  /// The response is not valid HTTP, or exceeds a limit.
  case notHTTP(HTTPProtocolError)
  /// The connection ended before the response was complete.
  case endOfInput
  /// More interim responses than the limit, and no final response.
  case tooManyInterimResponses(limit: Int)
  /// HTTP/1.0 has no upgrade (RFC 9110 §7.8).
  case notHTTP11
  /// The value of `Upgrade` is not exactly `websocket`.
  case noUpgrade
  /// `Connection` does not list `Upgrade`.
  case noConnectionUpgrade
  /// `Sec-WebSocket-Accept` is absent or does not match the key: the response is from a cache, or from a server without
  /// WebSocket.
  case wrongAccept
  /// An extension that was not offered, or parameters that are invalid or were not offered.
  case badExtension(String)
  /// A subprotocol that was not offered, or more than one.
  case badSubprotocol(String)

  package var description: String { report.description }

  package var report: ReportText {
    switch self {
    case .notHTTP(let error): "the response to the opening handshake is not valid HTTP: \(quoted: error.description)"
    case .endOfInput: "the connection ended before the response to the opening handshake was complete"
    case .tooManyInterimResponses(let limit):
      "more than \(limit) interim responses preceded the response to the opening handshake"
    case .notHTTP11: "the 101 response is HTTP/1.0, which has no upgrade; it must be HTTP/1.1"
    case .noUpgrade: "the 101 response has no 'Upgrade: websocket'"
    case .noConnectionUpgrade: "the 101 response has no 'Connection: Upgrade'"
    case .wrongAccept:
      "the Sec-WebSocket-Accept of the 101 response does not match our key; is this a WebSocket server?"
    case .badExtension(let reason):
      "the Sec-WebSocket-Extensions of the 101 response is not acceptable: \(quoted: reason)"
    case .badSubprotocol(let reason):
      "the Sec-WebSocket-Protocol of the 101 response is not acceptable: \(quoted: reason)"
    }
  }
}
