import ByteStreams

/// One of the two sides of a connection.
package enum WebSocketRole: Sendable {
  case client
  case server

  var peer: WebSocketRole { self == .client ? .server : .client }
}

/// A received message or control frame. Its payload is in `WebSocketConnection.payload` until the next call.
package enum WebSocketEvent: Equatable, Sendable {
  case message(MessageKind)
  /// A ping has arrived. Its pong is pending, and `writeReplies` writes it.
  case ping
  case pong
  /// `code` is nil if the frame had no code, which is reported as 1005. (1005 is never sent.) No events follow.
  case close(code: UInt16?, reason: String)
}

/// How the peer's input ended, as known when TCP or TLS reports its end.
package enum WebSocketEnding: Equatable, Sendable {
  /// After a close frame: the closing handshake is complete (RFC 6455 §7.1.4).
  case clean
  /// Between messages, without a close frame. Reported as 1006 (§7.1.5).
  case withoutClose
  /// Inside a frame or a message, without a close frame. Reported as 1006.
  case truncated
  /// After a protocol error by the peer.
  case failed(WebSocketProtocolError)
}
