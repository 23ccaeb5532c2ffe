import ByteStreams

/// Which end of the connection one is.
package enum WebSocketRole: Sendable {
  case client
  case server

  var peer: WebSocketRole { self == .client ? .server : .client }
}

/// One thing that arrived. Its payload stands in `WebSocketConnection.payload` until the next call.
package enum WebSocketEvent: Equatable, Sendable {
  case message(MessageKind)
  /// Its answer is owed now: `writeReplies` writes it.
  case ping
  case pong
  /// nil: the frame had no code (which is reported as 1005, never sent). Nothing comes after it.
  case close(code: UInt16?, reason: String)
}

/// How the peer's bytes ended: what is known when TCP (or TLS) says that there are no more.
package enum WebSocketEnding: Equatable, Sendable {
  /// After a close frame: the closing handshake was made (RFC 6455 §7.1.4).
  case clean
  /// Without a close frame, between messages: reported as 1006 (§7.1.5).
  case withoutClose
  /// Without a close frame, inside a frame or a message: reported as 1006.
  case truncated
  /// After a protocol error of the peer.
  case failed(WebSocketProtocolError)
}
