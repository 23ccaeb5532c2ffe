import ByteStreams
import Deflate

/// The framing of one WebSocket connection after its handshake, in both directions (RFC 6455, RFC 7692). It has no
/// socket.
///
/// A driver passes received bytes to `receive`, and calls `nextEvent()` until it returns nil, which means that more
/// bytes are needed. After that it calls `writeReplies`, which writes the pending pongs, and the close frame that
/// responds to a close frame or reports a protocol error.
///
///     connection.receive { channel.read(into: &$0) }
///     while let event = try connection.nextEvent() { … connection.payload … }
///     connection.writeReplies(using: &generator, into: &output)
///
/// After an error or a close frame, further input is discarded.
package struct WebSocketConnection: ~Copyable {
  package let role: WebSocketRole
  package let limits: WebSocketLimits
  private var input = ByteQueue()
  var compression: MessageCompression

  /// The data or control frame whose payload is arriving.
  private var frame: FrameHeader?
  private var frameReceived = 0

  /// The message that is being assembled.
  private var message = ByteQueue()
  private var messageKind: MessageKind?
  private var isMessageCompressed = false
  private var fragments = 0
  private var compressedBytes = 0
  /// Bytes of messages that were decompressed since the last pause.
  private var inflated = 0
  private var validator = UTF8StreamValidator()
  private var validated = 0

  private var control = ByteQueue()
  private var lastPayload = PayloadLocation.none

  /// The replies that are not written yet.
  var replies = PendingReplies()

  package internal(set) var hasSentClose = false
  package private(set) var hasReceivedClose = false
  /// The peer's protocol error, after which the connection is unusable.
  package private(set) var failure: WebSocketProtocolError?

  private enum PayloadLocation {
    case none
    /// The payload is at the front of the input: an uncompressed, unmasked message in a single frame is not copied.
    case input(Int)
    case message
    case control
  }

  package init(
    role: WebSocketRole, limits: WebSocketLimits = WebSocketLimits(), compression: MessageCompression.Settings? = nil
  ) {
    self.role = role
    self.limits = limits
    self.compression = MessageCompression(compression)
  }

  // MARK: State

  /// Whether messages and pings may be sent. They may not after a close frame was sent (RFC 6455 §5.5.1), or after an
  /// error of the peer.
  package var canSend: Bool { !hasSentClose && failure == nil }

  /// Whether the connection is about to end. If so, the driver must limit the time until its end.
  package var isClosing: Bool { hasSentClose || hasReceivedClose || failure != nil }

  /// Whether this side should close TCP when all output is sent. After the closing handshake the server closes first,
  /// so that the server has the `TIME_WAIT` state (§7.1.1). After a protocol error either side may close first
  /// (§7.1.7).
  package var shouldEndTransport: Bool {
    if replies.close != nil { return false }
    if failure != nil { return true }
    return role == .server && hasSentClose && hasReceivedClose
  }

  /// Bytes of unread input and of the message being assembled.
  package var bufferedBytes: Int { input.count + message.count }

  /// Allocated memory in bytes, including zlib's.
  package var allocatedBytes: Int {
    input.allocatedBytes + message.allocatedBytes + control.allocatedBytes + replies.allocatedBytes
      + compression.allocatedBytes
  }

  // MARK: Receiving

  package mutating func receive(_ bytes: Span<UInt8>) {
    if !ignoresInput { input.append(bytes) }
  }

  /// Passes the input buffer to `fill`, so that a driver can read from its socket directly into it.
  package mutating func receive(_ fill: (inout ByteQueue) -> Void) {
    fill(&input)
    if ignoresInput { input.removeAll() }
  }

  /// Records the end of the peer's input and returns how it ended. The driver must have called `nextEvent()` until it
  /// returned nil, since no further events follow.
  package mutating func receiveEndOfInput() -> WebSocketEnding {
    releaseLastPayload()
    if let failure { return .failed(failure) }
    if hasReceivedClose { return .clean }
    return messageKind == nil && frame == nil && input.isEmpty ? .withoutClose : .truncated
  }

  /// The payload of the last event, valid until the next call of `nextEvent()`.
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

  /// Moves the payload of the last event, a message, out of the connection.
  package mutating func takeMessage() -> ByteQueue {
    var taken = ByteQueue()
    switch lastPayload {
    case .none, .control: return taken
    case .message:
      swap(&taken, &message)
      lastPayload = .none
    case .input(let count):
      taken.append(input.bytes.extracting(first: count))
      releaseLastPayload()
    }
    return taken
  }

  /// Whether `nextEvent()` has returned nil although input is left, since it has decompressed enough for one turn
  /// (`MessageCompression.Settings.inflatedAtOnce`). Resets the count.
  package mutating func takePause() -> Bool {
    guard inflated >= compression.inflatedAtOnce else { return false }
    inflated = 0
    return true
  }

  /// Returns the next event, or nil if more bytes are needed. Throws at most once, and then returns nil.
  package mutating func nextEvent() throws(WebSocketProtocolError) -> WebSocketEvent? {
    do throws(WebSocketProtocolError) {
      return try readEvent()
    } catch {
      fail(error)
      throw error
    }
  }

  /// Frees memory that an idle connection does not need. Keeps zlib's state, which contains the compression history
  /// that both sides must have.
  package mutating func releaseStorageIfIdle() {
    if input.isEmpty { input.releaseStorage() }
    guard case .none = lastPayload else { return }
    if messageKind == nil { message.releaseStorage() }
    control.releaseStorage()
    compression.releaseScratch()
    replies.releaseStorageIfIdle()
  }

  /// After a close frame (§1.4) or an error (§7.1.7), further input is ignored.
  private var ignoresInput: Bool { hasReceivedClose || failure != nil }

  private mutating func fail(_ error: WebSocketProtocolError) {
    failure = error
    frame = nil
    messageKind = nil
    lastPayload = .none
    input.releaseStorage()
    message.releaseStorage()
    replies.removePongs()
    if !hasSentClose { replies.close = .code(error.closeCode) }
  }

  private mutating func readEvent() throws(WebSocketProtocolError) -> WebSocketEvent? {
    releaseLastPayload()
    while !ignoresInput {
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

  /// A message buffer with more memory than this is freed after the message.
  private static var messageStorageKept: Int { 64 * 1024 }

  private mutating func beginFrame() throws(WebSocketProtocolError) -> Bool {
    guard
      let (header, length) = try FrameHeader.read(
        input.bytes, from: role.peer, allowsCompression: compression.isAgreed)
    else { return false }
    if !header.opcode.isControl { try checkDataFrame(header) }
    input.consume(length)
    frame = header
    frameReceived = 0
    return true
  }

  /// Checks the rules that a data frame's header can violate (§5.4), before any of its payload is stored.
  private mutating func checkDataFrame(_ header: FrameHeader) throws(WebSocketProtocolError) {
    switch header.opcode {
    case .continuation:
      guard messageKind != nil else { throw .protocolError("a continuation frame arrived outside a message") }
    case .text, .binary:
      guard messageKind == nil else {
        throw .protocolError("a new message begins before the fragmented message has ended")
      }
      messageKind = header.opcode == .text ? .text : .binary
      isMessageCompressed = header.isCompressed
      fragments = 0
      compressedBytes = 0
      validated = 0
      validator = UTF8StreamValidator()
    case .close, .ping, .pong:
      preconditionFailure("a control frame is not a data frame")
    }
    fragments += 1
    guard fragments <= limits.fragments else { throw .tooBig("a message has more than \(limits.fragments) fragments") }
    let announced = isMessageCompressed ? compressedBytes : message.count
    guard header.payloadLength <= limits.messageBytes - announced else {
      throw .tooBig("a message is larger than \(limits.messageBytes) bytes")
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
    case .ping:
      // §5.5.2: a ping requires a pong unless a close frame was received. After a close frame was sent, no pong may be
      // sent.
      if !hasSentClose { replies.addPong(control, atMost: limits.pendingPongs) }
      return .ping
    case .pong: return .pong
    case .close:
      let event = try CloseFrame.read(control.bytes)
      hasReceivedClose = true
      input.releaseStorage()
      message.releaseStorage()
      messageKind = nil
      // §5.5.1: the response has the same code. Pending pongs are sent before it.
      if case .close(let code, _) = event, !hasSentClose { replies.close = code.map { .code($0) } ?? .empty }
      return event
    case .continuation, .text, .binary: preconditionFailure("a data frame is not a control frame")
    }
  }

  private mutating func readData(_ header: FrameHeader) throws(WebSocketProtocolError) -> WebSocketEvent? {
    guard let kind = messageKind else { preconditionFailure("a data frame outside a message") }
    let isWholeMessage = header.isFinal && fragments == 1 && !isMessageCompressed && header.maskingKey == nil
    if isWholeMessage, frameReceived == 0, input.count >= header.payloadLength {
      if kind.isText, !UTF8StreamValidator.isValid(input.bytes.extracting(first: header.payloadLength)) {
        throw .notUTF8
      }
      frame = nil
      messageKind = nil
      lastPayload = .input(header.payloadLength)
      return .message(kind)
    }
    var available = min(header.payloadLength - frameReceived, input.count)
    if isMessageCompressed {
      while available > Self.inflatedPart, inflated < compression.inflatedAtOnce {
        try take(Self.inflatedPart, of: header, kind)
        available -= Self.inflatedPart
      }
      if inflated >= compression.inflatedAtOnce { return nil }
    }
    if available > 0 { try take(available, of: header, kind) }
    guard frameReceived == header.payloadLength else { return nil }
    frame = nil
    guard header.isFinal else { return nil }
    if isMessageCompressed {
      let limit = inflationLimit
      do throws(InflateError) {
        try compression.endInboundMessage(into: &message, limit: limit)
      } catch {
        throw Self.protocolError(for: error, limit: limit)
      }
      try validate(kind)
    }
    if kind.isText, !validator.isComplete { throw .notUTF8 }
    messageKind = nil
    lastPayload = .message
    return .message(kind)
  }

  /// Compressed bytes that are decompressed at once. They become at most 1 MiB.
  private static var inflatedPart: Int { 1 << 10 }

  /// Moves the next `count` bytes of a frame's payload into the message.
  private mutating func take(
    _ count: Int, of header: FrameHeader, _ kind: MessageKind
  ) throws(WebSocketProtocolError) {
    let key = header.maskingKey?.advanced(by: frameReceived)
    frameReceived += count
    if isMessageCompressed {
      compressedBytes += count
      let limit = inflationLimit
      let before = message.count
      do throws(InflateError) {
        try compression.inflate(count, of: input, unmaskedBy: key, into: &message, limit: limit)
      } catch {
        throw Self.protocolError(for: error, limit: limit)
      }
      inflated &+= message.count &- before
    } else {
      Self.transfer(count, of: input, unmaskedBy: key, to: &message)
    }
    input.consume(count)
    try validate(kind)
  }

  /// Copies the first `count` bytes of `source`, unmasked if there is a key.
  private static func transfer(
    _ count: Int, of source: borrowing ByteQueue, unmaskedBy key: MaskingKey?, to target: inout ByteQueue
  ) {
    let bytes = source.bytes.extracting(first: count)
    if let key { key.append(bytes, to: &target) } else { target.append(bytes) }
  }

  private var inflationLimit: Int { limits.inflatedBytes(from: compressedBytes) }

  private static func protocolError(for error: InflateError, limit: Int) -> WebSocketProtocolError {
    switch error {
    case .malformed: .notDeflate
    case .tooLarge: .tooBig("a message inflates to more than \(limit) bytes")
    }
  }

  private mutating func validate(_ kind: MessageKind) throws(WebSocketProtocolError) {
    guard kind.isText else { return }
    guard Self.isValidText(message, from: validated, by: &validator) else { throw .notUTF8 }
    validated = message.count
  }

  private static func isValidText(
    _ message: borrowing ByteQueue, from start: Int, by validator: inout UTF8StreamValidator
  ) -> Bool {
    validator.append(message.bytes.extracting(start..<message.count))
  }
}
