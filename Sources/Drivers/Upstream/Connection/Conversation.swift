import ByteStreams
import Configuration
import Continuity
import SocketIO
import UpstreamProtocol
import WebSocketCodec

/// The application protocol of one connection: the payload codec, and an `UpstreamProtocol`.
///
/// It only decodes and encodes messages; `ProtocolRunner` acts on them.
final class Conversation {
  private var state: any UpstreamProtocol
  /// `decompressed` is the last decompressed message, if `receive` reported an `unpackedKind`.
  private(set) var decoder: PayloadDecoder
  let examinesMessages: Bool
  let encodesMessages: Bool
  let treatsAnyMessageAsHeartbeat: Bool

  /// nil if there is no protocol above WebSocket: messages are sent and passed on unchanged.
  init?(_ settings: SharedSettings, connection: UInt64) {
    guard let prototype = settings.protocolPrototype else { return nil }
    state = prototype
    state.setConnection(connection)
    decoder = PayloadDecoder(settings.value.conventions.codec, limit: settings.value.limits.messageBytes)
    examinesMessages = prototype.examinesMessages
    encodesMessages = prototype.encodesMessages
    treatsAnyMessageAsHeartbeat = prototype.treatsAnyMessageAsHeartbeat
  }

  /// The result of reading a message of the upstream.
  enum Reading {
    /// The message's meaning. `unpackedKind`: the kind of the decompressed message (`decoder.decompressed`); nil if it was not
    /// compressed.
    case event(ProtocolEvent, unpackedKind: MessageKind?, isMalformed: Bool)
    /// The decompressed message would exceed the limit.
    case tooLarge
  }

  func setSecrets(_ secrets: TemplateValues) { state.setSecrets(secrets) }

  var awaitedStep: Int? { state.awaitedStep }

  func prepareSetup(from step: Int, _ memory: ProtocolMemory, now: Int64) throws(SetupError) {
    try state.prepareSetup(from: step, memory, now: now)
  }

  func beginSetup(step: Int) -> [ProtocolFrame] { state.beginSetup(step: step) }

  func skipSetup(step: Int) { state.skipSetup(step: step) }

  func name(ofStep step: Int) -> String { state.name(ofStep: step) }

  func ping(_ counter: UInt64?) -> PingForm { state.ping(counter) }

  func takeNews() -> ProtocolNews? { state.takeNews() }

  func receiveHeld(_ memory: inout ProtocolMemory) -> ProtocolEvent? { state.receiveHeld(&memory) }

  var hasState: Bool { state.hasState }

  var continuations: [String: Continuation] { state.continuations }

  func saveState(in memory: inout ProtocolMemory) -> Bool { state.saveState(in: &memory) }

  func heartbeat(_ counter: UInt64, _ memory: ProtocolMemory, now: Int64) throws(TemplateError) -> SharedBytes? {
    try state.heartbeat(counter, memory, now: now)
  }

  func heartbeatReply(_ memory: ProtocolMemory, now: Int64) throws(TemplateError) -> SharedBytes? {
    try state.heartbeatReply(memory, now: now)
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
      // The compiler ends the access to a class's property early, unless the object is used after it.
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

  /// Called only if `encodesMessages`.
  func encode(
    _ payload: Span<UInt8>, _ kind: MessageKind, _ write: (Span<UInt8>, MessageKind) -> Void
  ) -> EncodingResult {
    state.encode(payload, kind: kind, write)
  }
}
