import ByteStreams
import Events
import SocketIO

/// Sends to a Socket.IO server: records of the outbox, envelopes of the configuration, and heartbeats.
extension SocketIOProtocol {
  /// Maximum number of pings of Engine.IO 3 that have no pong. Pings that confirm messages have a lower limit of their
  /// own.
  private static var pingLimit: Int { 1_024 }

  package mutating func encode(
    _ payload: Span<UInt8>, kind: MessageKind, isCall: Bool, _ write: (MessageParts, MessageKind) -> Void
  ) -> EncodingResult {
    guard EventRecord.isValid(payload) else { return .notConnected }
    let record = EventRecord(payload)
    guard let namespace = conversation.index(of: record.namespace), conversation.isConnected(namespace) else {
      return .notConnected
    }
    let limit = conversation.handshake?.maximumPayload ?? .max
    let prefix = EngineIOPacket.binaryPrefix(settings.version)
    for index in 0..<record.attachmentCount where record.attachment(index).count > limit - prefix.count {
      return .tooLarge
    }
    var head = ByteQueue(capacity: record.name.count + 64)
    switch record.kind {
    case .event, .rawEvent:
      conversation.writeEventHead(
        name: record.name, hasArguments: !record.arguments.isEmpty, attachments: record.attachmentCount,
        namespace: namespace, id: record.id == 0 ? nil : record.id, into: &head)
    case .acknowledgement:
      guard record.connection == connection else { return .notConnected }
      conversation.writeAcknowledgementHead(
        record.id, attachments: record.attachmentCount, namespace: namespace, into: &head)
    }
    let end: [1 of UInt8] = [SocketIOPacket.argumentsEnd]
    let packet = MessageParts(head: head.bytes, record.arguments, tail: end.span)
    guard packet.count <= limit else { return .tooLarge }
    if record.kind != .acknowledgement, record.id != 0 {
      conversation.expectAcknowledgement(record.id, namespace: namespace)
    }
    write(packet, .text)
    for index in 0..<record.attachmentCount {
      write(MessageParts(head: prefix.span, record.attachment(index)), .binary)
    }
    return .written
  }

  func parts(ofEnvelope text: Span<UInt8>) throws(TemplateError) -> EventParts {
    do throws(EventFormatError) {
      switch try EventEnvelope(text, attachmentLimit: settings.attachments) {
      case .event(let parts):
        guard conversation.index(of: parts.namespace.span) != nil else {
          throw EventFormatError("its namespace is not one of 'upstream.socketio.namespaces'")
        }
        return parts
      case .acknowledgement: throw EventFormatError("an acknowledgement cannot be configured: use 'event'")
      }
    } catch {
      throw .envelope(error.description)
    }
  }

  mutating func frames(ofEnvelope text: Span<UInt8>) throws(TemplateError) -> [ProtocolFrame] {
    frames(of: try parts(ofEnvelope: text).record).1
  }

  mutating func frames(of record: [UInt8]) -> (EncodingResult, [ProtocolFrame]) {
    var frames: [ProtocolFrame] = []
    let result = encode(record.span, kind: .text, isCall: false) { parts, kind in
      var payload = ByteQueue()
      parts.append(to: &payload)
      frames.append(ProtocolFrame(ByteString(copying: payload.bytes), kind))
    }
    return (result, frames)
  }

  // MARK: Heartbeats

  package mutating func heartbeat(
    _ counter: UInt64, _ memory: ProtocolMemory, now: Int64
  ) throws(TemplateError) -> ByteString? {
    guard let text = try own.heartbeat(counter, memory, now: now) else { return nil }
    let frames = try frames(ofEnvelope: text.bytes)
    guard frames.count <= 1 else { throw .envelope("a heartbeat has no attachments") }
    return frames.first?.payload
  }

  package mutating func heartbeatReply(_ memory: ProtocolMemory, now: Int64) throws(TemplateError) -> ByteString? {
    var output = ByteQueue()
    conversation.writePong(pingContent.span, into: &output)
    return ByteString(copying: output.bytes)
  }

  package mutating func ping(_ counter: UInt64?) -> StaticString? {
    guard pings.count < Self.pingLimit else { return nil }
    pings.append(counter)
    return "2"
  }
}
