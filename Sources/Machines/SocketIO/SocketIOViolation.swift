/// A violation of Engine.IO or Socket.IO by the server. The connection is closed with 1002.
///
/// The descriptions contain nothing that the server sent except numbers.
package enum SocketIOViolation: Error, Hashable, Sendable, CustomStringConvertible {
  case unknownEnginePacket
  case notOpened
  case openedTwice
  case invalidHandshake(String)
  case longPing
  case invalidBase64
  case unknownPacket
  case invalidAttachmentCount
  case tooManyAttachments(limit: Int)
  case longID
  case missingID
  case invalidJSON(offset: Int)
  case invalidPayload
  case invalidPlaceholder
  case textAmongAttachments
  case unannouncedAttachment
  case tooLarge(limit: Int)

  package var description: String {
    switch self {
    case .unknownEnginePacket:
      "a message is not an Engine.IO packet of the configured version; is this a Socket.IO server?"
    case .notOpened: "a packet arrived before Engine.IO's open packet; is this a Socket.IO server?"
    case .openedTwice: "a second open packet of Engine.IO"
    case .invalidHandshake(let reason): "the open packet of Engine.IO is not valid: \(reason)"
    case .longPing: "a ping of Engine.IO has more than \(SocketIOLimits.pingBytes) bytes"
    case .invalidBase64: "a packet that begins with 'b' is not base64"
    case .unknownPacket: "the type of a Socket.IO packet is not one of 0 to 6"
    case .invalidAttachmentCount: "the number of attachments of a binary packet is not a number followed by '-'"
    case .tooManyAttachments(let limit):
      "a packet has more than \(limit) attachments ('upstream.socketio.attachments')"
    case .longID: "the id of a packet has more than 19 digits"
    case .missingID: "an acknowledgement has no id"
    case .invalidJSON(let offset): "a packet has no valid JSON after byte \(offset)"
    case .invalidPayload:
      "the payload of a packet does not fit its type; an event is an array that begins with its name"
    case .invalidPlaceholder: "a placeholder of a binary packet does not have the number of an attachment"
    case .textAmongAttachments: "a packet arrived before all attachments of the previous packet"
    case .unannouncedAttachment: "a binary message that no packet announced"
    case .tooLarge(let limit):
      "a packet and its attachments are larger than \(limit) bytes ('upstream.message_bytes')"
    }
  }
}
