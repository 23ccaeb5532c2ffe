import ByteStreams
import UpstreamProtocol
import WebSocketCodec

/// The application protocol of one connection: the payload codec, and an `UpstreamProtocol`.
///
/// It only decodes and encodes messages; `ProtocolRunner` acts on them.
final class Conversation {
  var state: any UpstreamProtocol {
    _read { yield current }
    _modify {
      version &+= 1
      yield &current
    }
  }
  private var current: any UpstreamProtocol
  /// Incremented on every access that may change `state`.
  private(set) var version: UInt64 = 0
  let capabilities: ProtocolCapabilities
  /// Decompresses messages. If the last `receive` reported an `unpackedKind`, `decoder.decompressed` is that message.
  private(set) var decoder: PayloadDecoder
  private let form: PayloadForm
  /// The outcome of `decoder` for the next message of `receive`, if `isLarge` has decompressed the message.
  private var decoded: PayloadDecoder.Outcome?
  /// Whether the log says that an acknowledgement cannot be created.
  var hasWarnedOfAcknowledgement = false
  /// Whether a message of the upstream has ended the use of the captured values.
  var hasForgottenCaptures = false

  /// Returns nil if the settings name no protocol above WebSocket, in which case messages are sent and passed on
  /// unchanged.
  init?(_ settings: PreparedSettings) {
    guard let prototype = settings.protocolPrototype else { return nil }
    current = prototype
    capabilities = prototype.capabilities
    form = PayloadForm(settings.value)
    decoder = form.makeDecoder()
  }

  func can(_ capability: ProtocolCapabilities) -> Bool { capabilities.contains(capability) }

  /// The kind with which a message is passed on (`upstream.binary`).
  func kind(of payload: Span<UInt8>, _ kind: MessageKind) -> MessageKind { form.kind(of: payload, kind) }

  /// Whether another thread must process the next message. A small message may complete a large event, or be
  /// compressed. A compressed message is decompressed here as far as its size decides.
  func isLarge(_ payload: Span<UInt8>, _ kind: MessageKind) -> Bool {
    decoded = nil
    if payload.count >= LargeMessage.smallest { return true }
    if can(.events), current.incompleteBytes &+ payload.count >= LargeMessage.smallest { return true }
    guard form.isCompressed, !form.kind(of: payload, kind).isText else { return false }
    let outcome = decoder.decode(payload, ceiling: LargeMessage.smallest - 1)
    if outcome == .tooLarge { return true }
    decoded = outcome
    return false
  }

  // MARK: Large messages

  /// A copy of the conversation, with which another thread processes one message.
  struct Snapshot: Sendable {
    var state: any UpstreamProtocol
    let capabilities: ProtocolCapabilities
    fileprivate let form: PayloadForm
    fileprivate let version: UInt64

    /// Like `Conversation.receive`. Also returns the payload with which the message is passed on, and its kind.
    mutating func receive(
      _ payload: ByteString, _ kind: MessageKind, _ memory: inout ProtocolMemory
    ) -> (Reading, ByteString, MessageKind) {
      let kind = form.kind(of: payload.bytes, kind)
      var decoder = form.makeDecoder()
      switch kind.isText ? .notCompressed : decoder.decode(payload.bytes) {
      case .notCompressed:
        let event = state.receive(payload.bytes, kind: kind, &memory)
        return (.event(event, unpackedKind: nil, isMalformed: false), payload, kind)
      case .malformed:
        let event = state.receive(payload.bytes, kind: kind, &memory)
        return (.event(event, unpackedKind: nil, isMalformed: true), payload, kind)
      case .decompressed:
        let content = ByteString(copying: decoder.decompressed)
        let kind: MessageKind = UTF8StreamValidator.isValid(content.bytes) ? .text : .binary
        let event = state.receive(content.bytes, kind: kind, &memory)
        return (.event(event, unpackedKind: kind, isMalformed: false), content, kind)
      case .tooLarge:
        return (.tooLarge, payload, kind)
      }
    }
  }

  var snapshot: Snapshot { Snapshot(state: current, capabilities: capabilities, form: form, version: version) }

  /// Whether the state is still the state of `snapshot`, before it has received the message.
  func isCurrent(_ snapshot: Snapshot) -> Bool { snapshot.version == version }

  /// Continues with the state of `snapshot`.
  func adopt(_ snapshot: Snapshot) { state = snapshot.state }

  /// The result of reading a message of the upstream.
  enum Reading: Sendable {
    /// The meaning of the message. `unpackedKind`: the kind of the decompressed message (`decoder.decompressed`); nil
    /// if the message was not compressed.
    case event(ProtocolEvent, unpackedKind: MessageKind?, isMalformed: Bool)
    /// The decompressed message would exceed the limit.
    case tooLarge
  }

  /// Decodes and classifies one message.
  func receive(_ payload: Span<UInt8>, _ kind: MessageKind, _ memory: inout ProtocolMemory) -> Reading {
    let outcome = decoded ?? (kind.isText ? .notCompressed : decoder.decode(payload))
    decoded = nil
    switch outcome {
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

/// How the settings say that payloads are read.
private struct PayloadForm: Sendable {
  private let readsBinaryAsText: Bool
  private let codec: PayloadCodec
  private let limit: Int

  init(_ settings: UpstreamSettings) {
    readsBinaryAsText = settings.conventions.binary == .text
    codec = settings.conventions.codec
    limit = settings.limits.messageBytes
  }

  /// Whether binary messages may be compressed.
  var isCompressed: Bool { codec != .raw }

  func makeDecoder() -> PayloadDecoder { PayloadDecoder(codec, limit: limit) }

  func kind(of payload: Span<UInt8>, _ kind: MessageKind) -> MessageKind {
    guard readsBinaryAsText, !kind.isText, UTF8StreamValidator.isValid(payload) else { return kind }
    return .text
  }
}
