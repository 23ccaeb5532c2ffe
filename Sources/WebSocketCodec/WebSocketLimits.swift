/// Which end of the connection one is.
package enum WebSocketRole: Sendable {
  case client
  case server

  var peer: WebSocketRole { self == .client ? .server : .client }
}

/// Whether a message is UTF-8 text or anything (RFC 6455 §5.6).
package enum WebSocketMessageKind: Sendable {
  case text
  case binary
}

/// What a peer may make us hold. Memory grows with the bytes that arrive, never with what a header announces.
package struct WebSocketLimits: Hashable, Sendable {
  /// Bytes of one message, its fragments together, before and after inflation. 16 MiB, as aiohttp (4), Jetty (64 KiB to
  /// 16 MiB) and many exchanges' snapshots need. Against: a message without end.
  package var messageBytes = 16 << 20
  /// Frames of one message. Against: endless fragments that never reach `messageBytes`, being empty.
  package var fragments = 16_384
  /// Times that inflation may multiply a message, beyond `inflationFloor` bytes. DEFLATE reaches 1,032; real messages with
  /// a shared history some hundred. Against: a bomb repeated often, each below `messageBytes`.
  package var inflationRatio = 1024
  package var inflationFloor = 1 << 20

  package init() {}
}

/// What the peer did wrong, and the close code that says so (RFC 6455 §7.4.1).
package struct WebSocketProtocolError: Error, Hashable, Sendable, CustomStringConvertible {
  package let closeCode: UInt16
  package let reason: String

  package var description: String { "\(reason) (\(closeCode))" }

  static func protocolError(_ reason: String) -> WebSocketProtocolError {
    WebSocketProtocolError(closeCode: 1002, reason: reason)
  }
  static let notUTF8 = WebSocketProtocolError(closeCode: 1007, reason: "a text is not UTF-8")
  static func tooBig(_ reason: String) -> WebSocketProtocolError {
    WebSocketProtocolError(closeCode: 1009, reason: reason)
  }
}

/// One thing that arrived. Its payload stands in `WebSocketConnection.payload` until the next call.
package enum WebSocketEvent: Equatable, Sendable {
  case message(WebSocketMessageKind)
  case ping
  case pong
  /// nil: the frame had no code (which is reported as 1005, never sent). Nothing comes after it.
  case close(code: UInt16?, reason: String)
}
