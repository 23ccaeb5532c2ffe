import ByteStreams

/// The meaning of a WebSocket message of the server.
package enum SocketIOEvent: Equatable, Sendable {
  case opened(EngineIOHandshake)
  /// The server expects a pong with this content, which is a range of the message.
  case ping(Range<Int>)
  case pong
  /// The server has connected the gateway to a namespace. `isRecovered`: it has restored the state of the previous
  /// connection, so no event is missing.
  case connected(namespace: Int, isRecovered: Bool)
  case refused(namespace: Int, SocketIORefusal)
  /// An event of a namespace to which the gateway is connected.
  case push(SocketIOContent)
  /// An event of a namespace before the server has responded to the CONNECT packet. It must be kept until the response,
  /// and dropped if the namespace is refused.
  case early(SocketIOContent)
  /// The reply to an event that the gateway sent with an id.
  case acknowledged(SocketIOContent)
  /// The server has disconnected the gateway from a namespace.
  case disconnected(namespace: Int)
  /// Engine.IO ends the connection.
  case closed
  /// A packet whose attachments have not all arrived.
  case partial
  case ignored(SocketIOIgnored)
}

/// Why a packet is ignored. Each reason is counted.
package enum SocketIOIgnored: Hashable, Sendable {
  /// A packet of Engine.IO for another transport, or a pong without a pending ping.
  case engine
  /// A packet of a namespace that the gateway has not joined.
  case namespace
  /// An acknowledgement that is not expected.
  case acknowledgement
  /// A second CONNECT, or an error of a namespace that stays connected (version 3).
  case repeated
}

/// The refusal of a namespace.
package struct SocketIORefusal: Equatable, Sendable {
  package enum Reason: Equatable, Sendable {
    /// The server refuses with CONNECT_ERROR.
    case byServer
    /// A CONNECT without `sid`: the server speaks Engine.IO 3 and ignores the version in the URL.
    case wrongVersion
  }

  package let reason: Reason
  /// The beginning of the server's text.
  package let text: String
  package let isCut: Bool
}

/// An event or an acknowledgement with its attachments.
package struct SocketIOContent: Equatable, Sendable {
  package let namespace: Int
  /// The id of an acknowledgement, or the id of the acknowledgement that the server requests for its event.
  package let id: UInt64?
  /// The text of the packet, if it arrived in an earlier message than the last attachment; nil if the received message
  /// is the text.
  package let text: [UInt8]?
  /// The event's name: a string or a number; empty for an acknowledgement.
  package let name: Range<Int>
  /// JSON values with commas between them, or empty.
  package let arguments: Range<Int>
  package let attachments: [[UInt8]]
  package let hasUnpairedSurrogates: Bool
  /// The offset of an early event. When the event is passed on, it becomes the offset for recovery (`keepOffset`).
  package var offset: [UInt8]?
}
