import ByteStreams
import Dialing
import Metrics
import Outbox
import Reactor
import UpstreamProtocol
import UpstreamSession
import WebSocketCodec

/// Writes to the upstream. All output of one turn is sent in one write, at the end of the turn.
extension UpstreamConnection {
  func scheduleFlush() {
    guard !isFlushScheduled, !isBlocked, !isDiscarded, transport?.isBroken != true else { return }
    isFlushScheduled = true
    loop.atEndOfTurn(self)
  }

  func turnEnded() {
    isFlushScheduled = false
    flushNow()
    // The flush may have caused further output, for example the close frame after the last message of a shutdown.
    guard hasMoreToSend || (transport?.unsent ?? 0) > 0 else { return }
    hasMoreToSend = false
    scheduleFlush()
  }

  /// Writes pending output without waiting for the end of the turn.
  func flushNow() {
    if !isBlocked { fillAndFlush() }
  }

  // MARK: Compression

  /// How many bytes of a message are compressed in one turn. Compressing them takes 1 to 3 ms.
  static var compressedPerTurn: Int { 64 << 10 }

  /// A larger message is compressed ahead, over several turns, before it is taken from the outbox. With a protocol that
  /// encodes messages, no message is compressed ahead: a large message is sent uncompressed.
  var largestCompressedAtOnce: Int {
    conversation?.can(.encoding) == true ? .max : socket.largestCompressedAtOnce
  }

  /// The number of the message that is completely compressed and not sent yet.
  var compressedAhead: UInt64? {
    guard let message = socket.messageAhead, message.isComplete else { return nil }
    return message.number
  }

  /// Compresses a part of the next message, if the message is large. Returns whether the message needs another turn.
  func compressAhead(_ next: OutboxMessage?) -> Bool {
    guard let next else {
      // The message that was being compressed ahead has ended.
      if socket.messageAhead != nil { socket.resetCompressionHistory() }
      return false
    }
    guard compressedAhead != next.sequence else { return false }
    socket.compressAhead(next.payload.bytes, number: next.sequence, atMost: Self.compressedPerTurn)
    return true
  }

  // MARK: Frames

  func sendPing(_ counter: UInt64) {
    guard isOpen, let transport, !sendsMessagePing(counter) else { return }
    let payload = (0..<8).map { UInt8(truncatingIfNeeded: counter >> (56 - 8 * UInt64($0))) }
    metrics.pings.add()
    socket.sendPing(payload.span, using: &loop.entropy, into: &transport.output)
    scheduleFlush()
  }

  /// Sends a ping of the protocol above WebSocket, unless too many earlier pings have got no pong. Returns false if the
  /// protocol has no pings.
  ///
  /// - Parameter counter: the counter of the ping; nil for a heartbeat. Pongs have no counter, so the order of pings
  ///   and heartbeats relates each pong to its ping.
  func sendsMessagePing(_ counter: UInt64?) -> Bool {
    guard isOpen, let transport, let conversation, conversation.can(.messagePings) else { return false }
    guard let text = conversation.state.ping(counter), socket.canSend else { return true }
    metrics.pings.add()
    var message = ByteQueue()
    message.append(text)
    write(message.bytes, .text, into: transport)
    scheduleFlush()
    return true
  }

  /// Sends a message of the session itself, ahead of the outbox. Returns false if nothing can be sent any more.
  func send(_ message: PriorityMessage) -> Bool {
    guard isOpen, socket.canSend, let transport else { return false }
    if priority.count == 0, transport.unsent < settings.highWater {
      write(message.payload.bytes, message.kind, into: transport)
    } else {
      priority.append(message)
    }
    scheduleFlush()
    return true
  }

  /// Sends a client's message again, ahead of the outbox.
  func sendAgain(_ payload: ByteString, _ kind: MessageKind, isCall: Bool) -> Bool {
    guard let conversation, conversation.can(.numberedIDs) else {
      return send(PriorityMessage(.setup, kind: kind, payload: payload))
    }
    var numbered = ByteQueue()
    _ = conversation.state.encode(payload.bytes, kind: kind, isCall: isCall) { parts, _ in
      parts.append(to: &numbered)
    }
    return send(PriorityMessage(.setup, kind: kind, payload: ByteString(numbered.copyBytes())))
  }

  /// Sends messages ahead of the close frame. Sends none, and returns 0, if the upstream does not read: the end of the
  /// connection must not wait for the upstream.
  func sendBeforeClose(_ messages: [ProtocolFrame]) -> Int {
    guard isOpen, socket.canSend, !socket.hasReceivedClose, let transport, priority.count == 0,
      !isBlocked || transport.unsent < settings.highWater
    else { return 0 }
    for message in messages { write(message.payload.bytes, message.kind, into: transport) }
    return messages.count
  }

  /// 1005 means a close frame without a code. Any other code that must not be sent becomes 1000.
  func sendClose(_ code: UInt16) {
    guard isOpen, let transport else { return }
    let sendable: UInt16? = code == 1005 ? nil : CloseFrame.isSendable(code) ? code : 1000
    sentCloseCode = sendable ?? 1005
    socket.sendClose(code: sendable, using: &loop.entropy, into: &transport.output)
    // Queued messages are not sent any more. Reading resumes, so that the upstream's close frame is read.
    resumeReading()
    scheduleFlush()
  }

  /// Appends messages of the outbox to the output. Returns the messages that the connection cannot send.
  func append(_ messages: [OutboxMessage]) -> [(sequence: UInt64, reason: DeliveryReason)] {
    guard let transport else { return [] }
    guard let conversation, conversation.can(.encoding) else {
      // A batch ends at `room`, so only its last message can be large.
      let last = messages.count - 1
      let isLastLarge = last >= 0 && messages[last].payload.count >= LargeSlice.smallest
      Self.write(
        messages.span.extracting(first: isLastLarge ? last : last + 1), with: &socket, using: &loop.entropy,
        into: &transport.output, at: transport.outputStart, &marks)
      if isLastLarge { appendLarge(messages[last], to: transport) }
      return []
    }
    var rejected: [(UInt64, DeliveryReason)] = []
    for message in messages {
      let start = transport.end
      let result = conversation.state.encode(message.payload.bytes, kind: message.kind, isCall: message.reportsEnd) {
        parts, kind in
        guard parts.content.count >= LargeSlice.smallest, let content = message.payload.slice(of: parts.content) else {
          return socket.sendMessage(kind, parts, using: &loop.entropy, into: &transport.output)
        }
        transport.append(socket.beginMessage(kind, parts, content, using: &loop.entropy, into: &transport.output))
      }
      switch result {
      case .written: marks.append(message.sequence, from: start, to: transport.end)
      case .notConnected: rejected.append((message.sequence, .notConnected))
      case .tooLarge: rejected.append((message.sequence, .tooLarge))
      }
    }
    return rejected
  }

  /// Called once per batch, not once per message, since each `inout` argument of a call costs an exclusivity check.
  ///
  /// - Parameter offset: the position of the first byte in `output`.
  private static func write(
    _ messages: Span<OutboxMessage>, with socket: inout WebSocketConnection, using entropy: inout EntropyPool,
    into output: inout ByteQueue, at offset: UInt64, _ marks: inout OutputMarks
  ) {
    // An iteration over the array itself would retain each payload.
    for index in messages.indices {
      let start = offset + UInt64(output.count)
      socket.sendMessage(
        messages[index].kind, messages[index].payload.bytes, number: messages[index].sequence, using: &entropy,
        into: &output)
      marks.append(messages[index].sequence, from: start, to: offset + UInt64(output.count))
    }
  }

  private func appendLarge(_ message: OutboxMessage, to transport: Transport) {
    let start = transport.end
    transport.append(
      socket.beginMessage(
        message.kind, MessageParts(message.payload.bytes), message.payload, number: message.sequence,
        using: &loop.entropy, into: &transport.output))
    marks.append(message.sequence, from: start, to: transport.end)
  }

  private func write(_ payload: Span<UInt8>, _ kind: MessageKind, into transport: Transport) {
    socket.sendMessage(kind, payload, using: &loop.entropy, into: &transport.output)
  }

  // MARK: Positions

  /// The position in the output at which the next frame of the session itself begins. Messages in `priority` are
  /// counted without their framing.
  var outputEnd: UInt64 { (transport?.end ?? 0) + UInt64(priority.bytes) }

  /// The output position up to which the peer has acknowledged, and the time of the last acknowledgement; nil if there
  /// is no open transport.
  var acknowledgedOutput: (position: UInt64, time: MonotonicTime)? {
    isDiscarded || !isOpen ? nil : transport?.acknowledgedOutput
  }

  // MARK: Flushing

  private func fillAndFlush() {
    guard isOpen, !isDiscarded, let transport, !transport.isBroken else { return }
    if isThrottled, transport.unsent <= settings.lowWater { isThrottled = false }
    if socket.canSend, !isThrottled {
      // Pongs are appended only here, that is, only while the upstream reads the output. If the upstream has sent
      // several pings by then, only the newest ping needs a pong (RFC 6455 §5.5.3).
      socket.writePongs(using: &loop.entropy, into: &transport.output)
      for message in priority.takeAll() { write(message.payload.bytes, message.kind, into: transport) }
      if resumeReading() { report(.readingResumes) }
      // A sixteenth is for the frame headers, so that a batch of small messages is passed to the kernel in one flush.
      let largest = Channel.bytesPerFlush - Channel.bytesPerFlush / 16
      if preparedMessage == nil || conversation?.can(.encoding) != true {
        report(.writable(room: min(settings.highWater, largest) - transport.unsent))
      }
    }
    let writes = transport.writes
    let result = transport.flush()
    let outcome: FlushOutcome =
      switch result {
      case .done: .done
      case .blocked: .blocked(returned: takeBackUnsent())
      case .paused: .paused(returned: takeBackUnsent())
      case .failed: .failed(firstUnsent: marks.firstUnwritten(at: transport.written))
      }
    report(.flushed(outcome))
    if transport.writes > writes { metrics.writes.add(transport.writes - writes) }
    reportWritten(of: transport)
    switch result {
    case .done:
      if isThrottled {
        // No other event would make the outbox send again.
        isThrottled = false
        scheduleFlush()
      }
    case .blocked:
      isBlocked = true
      if transport.unsent >= settings.highWater { isThrottled = true }
      transport.whenWritable(on: loop) { self.unblocked() }
    case .paused:
      // A large message is sent over several turns. Until little of it is left, no messages are requested.
      isThrottled = true
      scheduleFlush()
    case .failed:
      // `ReadTask` gets the error, too, after it has read all bytes that the upstream has sent.
      hasMoreToSend = false
      if transport.isForbidden {
        // The upstream cannot notice that this gateway may not write any more, so this gateway must end the connection.
        report(.lost(.ended, "this gateway may not write any more: Redis has not confirmed its heartbeats in time"))
      }
    }
  }

  /// Takes back from the output the messages that the kernel has not begun to accept. These messages return to the
  /// outbox, where they can still expire. A message that is partly sent stays, since it must be completed.
  private func takeBackUnsent() -> OutputMarks.Returned? {
    guard let transport, let (returned, range) = marks.takeBack(from: transport.committed) else { return nil }
    transport.takeBack(range.lowerBound, range.upperBound)
    socket.resetCompressionHistory()
    return returned
  }

  private func reportWritten(of transport: Transport) {
    if let last = marks.markWritten(upTo: transport.written) { report(.written(through: last)) }
  }

  /// The message that the kernel has accepted in part.
  var partiallyWrittenMessage: UInt64? { transport.flatMap { marks.partiallyWritten(at: $0.written) } }

  /// Writes as much of the output as the kernel accepts in one flush, before the connection is closed. Returns false if
  /// some of the output is left.
  func flushFinally() -> Bool {
    guard let transport else { return false }
    let result = transport.flush()
    reportWritten(of: transport)
    return result == .done
  }

  private func unblocked() {
    isBlocked = false
    scheduleFlush()
  }
}
