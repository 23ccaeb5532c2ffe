import ByteStreams
import Continuity
import JSONCodec

/// The meaning of Socket.IO's packets on one connection: a pure state machine, from the WebSocket upgrade to the end of
/// the connection.
///
/// It owns the state of the namespaces, and the packet whose attachments are being gathered. It also owns the ids of
/// acknowledgements that are expected from the server or owed to it, and the data for recovering the connection's
/// state.
package struct SocketIOConversation: Sendable {
  enum State: Equatable {
    case idle, connecting, connected, ended
  }

  struct Namespace {
    let name: [UInt8]
    var state = State.idle
    /// The data for recovery: from this connection, or, until the server has responded to CONNECT, from the previous
    /// connection.
    var recovery: Continuation?
  }

  private struct Gathering {
    let packet: SocketIOPacket
    let text: [UInt8]
    var attachments: [[UInt8]] = []
    var bytes: Int
  }

  package let version: EngineIOVersion
  package let limits: SocketIOLimits
  package private(set) var handshake: EngineIOHandshake?
  var namespaces: [Namespace]
  private var gathering: Gathering?
  /// Acknowledgements that the server is to send.
  private var expected: PendingAcknowledgements
  /// Acknowledgements that the server has requested and that have not been sent.
  private var owed: PendingAcknowledgements

  /// `recoveries`: the data of the previous connection for each namespace.
  package init(
    _ version: EngineIOVersion, namespaces: [String], recoveries: [Continuation?] = [], _ limits: SocketIOLimits
  ) {
    self.version = version
    self.limits = limits
    expected = PendingAcknowledgements(limit: limits.expectedAcknowledgements)
    owed = PendingAcknowledgements(limit: limits.owedAcknowledgements)
    self.namespaces = namespaces.enumerated().map { index, name in
      Namespace(name: Array(name.utf8), recovery: index < recoveries.count ? recoveries[index] : nil)
    }
  }

  /// The index of the namespace with this name, if it is configured.
  package func index(of name: Span<UInt8>) -> Int? {
    for index in namespaces.indices {
      let configured = namespaces[index].name
      if configured.span.equals(name) { return index }
    }
    return nil
  }

  package func name(of namespace: Int) -> [UInt8] { namespaces[namespace].name }

  package func isConnected(_ namespace: Int) -> Bool { namespaces[namespace].state == .connected }

  /// Sets the data of the previous connection for a namespace. Called before the first CONNECT.
  package mutating func setRecovery(_ recovery: Continuation?, of namespace: Int) {
    namespaces[namespace].recovery = recovery
  }

  /// The data that the next connection needs; nil if the server does not restore the state of this namespace.
  package func recovery(_ namespace: Int) -> Continuation? { namespaces[namespace].recovery }

  /// Bytes of the packet that is being gathered.
  package var gatheredBytes: Int { gathering?.bytes ?? 0 }

  // MARK: From the server

  /// Reads one WebSocket message. Text must be UTF-8. The ranges in the event refer to `message`, unless the event has
  /// its own text.
  package mutating func receive(
    _ message: Span<UInt8>, _ kind: MessageKind
  ) throws(SocketIOViolation) -> SocketIOEvent {
    let packet = try EngineIOPacket(message, kind, version)
    guard handshake != nil || packet.kind == .open else { throw .notOpened }
    switch packet.kind {
    case .open:
      guard handshake == nil else { throw .openedTwice }
      let opened = try EngineIOHandshake(message.extracting(packet.content))
      handshake = opened
      return .opened(opened)
    case .close: return .closed
    case .ping:
      guard packet.content.count <= SocketIOLimits.pingBytes else { throw .longPing }
      return .ping(packet.content)
    case .pong: return version == .three ? .pong : .ignored(.engine)
    case .upgrade, .noop: return .ignored(.engine)
    case .message:
      switch packet.encoding {
      case .text: return try receive(text: message, from: packet.content.lowerBound)
      case .binary: return try receive(attachment: [UInt8](copying: message.extracting(packet.content)))
      case .base64: return try receive(attachment: EngineIOPacket.decoded(base64: message.extracting(packet.content)))
      }
    }
  }

  private mutating func receive(text: Span<UInt8>, from start: Int) throws(SocketIOViolation) -> SocketIOEvent {
    guard gathering == nil else { throw .textAmongAttachments }
    let packet = try SocketIOPacket(text, from: start, limits)
    guard packet.attachments > 0 else { return complete(packet, text, nil, []) }
    guard text.count <= limits.messageBytes else { throw .tooLarge(limit: limits.messageBytes) }
    gathering = Gathering(packet: packet, text: [UInt8](copying: text), bytes: text.count)
    return .partial
  }

  private mutating func receive(attachment: [UInt8]) throws(SocketIOViolation) -> SocketIOEvent {
    guard var gathered = gathering else { throw .unannouncedAttachment }
    guard attachment.count <= limits.messageBytes &- gathered.bytes else {
      throw .tooLarge(limit: limits.messageBytes)
    }
    gathering = nil
    gathered.bytes &+= attachment.count
    gathered.attachments.append(attachment)
    guard gathered.attachments.count == gathered.packet.attachments else {
      gathering = gathered
      return .partial
    }
    return complete(gathered.packet, gathered.text.span, gathered.text, gathered.attachments)
  }

  /// `text`: the text of the packet. `kept` is the same text if it arrived in an earlier message, otherwise nil.
  private mutating func complete(
    _ packet: SocketIOPacket, _ text: Span<UInt8>, _ kept: [UInt8]?, _ attachments: [[UInt8]]
  ) -> SocketIOEvent {
    guard let namespace = namespace(packet, text) else {
      // A server of version 3 connects the default namespace without a request. A server that has connected another
      // namespace speaks version 4.
      let isUnasked = packet.kind == .connect && packet.namespace.isEmpty && version == .four
      guard isUnasked, !namespaces.isEmpty, !hasConnected, Self.member("sid", of: text.extracting(packet.data)) == nil
      else {
        return .ignored(.namespace)
      }
      return refusedVersion(0)
    }
    switch packet.kind {
    case .connect: return connected(namespace, text.extracting(packet.data))
    case .connectError: return failed(namespace, text.extracting(packet.data))
    case .disconnect:
      guard isConnected(namespace) || namespaces[namespace].state == .connecting else { return .ignored(.namespace) }
      namespaces[namespace].state = .ended
      return .disconnected(namespace: namespace)
    case .event, .binaryEvent:
      let isEarly = namespaces[namespace].state == .connecting
      guard isConnected(namespace) || isEarly, let elements = packet.elements, let name = elements.first else {
        return .ignored(.namespace)
      }
      if let id = packet.id { owed.insert(AcknowledgementID(namespace: namespace, id: id)) }
      // Applications send events while they decide about a CONNECT. Clients get these events after the server's
      // response.
      guard !isEarly else {
        let text = kept ?? [UInt8](copying: text)
        var early = content(packet, namespace, text, name: name, arguments: elements.rest, attachments)
        early.offset = Self.offset(packet, elements, text.span)
        return .early(early)
      }
      if namespaces[namespace].recovery != nil, let offset = Self.offset(packet, elements, text) {
        namespaces[namespace].recovery?.offset = offset
      }
      return .push(content(packet, namespace, kept, name: name, arguments: elements.rest, attachments))
    case .acknowledgement, .binaryAcknowledgement:
      guard let elements = packet.elements, let id = packet.id,
        expected.remove(AcknowledgementID(namespace: namespace, id: id))
      else { return .ignored(.acknowledgement) }
      return .acknowledged(content(packet, namespace, kept, name: 0..<0, arguments: elements.all, attachments))
    }
  }

  private func content(
    _ packet: SocketIOPacket, _ namespace: Int, _ text: [UInt8]?, name: Range<Int>, arguments: Range<Int>,
    _ attachments: [[UInt8]]
  ) -> SocketIOContent {
    SocketIOContent(
      namespace: namespace, id: packet.id, text: text, name: name, arguments: arguments, attachments: attachments,
      hasUnpairedSurrogates: packet.hasUnpairedSurrogates)
  }

  /// The configured namespace of a packet.
  private func namespace(_ packet: SocketIOPacket, _ text: Span<UInt8>) -> Int? {
    var name = text.extracting(packet.namespace)
    // In version 3, the name contains the parameters of a CONNECT, and some servers repeat them.
    if version == .three, let query = name.firstIndex(of: UInt8(ascii: "?")) { name = name.extracting(first: query) }
    for index in namespaces.indices {
      let configured = namespaces[index].name
      if name.isEmpty ? configured.span.equals("/") : configured.span.equals(name) { return index }
    }
    return nil
  }

  // MARK: Namespaces

  private var hasConnected: Bool { namespaces.contains { $0.state == .connected } }

  private mutating func connected(_ namespace: Int, _ data: Span<UInt8>) -> SocketIOEvent {
    let state = namespaces[namespace].state
    guard state == .idle || state == .connecting else { return .ignored(.repeated) }
    // A server of version 3 connects the default namespace without a request, even if version 4 is expected.
    guard version == .three || Self.member("sid", of: data) != nil else {
      return hasConnected ? .ignored(.namespace) : refusedVersion(namespace)
    }
    let name = namespaces[namespace].name
    guard state == .connecting || version == .three && name.span.equals("/") else {
      return .ignored(.namespace)
    }
    namespaces[namespace].state = .connected
    let before = namespaces[namespace].recovery
    let pid = version == .four ? Self.member("pid", of: data) : nil
    let isRecovered = pid != nil && before?.offset != nil && pid == before?.pid
    if !isRecovered { namespaces[namespace].recovery = pid.map { Continuation(pid: $0) } }
    return .connected(namespace: namespace, isRecovered: isRecovered)
  }

  private mutating func refusedVersion(_ namespace: Int) -> SocketIOEvent {
    namespaces[namespace].state = .ended
    return .refused(namespace: namespace, SocketIORefusal(reason: .wrongVersion, text: "", isCut: false))
  }

  private mutating func failed(_ namespace: Int, _ data: Span<UInt8>) -> SocketIOEvent {
    // In version 3, an application can send an error to a namespace that stays connected.
    guard version == .four || namespaces[namespace].state != .connected else { return .ignored(.repeated) }
    guard namespaces[namespace].state != .ended else { return .ignored(.repeated) }
    namespaces[namespace].state = .ended
    let text = data.isEmpty ? [] : EngineIORefusal.text(data)
    let limit = SocketIOLimits.refusalBytes
    let refusal = SocketIORefusal(
      reason: .byServer, text: String(decoding: text.prefix(limit), as: UTF8.self), isCut: text.count > limit)
    return .refused(namespace: namespace, refusal)
  }

  /// The content of a string in the object of a CONNECT; nil if there is no such string, or if it is longer than an
  /// identifier may be.
  private static func member(_ name: String, of data: Span<UInt8>) -> [UInt8]? {
    guard !data.isEmpty, let object = JSONObject(data),
      let member = object.members.last(where: { JSONString.equals(data.extracting($0.name), Array(name.utf8)) }),
      let content = JSONString.content(of: data.extracting(member.value)), !content.isEmpty,
      content.count <= SocketIOLimits.identifierBytes
    else { return nil }
    return content
  }

  /// The last argument of an event is its offset, if it is a string. The server adds no offset to an event that
  /// requests an acknowledgement.
  private static func offset(_ packet: SocketIOPacket, _ elements: ArrayElements, _ text: Span<UInt8>) -> [UInt8]? {
    guard packet.id == nil, elements.count > 1, let last = elements.last, last.count <= SocketIOLimits.identifierBytes
    else { return nil }
    return JSONString.content(of: text.extracting(last))
  }

  /// Called when an early event is passed on, so that its offset counts. The official server sends missed events before
  /// its response to CONNECT. Without their offsets, the next recovery would repeat these events.
  package mutating func keepOffset(of early: SocketIOContent) {
    guard let offset = early.offset else { return }
    namespaces[early.namespace].recovery?.offset = offset
  }

  // MARK: Acknowledgements

  /// Removes an acknowledgement that is owed. Returns whether it was owed.
  mutating func takeOwed(_ id: AcknowledgementID) -> Bool { owed.remove(id) }

  /// Records that an acknowledgement that the server has requested is being sent.
  package mutating func settle(_ id: UInt64, namespace: Int) {
    owed.remove(AcknowledgementID(namespace: namespace, id: id))
  }

  /// Records that an event with this id was sent, so that its acknowledgement is passed on.
  package mutating func expectAcknowledgement(_ id: UInt64, namespace: Int) {
    expected.insert(AcknowledgementID(namespace: namespace, id: id))
  }

  /// Removes and returns the ids of the acknowledgements that are still expected from a namespace, lowest first.
  package mutating func takeExpected(namespace: Int) -> [UInt64] {
    expected.removeAll(of: namespace)
  }
}
