import ByteStreams

extension WebSocketConnection {
  /// Appends one message in frames of at most `fragmentBytes` payload bytes, compressed if agreed and worthwhile.
  ///
  /// Pending pongs are written before the message. A ping requires a pong as soon as is practical (§5.5.3), and a pong
  /// behind a message of megabytes may miss the peer's timeout.
  ///
  /// - Parameter number: the number of a message that may have been compressed ahead.
  package mutating func sendMessage(
    _ kind: MessageKind, _ payload: Span<UInt8>, number: UInt64? = nil, fragmentBytes: Int = .max,
    using generator: inout some RandomNumberGenerator, into output: inout ByteQueue
  ) {
    precondition(!hasSentClose, "a message was sent after the close frame")
    precondition(fragmentBytes > 0, "a fragment must have at least one byte")
    writePongs(using: &generator, into: &output)
    let opcode: Opcode = kind.isText ? .text : .binary
    guard compression.isWorthwhile(payload.count, number) else {
      return Self.writeMessage(
        opcode, payload, isCompressed: false, fragmentBytes, from: role, using: &generator, into: &output)
    }
    if compression.compress(payload) {
      Self.writeMessage(
        opcode, compression.compressed, isCompressed: true, fragmentBytes, from: role, using: &generator, into: &output)
    } else {
      Self.writeMessage(
        opcode, payload, isCompressed: false, fragmentBytes, from: role, using: &generator, into: &output)
    }
    compression.endOutboundMessage()
  }

  /// Appends one message in one frame. Its parts are copied together only if it is compressed.
  package mutating func sendMessage(
    _ kind: MessageKind, _ parts: borrowing MessageParts, using generator: inout some RandomNumberGenerator,
    into output: inout ByteQueue
  ) {
    guard !compression.isWorthwhile(parts.count, nil) else {
      var payload = ByteQueue()
      parts.append(to: &payload)
      sendMessage(kind, payload.bytes, using: &generator, into: &output)
      return
    }
    precondition(!hasSentClose, "a message was sent after the close frame")
    writePongs(using: &generator, into: &output)
    let key = role == .client ? MaskingKey(using: &generator) : nil
    output.reserve(parts.count &+ FrameHeader.maximumLength)
    FrameHeader(
      isFinal: true, isCompressed: false, opcode: kind.isText ? .text : .binary, maskingKey: key,
      payloadLength: parts.count
    ).write(into: &output)
    guard let key else { return parts.append(to: &output) }
    key.append(parts.head, to: &output)
    key.advanced(by: parts.head.count).append(parts.content, to: &output)
    key.advanced(by: parts.head.count &+ parts.content.count).append(parts.tail, to: &output)
  }

  /// Appends a ping. `payload` has at most 125 bytes. Does nothing if the close frame was sent or an error has
  /// occurred.
  package mutating func sendPing(
    _ payload: Span<UInt8>, using generator: inout some RandomNumberGenerator, into output: inout ByteQueue
  ) {
    guard canSend else { return }
    Self.writeFrame(.ping, payload, from: role, using: &generator, into: &output)
  }

  /// Appends an unsolicited pong (§5.5.3) of at most 125 bytes. Does nothing if `canSend` is false. `writeReplies`
  /// responds to pings.
  package mutating func sendPong(
    _ payload: Span<UInt8>, using generator: inout some RandomNumberGenerator, into output: inout ByteQueue
  ) {
    guard canSend else { return }
    Self.writeFrame(.pong, payload, from: role, using: &generator, into: &output)
  }

  /// Appends a close frame, which starts or completes the closing handshake. No frame may be sent after the close
  /// frame, and further calls have no effect. `code` must be `CloseFrame.isSendable`. `reason` is cut to 123 bytes.
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

  /// Resets the compression history. Must be called if messages that were written will not be sent, since later
  /// messages must not refer to them.
  package mutating func resetCompressionHistory() { compression.resetHistory() }

  /// The size of the largest message that is compressed when it is sent. A larger message is sent uncompressed, unless
  /// it was compressed ahead.
  package var largestCompressedAtOnce: Int { compression.largestAtOnce }

  /// The number of the message that is compressed ahead, and whether all of it has been compressed.
  package var messageAhead: (number: UInt64, isComplete: Bool)? { compression.messageAhead }

  /// Compresses at most `size` more bytes of the message with this number. Messages that are sent before the
  /// compression of this message is complete are not compressed.
  package mutating func compressAhead(_ payload: Span<UInt8>, number: UInt64, atMost size: Int) {
    compression.compressAhead(payload, number, atMost: size)
  }

  /// Whether `writeReplies` would write anything.
  package var hasPendingReplies: Bool { !replies.isEmpty }

  /// Appends the pending replies: the pongs in the order of their pings, followed by the close frame that responds to
  /// the peer's close frame or reports the peer's error.
  ///
  /// A driver whose output is blocked should not call this function, so that pongs above the limit are replaced by the
  /// newest pong.
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

  /// Appends the pending pongs, but no close frame. It is for a driver that manages the closing handshake itself.
  package mutating func writePongs(
    using generator: inout some RandomNumberGenerator, into output: inout ByteQueue
  ) {
    let role = role
    while replies.writeOldestPong({ Self.writeFrame(.pong, $0, from: role, using: &generator, into: &output) }) {}
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
    precondition(payload.count <= 125 || !opcode.isControl, "a control frame has at most 125 bytes")
    // §5.3: a fresh, unpredictable key for every frame.
    let key = role == .client ? MaskingKey(using: &generator) : nil
    output.reserve(payload.count &+ FrameHeader.maximumLength)
    FrameHeader(
      isFinal: isFinal, isCompressed: isCompressed, opcode: opcode, maskingKey: key, payloadLength: payload.count
    ).write(into: &output)
    if let key { key.append(payload, to: &output) } else { output.append(payload) }
  }
}
