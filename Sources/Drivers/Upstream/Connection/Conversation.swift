import ByteStreams
import UpstreamProtocol
import WebSocketCodec

/// The application protocol of one connection: the payload codec, and an `UpstreamProtocol`.
///
/// It only decodes and encodes messages; `ProtocolRunner` acts on them.
final class Conversation {
  var state: any UpstreamProtocol
  let capabilities: ProtocolCapabilities
  /// Decompresses messages. If the last `receive` reported an `unpackedKind`, `decoder.decompressed` is that message.
  private(set) var decoder: PayloadDecoder
  private let readsBinaryAsText: Bool
  /// Whether the log says that an acknowledgement cannot be created.
  var hasWarnedOfAcknowledgement = false

  /// Returns nil if the settings name no protocol above WebSocket, in which case messages are sent and passed on
  /// unchanged.
  init?(_ settings: PreparedSettings) {
    guard let prototype = settings.protocolPrototype else { return nil }
    state = prototype
    capabilities = prototype.capabilities
    readsBinaryAsText = settings.value.conventions.binary == .text
    decoder = PayloadDecoder(settings.value.conventions.codec, limit: settings.value.limits.messageBytes)
  }

  func can(_ capability: ProtocolCapabilities) -> Bool { capabilities.contains(capability) }

  /// The kind with which a message is passed on (`upstream.binary`).
  func kind(of payload: Span<UInt8>, _ kind: MessageKind) -> MessageKind {
    guard readsBinaryAsText, !kind.isText, UTF8StreamValidator.isValid(payload) else { return kind }
    return .text
  }

  /// The result of reading a message of the upstream.
  enum Reading {
    /// The meaning of the message. `unpackedKind`: the kind of the decompressed message (`decoder.decompressed`); nil
    /// if the message was not compressed.
    case event(ProtocolEvent, unpackedKind: MessageKind?, isMalformed: Bool)
    /// The decompressed message would exceed the limit.
    case tooLarge
  }

  /// Decodes and classifies one message.
  func receive(_ payload: Span<UInt8>, _ kind: MessageKind, _ memory: inout ProtocolMemory) -> Reading {
    switch kind.isText ? .notCompressed : decoder.decode(payload) {
    case .notCompressed:
      return .event(state.receive(payload, kind: kind, &memory), unpackedKind: nil, isMalformed: false)
    case .malformed:
      return .event(state.receive(payload, kind: kind, &memory), unpackedKind: nil, isMalformed: true)
    case .decompressed:
      let kind: MessageKind = UTF8StreamValidator.isValid(decoder.decompressed) ? .text : .binary
      // This use keeps the object alive until here. Without it, the compiler could release the object while its
      // property is still being used.
      defer { withExtendedLifetime(self) {} }
      let event = examine(decoder.decompressed, kind, &memory)
      return .event(event, unpackedKind: kind, isMalformed: false)
    case .tooLarge:
      return .tooLarge
    }
  }

  private func examine(_ payload: Span<UInt8>, _ kind: MessageKind, _ memory: inout ProtocolMemory) -> ProtocolEvent {
    state.receive(payload, kind: kind, &memory)
  }
}
