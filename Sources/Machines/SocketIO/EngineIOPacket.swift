import ByteStreams

/// The revision of the Engine.IO protocol, which also decides the revision of Socket.IO above it. It is configured,
/// since servers refuse the wrong version.
package enum EngineIOVersion: Int, CaseIterable, Sendable {
  /// Socket.IO 1 and 2 (Socket.IO protocol 4).
  case three = 3
  /// Socket.IO 3 and 4 (Socket.IO protocol 5).
  case four = 4
}

/// One packet of Engine.IO: a WebSocket message.
package struct EngineIOPacket: Equatable, Sendable {
  package enum Kind: UInt8, Sendable {
    case open, close, ping, pong, message, upgrade, noop
  }

  package enum Encoding: Sendable {
    case text
    case binary
    /// Binary data as base64 text. Servers send it to clients that do not announce support for binary messages.
    case base64
  }

  package let kind: Kind
  /// Only a `message` can have an encoding other than text.
  package let encoding: Encoding
  /// The range of the content in the WebSocket message.
  package let content: Range<Int>

  /// Parses a WebSocket message.
  package init(
    _ message: Span<UInt8>, _ messageKind: MessageKind, _ version: EngineIOVersion
  ) throws(SocketIOViolation) {
    if messageKind.isText {
      try self.init(text: message, version)
    } else {
      try self.init(binary: message, version)
    }
  }

  private init(text: Span<UInt8>, _ version: EngineIOVersion) throws(SocketIOViolation) {
    guard !text.isEmpty else { throw .unknownEnginePacket }
    if text[0] == UInt8(ascii: "b") {
      var start = 1
      // In version 3, the type of the packet follows the `b`.
      if version == .three {
        guard text.count > 1, text[1] == UInt8(ascii: "4") else { throw .unknownEnginePacket }
        start = 2
      }
      kind = .message
      encoding = .base64
      content = start..<text.count
      return
    }
    // A byte below "0" wraps around to a number that is not a kind.
    guard let kind = Kind(rawValue: text[0] &- 0x30) else { throw .unknownEnginePacket }
    self.kind = kind
    encoding = .text
    content = 1..<text.count
  }

  private init(binary: Span<UInt8>, _ version: EngineIOVersion) throws(SocketIOViolation) {
    var start = 0
    // In version 3, the message begins with the type of the packet, as a number and not as a digit.
    if version == .three {
      guard !binary.isEmpty, binary[0] == Kind.message.rawValue else { throw .unknownEnginePacket }
      start = 1
    }
    kind = .message
    encoding = .binary
    content = start..<binary.count
  }

  /// The prefix of a binary message.
  package static func binaryPrefix(_ version: EngineIOVersion) -> [UInt8] {
    version == .three ? [Kind.message.rawValue] : []
  }

  /// Writes a ping, a pong or a close.
  package static func write(_ kind: Kind, content: Span<UInt8> = Span(), into output: inout ByteQueue) {
    output.append(kind.rawValue &+ 0x30)
    output.append(content)
  }
}

extension EngineIOPacket {
  /// The bytes that base64 text encodes.
  static func decoded(base64 text: Span<UInt8>) throws(SocketIOViolation) -> [UInt8] {
    guard let bytes = Base64.decode(text) else { throw .invalidBase64 }
    return bytes
  }
}
