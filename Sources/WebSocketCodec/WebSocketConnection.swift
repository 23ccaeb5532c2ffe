import ByteStreams
import Deflate

/// The frames of one WebSocket connection after its handshake, in both directions, without a socket (RFC 6455, RFC 7692).
///
/// Push bytes in with `receive`, pull events with `nextEvent()`; nil means more bytes, please. After an error the connection
/// is over: send a close frame with the error's code, if none was sent, and drop the rest.
package struct WebSocketConnection: ~Copyable {
  package let role: WebSocketRole
  package let limits: WebSocketLimits
  private var input = ByteQueue()
  private var compression: MessageCompression?

  /// The frame whose payload is arriving.
  private var frame: FrameHeader?
  private var frameReceived = 0

  /// The message that is being put together.
  private var message = ByteQueue()
  private var messageKind: WebSocketMessageKind?
  private var isMessageCompressed = false
  private var fragments = 0
  private var compressedBytes = 0
  private var validator = UTF8StreamValidator()
  private var validated = 0

  private var control = ByteQueue()
  private var lastPayload = PayloadPlace.none

  package private(set) var hasSentClose = false
  package private(set) var hasReceivedClose = false

  private enum PayloadPlace {
    case none
    /// The first so many bytes of the input: a message that came in one frame, uncompressed, is never copied.
    case input(Int)
    case message
    case control
  }

  package init(
    role: WebSocketRole, limits: WebSocketLimits = WebSocketLimits(), compression: MessageCompression.Settings? = nil
  ) {
    self.role = role
    self.limits = limits
    self.compression = compression.map { MessageCompression($0) }
  }

  // MARK: Receiving

  package mutating func receive(_ bytes: Span<UInt8>) {
    // After the close frame, whatever comes is not looked at (§1.4).
    if !hasReceivedClose { input.append(bytes) }
  }

  /// Lets a driver read from its socket straight into the input.
  package mutating func receive(_ fill: (inout ByteQueue) -> Void) { fill(&input) }

  /// Payload of the event that `nextEvent()` returned last.
  package var payload: Span<UInt8> {
    @_lifetime(borrow self)
    get {
      switch lastPayload {
      case .none: return Span()
      case .input(let count):
        let bytes = input.bytes.extracting(first: count)
        return unsafe _overrideLifetime(bytes, borrowing: self)
      case .message: return unsafe _overrideLifetime(message.bytes, borrowing: self)
      case .control: return unsafe _overrideLifetime(control.bytes, borrowing: self)
      }
    }
  }

  /// Bytes held: what is unread, and the message in the making.
  package var bufferedBytes: Int { input.count + message.count }

  package mutating func nextEvent() throws(WebSocketProtocolError) -> WebSocketEvent? {
    releaseLastPayload()
    while !hasReceivedClose {
      if frame == nil {
        guard try beginFrame() else { return nil }
      }
      guard let header = frame else { return nil }
      let event = header.opcode.isControl ? try readControl(header) : try readData(header)
      if let event { return event }
      if frame != nil { return nil }
    }
    return nil
  }

  /// Gives back what an idle connection need not hold.
  package mutating func releaseStorageIfIdle() {
    if input.isEmpty { input.releaseStorage() }
    if messageKind == nil, case .none = lastPayload { message.releaseStorage() }
  }

  private mutating func releaseLastPayload() {
    switch lastPayload {
    case .none: return
    case .input(let count): input.consume(count)
    case .message:
      if message.allocatedBytes > Self.messageStorageKept { message.releaseStorage() } else { message.removeAll() }
    case .control: control.removeAll()
    }
    lastPayload = .none
  }

  /// A message buffer larger than this is given back after the message.
  private static var messageStorageKept: Int { 64 * 1024 }

  private mutating func beginFrame() throws(WebSocketProtocolError) -> Bool {
    guard
      let (header, length) = try FrameHeader.read(
        input.bytes, from: role.peer, allowsCompression: compression != nil)
    else { return false }
    if !header.opcode.isControl { try admit(header) }
    input.consume(length)
    frame = header
    frameReceived = 0
    return true
  }

  /// Rules of a data frame that its head alone can break (§5.4), before a byte of its payload is kept.
  private mutating func admit(_ header: FrameHeader) throws(WebSocketProtocolError) {
    switch header.opcode {
    case .continuation:
      guard messageKind != nil else { throw .protocolError("a continuation frame continues nothing") }
    case .text, .binary:
      guard messageKind == nil else { throw .protocolError("a new message begins inside a fragmented one") }
      messageKind = header.opcode == .text ? .text : .binary
      isMessageCompressed = header.isCompressed
      fragments = 0
      compressedBytes = 0
      validated = 0
      validator = UTF8StreamValidator()
    case .close, .ping, .pong:
      preconditionFailure("a control frame is no data frame")
    }
    fragments += 1
    guard fragments <= limits.fragments else { throw .tooBig("a message has more than \(limits.fragments) fragments") }
    let announced = isMessageCompressed ? compressedBytes : message.count
    guard header.payloadLength <= limits.messageBytes - announced else {
      throw .tooBig("a message has more than \(limits.messageBytes) bytes")
    }
  }

  private mutating func readControl(_ header: FrameHeader) throws(WebSocketProtocolError) -> WebSocketEvent? {
    guard input.count >= header.payloadLength else { return nil }
    control.removeAll()
    Self.transfer(header.payloadLength, of: input, unmaskedBy: header.maskingKey, to: &control)
    input.consume(header.payloadLength)
    frame = nil
    lastPayload = .control
    switch header.opcode {
    case .ping: return .ping
    case .pong: return .pong
    case .close:
      hasReceivedClose = true
      input.releaseStorage()
      return try CloseFrame.read(control.bytes)
    case .continuation, .text, .binary: preconditionFailure("a data frame is no control frame")
    }
  }

  private mutating func readData(_ header: FrameHeader) throws(WebSocketProtocolError) -> WebSocketEvent? {
    guard let kind = messageKind else { preconditionFailure("a data frame outside a message") }
    let isWholeMessage = header.isFinal && fragments == 1 && !isMessageCompressed && header.maskingKey == nil
    if isWholeMessage, frameReceived == 0, input.count >= header.payloadLength {
      if kind == .text, !UTF8StreamValidator.isValid(input.bytes.extracting(first: header.payloadLength)) {
        throw .notUTF8
      }
      frame = nil
      messageKind = nil
      lastPayload = .input(header.payloadLength)
      return .message(kind)
    }
    let available = min(header.payloadLength - frameReceived, input.count)
    if available > 0 { try take(available, of: header, kind) }
    guard frameReceived == header.payloadLength else { return nil }
    frame = nil
    guard header.isFinal else { return nil }
    if isMessageCompressed {
      let tail = MessageCompression.tail
      try inflate(tail.span)
      try validate(kind)
      compression?.endInboundMessage()
    }
    if kind == .text, !validator.isComplete { throw .notUTF8 }
    messageKind = nil
    lastPayload = .message
    return .message(kind)
  }

  /// Moves the next `count` bytes of a frame's payload into the message.
  private mutating func take(
    _ count: Int, of header: FrameHeader, _ kind: WebSocketMessageKind
  ) throws(WebSocketProtocolError) {
    let offset = frameReceived
    frameReceived += count
    if isMessageCompressed {
      compressedBytes += count
      var piece = ByteQueue()
      Self.transfer(count, of: input, unmaskedBy: header.maskingKey?.advanced(by: offset), to: &piece)
      try inflate(piece.bytes)
    } else {
      Self.transfer(count, of: input, unmaskedBy: header.maskingKey?.advanced(by: offset), to: &message)
    }
    input.consume(count)
    try validate(kind)
  }

  /// Copies the first `count` bytes of `source`, unmasked on the way where they are masked.
  private static func transfer(
    _ count: Int, of source: borrowing ByteQueue, unmaskedBy key: MaskingKey?, to target: inout ByteQueue
  ) {
    let bytes = source.bytes.extracting(first: count)
    if let key { key.append(bytes, to: &target) } else { target.append(bytes) }
  }

  private mutating func inflate(_ bytes: Span<UInt8>) throws(WebSocketProtocolError) {
    let byRatio = max(
      limits.inflationFloor, compressedBytes.multipliedReportingOverflow(by: limits.inflationRatio).partialValue)
    let limit = min(limits.messageBytes, byRatio)
    do throws(InflateError) {
      try compression?.inflate(bytes, into: &message, limit: limit)
    } catch {
      switch error {
      case .malformed: throw WebSocketProtocolError(closeCode: 1007, reason: "a compressed message is not DEFLATE data")
      case .tooLarge: throw .tooBig("a message inflates to more than \(limit) bytes")
      }
    }
  }

  private mutating func validate(_ kind: WebSocketMessageKind) throws(WebSocketProtocolError) {
    guard kind == .text else { return }
    guard Self.isValidText(message, from: validated, by: &validator) else { throw .notUTF8 }
    validated = message.count
  }

  private static func isValidText(
    _ message: borrowing ByteQueue, from start: Int, by validator: inout UTF8StreamValidator
  ) -> Bool {
    validator.append(message.bytes.extracting(start..<message.count))
  }

  // MARK: Sending

  /// Appends one message as one frame, compressed where that was agreed on and is worth it.
  package mutating func sendMessage(
    _ kind: WebSocketMessageKind, _ payload: Span<UInt8>, using generator: inout some RandomNumberGenerator,
    into output: inout ByteQueue
  ) {
    precondition(!hasSentClose, "a message was sent after the close frame")
    let opcode: Opcode = kind == .text ? .text : .binary
    if compression?.isWorthwhile(payload.count) == true {
      var compressed = ByteQueue()
      compression?.compress(payload, into: &compressed)
      writeFrame(opcode, compressed.bytes, isCompressed: true, using: &generator, into: &output)
    } else {
      writeFrame(opcode, payload, isCompressed: false, using: &generator, into: &output)
    }
  }

  /// `payload`: at most 125 bytes.
  package func sendPing(
    _ payload: Span<UInt8>, using generator: inout some RandomNumberGenerator, into output: inout ByteQueue
  ) {
    writeFrame(.ping, payload, isCompressed: false, using: &generator, into: &output)
  }

  /// `payload`: that of the newest ping; older unanswered ones need no answer (§5.5.3).
  package func sendPong(
    _ payload: Span<UInt8>, using generator: inout some RandomNumberGenerator, into output: inout ByteQueue
  ) {
    writeFrame(.pong, payload, isCompressed: false, using: &generator, into: &output)
  }

  /// Begins or answers the closing handshake; nothing but control frames' answers may follow. Again: nothing.
  package mutating func sendClose(
    code: UInt16?, reason: String = "", using generator: inout some RandomNumberGenerator, into output: inout ByteQueue
  ) {
    guard !hasSentClose else { return }
    hasSentClose = true
    var payload = ByteQueue()
    if let code { CloseFrame.write(code: code, reason: reason, into: &payload) }
    writeFrame(.close, payload.bytes, isCompressed: false, using: &generator, into: &output)
  }

  private func writeFrame(
    _ opcode: Opcode, _ payload: Span<UInt8>, isCompressed: Bool, using generator: inout some RandomNumberGenerator,
    into output: inout ByteQueue
  ) {
    let key = role == .client ? MaskingKey(using: &generator) : nil
    output.reserve(payload.count &+ 14)
    FrameHeader(
      isFinal: true, isCompressed: isCompressed, opcode: opcode, maskingKey: key, payloadLength: payload.count
    ).write(into: &output)
    if let key { key.append(payload, to: &output) } else { output.append(payload) }
  }
}
