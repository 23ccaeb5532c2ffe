import ByteStreams
import Continuity
import SocketIO

/// A Socket.IO server's messages: the target compares every packet with a simple parser of the grammar, and checks what
/// a conversation derives from the packets.
///
/// Input: a byte for the version and the limits, then the messages: a byte with the kind (bit 7: binary) and the
/// length, and the content. An open packet comes before them, unless bit 1 of the first byte is set.
enum SocketIOTarget {
  private static let namespaces = ["/", "/a"]

  static func run(_ input: Span<UInt8>) throws(Finding) {
    var reader = InputReader(input)
    let options = reader.byte()
    let version: EngineIOVersion = options & 1 == 0 ? .four : .three
    var limits = SocketIOLimits()
    limits.attachments = 3
    limits.messageBytes = 64
    limits.owedAcknowledgements = 4
    var talk = SocketIOConversation(version, namespaces: namespaces, recoveries: recoveries(options), limits)
    if options & 2 == 0 { open(&talk) }

    var rest = [UInt8](copying: reader.rest)[...]
    while let head = rest.popFirst() {
      var message = Array(rest.prefix(Int(head & 0x7F)))
      rest = rest.dropFirst(message.count)
      let kind: MessageKind = head & 0x80 == 0 ? .text : .binary
      // The WebSocket codec accepts only text in valid UTF-8.
      if kind.isText { message = Array(String(decoding: message, as: UTF8.self).utf8) }
      if kind.isText { try checkPacket(message, limits) }
      guard try receive(message, kind, &talk, limits) else { return }
    }
  }

  private static func recoveries(_ options: UInt8) -> [Continuation?] {
    options & 4 == 0 ? [] : [Continuation(pid: Array("p".utf8), offset: Array("o".utf8))]
  }

  private static func open(_ talk: inout SocketIOConversation) {
    let open = Array(#"0{"sid":"s","pingInterval":1000,"pingTimeout":1000}"#.utf8)
    _ = try? talk.receive(open.span, .text)
    var output = ByteQueue()
    for namespace in namespaces.indices { _ = talk.connect(namespace, into: &output) }
    talk.expectAcknowledgement(1, namespace: 0)
  }

  // MARK: Packets

  private static func checkPacket(_ message: [UInt8], _ limits: SocketIOLimits) throws(Finding) {
    let reference = ReferenceSocketIO(message, attachments: limits.attachments)
    let packet: SocketIOPacket
    do throws(SocketIOViolation) {
      packet = try SocketIOPacket(message.span, limits)
    } catch {
      try require(reference == nil, "refused, although it is a packet: \(error)")
      return
    }
    guard let reference else { throw Finding("accepted, although it is no packet") }
    try require(
      packet.kind.rawValue == reference.kind && packet.attachments == reference.attachments
        && packet.id == reference.id && Array(message[packet.namespace]) == reference.namespace
        && Array(message[packet.data]) == reference.data, "the packet is read as \(packet), not \(reference)")
    guard let elements = packet.elements else { return }
    try require(elements.count == reference.elements, "\(elements.count) elements instead of \(reference.elements)")

    // Writing the parts of an event results in the same event.
    guard packet.kind == .event, let first = elements.first,
      let name = ReferenceJSONTree(Array(message[first]))?.string
    else { return }
    let namespace = packet.namespace.isEmpty ? Array("/".utf8) : Array(message[packet.namespace])
    var output = ByteQueue()
    SocketIOPacket.writeEvent(
      name: name.span, arguments: Array(message[elements.rest]).span, attachments: 0, namespace: namespace.span,
      id: packet.id, into: &output)
    guard let written = ReferenceSocketIO(output.copyBytes(), attachments: 0) else {
      throw Finding("the written event is no packet: \(output.bytes.text())")
    }
    try require(
      written.id == packet.id && written.elements == elements.count, "the written event differs: \(output.bytes.text())"
    )
  }

  // MARK: Conversations

  /// Returns false after a violation.
  private static func receive(
    _ message: [UInt8], _ kind: MessageKind, _ talk: inout SocketIOConversation, _ limits: SocketIOLimits
  ) throws(Finding) -> Bool {
    let wasOpen = talk.handshake != nil
    let wasConnected = namespaces.indices.map { talk.isConnected($0) }
    let event: SocketIOEvent
    do throws(SocketIOViolation) {
      event = try talk.receive(message.span, kind)
    } catch {
      return false
    }
    try require(talk.gatheredBytes <= limits.messageBytes, "\(talk.gatheredBytes) bytes are gathered")
    switch event {
    case .opened: try require(!wasOpen, "opened twice")
    case .early(let content):
      try require(!wasConnected[content.namespace], "an early push of a namespace that is connected")
      try check(content, message, limits, keepsText: true)
    case .push(let content):
      try require(wasConnected[content.namespace], "a push of a namespace that is not connected")
      try check(content, message, limits)
      try require(content.name.count > 0, "a push has no name")
    case .acknowledged(let content):
      try check(content, message, limits)
      try require(content.id == 1 && content.namespace == 0, "an acknowledgement that nobody waits for")
    case .ping(let range): try require(range.count <= 125, "a ping of \(range.count) bytes")
    case .connected(let namespace, let isRecovered):
      try require(!wasConnected[namespace] && talk.isConnected(namespace), "connected twice")
      try require(!isRecovered || talk.recovery(namespace)?.pid == Array("p".utf8), "another state is recovered")
    case .refused(_, let refusal):
      try require(refusal.text.unicodeScalars.count <= 256, "the text of a refusal is not cut")
    case .disconnected(let namespace): try require(!talk.isConnected(namespace), "connected after the end")
    case .pong, .closed, .partial, .ignored: break
    }
    return true
  }

  private static func check(
    _ content: SocketIOContent, _ message: [UInt8], _ limits: SocketIOLimits, keepsText: Bool = false
  ) throws(Finding) {
    let text = content.text ?? message
    let array = Array("[".utf8) + text[content.arguments] + Array("]".utf8)
    var reference = ReferenceJSON(array, maximumDepth: 129)
    try require(reference.document(), "the arguments are no JSON: \(String(decoding: array, as: UTF8.self))")
    try require(content.attachments.count <= limits.attachments, "\(content.attachments.count) attachments")
    try require(keepsText || (content.text == nil) == content.attachments.isEmpty, "a text is kept without attachments")
  }
}
