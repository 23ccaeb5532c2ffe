import ByteStreams

extension WebSocketConnection {
  /// Appends one message, compressed where that was agreed on and is worth it, in frames of at most `fragmentBytes`.
  ///
  /// Pongs that are owed go first: a ping is answered as soon as is practical (§5.5.3), and an answer behind megabytes of message
  /// may miss its deadline.
  package mutating func sendMessage(
    _ kind: MessageKind, _ payload: Span<UInt8>, fragmentBytes: Int = .max,
    using generator: inout some RandomNumberGenerator, into output: inout ByteQueue
  ) {
    precondition(!hasSentClose, "a message was sent after the close frame")
    precondition(fragmentBytes > 0, "a fragment without bytes brings no message to its end")
    writePongs(using: &generator, into: &output)
    let opcode: Opcode = kind.isText ? .text : .binary
    if compression.isWorthwhile(payload.count), compression.compress(payload) {
      Self.writeMessage(
        opcode, compression.compressed, isCompressed: true, fragmentBytes, from: role, using: &generator, into: &output)
    } else {
      Self.writeMessage(
        opcode, payload, isCompressed: false, fragmentBytes, from: role, using: &generator, into: &output)
    }
    compression.endOutboundMessage()
  }

  /// `payload`: at most 125 bytes. Nothing once the close frame is sent.
  package mutating func sendPing(
    _ payload: Span<UInt8>, using generator: inout some RandomNumberGenerator, into output: inout ByteQueue
  ) {
    guard canSend else { return }
    Self.writeFrame(.ping, payload, from: role, using: &generator, into: &output)
  }

  /// A pong that nobody asked for (§5.5.3): the answers to pings are written by `writeReplies`. At most 125 bytes.
  package mutating func sendPong(
    _ payload: Span<UInt8>, using generator: inout some RandomNumberGenerator, into output: inout ByteQueue
  ) {
    guard canSend else { return }
    Self.writeFrame(.pong, payload, from: role, using: &generator, into: &output)
  }

  /// Begins or answers the closing handshake; nothing may follow. Again: nothing. `code`: one that may stand in a frame
  /// (`CloseFrame.isSendable`); `reason` is cut at 123 bytes.
  package mutating func sendClose(
    code: UInt16?, reason: String = "", using generator: inout some RandomNumberGenerator, into output: inout ByteQueue
  ) {
    guard !hasSentClose else { return }
    hasSentClose = true
    replies.close = nil
    replies.removePongs()
    var payload = ByteQueue()
    if let code { CloseFrame.write(code: code, reason: reason, into: &payload) }
    Self.writeFrame(.close, payload.bytes, from: role, using: &generator, into: &output)
  }

  /// The messages written last will not be sent: what follows is compressed without reference to anything before it.
  package mutating func forgetSentMessages() { compression.forgetSentMessages() }

  /// Whether `writeReplies` has something to write.
  package var owesReplies: Bool { !replies.isEmpty }

  /// Appends what is owed to the peer: pongs in the order of their pings, and then the close frame that answers its own or tells
  /// it of its error.
  ///
  /// A driver whose output is not being read leaves this uncalled: then only the newest ping stays to be answered.
  package mutating func writeReplies(
    using generator: inout some RandomNumberGenerator, into output: inout ByteQueue
  ) {
    writePongs(using: &generator, into: &output)
    switch replies.close {
    case .none: return
    case .empty: sendClose(code: nil, using: &generator, into: &output)
    case .code(let code): sendClose(code: code, using: &generator, into: &output)
    }
  }

  /// Appends the pongs that are owed, for a driver that decides itself about the closing handshake.
  package mutating func writePongs(
    using generator: inout some RandomNumberGenerator, into output: inout ByteQueue
  ) {
    let role = role
    while replies.payPong({ Self.writeFrame(.pong, $0, from: role, using: &generator, into: &output) }) {}
  }

  private static func writeMessage(
    _ opcode: Opcode, _ payload: Span<UInt8>, isCompressed: Bool, _ fragmentBytes: Int, from role: WebSocketRole,
    using generator: inout some RandomNumberGenerator, into output: inout ByteQueue
  ) {
    var start = 0
    while payload.count &- start > fragmentBytes {
      writeFrame(
        start == 0 ? opcode : .continuation, payload.extracting(start..<start &+ fragmentBytes), isFinal: false,
        isCompressed: isCompressed && start == 0, from: role, using: &generator, into: &output)
      start &+= fragmentBytes
    }
    writeFrame(
      start == 0 ? opcode : .continuation, payload.extracting(start..<payload.count),
      isCompressed: isCompressed && start == 0, from: role, using: &generator, into: &output)
  }

  private static func writeFrame(
    _ opcode: Opcode, _ payload: Span<UInt8>, isFinal: Bool = true, isCompressed: Bool = false,
    from role: WebSocketRole, using generator: inout some RandomNumberGenerator, into output: inout ByteQueue
  ) {
    precondition(payload.count <= 125 || !opcode.isControl, "a control frame takes at most 125 bytes")
    // §5.3: a fresh key for every frame, which a peer cannot foresee.
    let key = role == .client ? MaskingKey(using: &generator) : nil
    output.reserve(payload.count &+ FrameHeader.maximumLength)
    FrameHeader(
      isFinal: isFinal, isCompressed: isCompressed, opcode: opcode, maskingKey: key, payloadLength: payload.count
    ).write(into: &output)
    if let key { key.append(payload, to: &output) } else { output.append(payload) }
  }
}
