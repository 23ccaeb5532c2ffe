import ByteStreams
import Metrics
import Outbox
import Reactor
import UpstreamSession
import WebSocketCodec

/// What goes to the upstream. Everything of one turn leaves in one write, at the turn's end.
extension UpstreamLink {
  func scheduleFlush() {
    guard !isFlushScheduled, !isBlocked, !isDiscarded, transport?.isBroken != true else { return }
    isFlushScheduled = true
    loop.atEndOfTurn(self)
  }

  func turnEnded() {
    isFlushScheduled = false
    flushNow()
    // What the flush itself brought about, such as the close frame behind the last message of a shutdown, comes next.
    guard isMoreWaiting || (transport?.unsent ?? 0) > 0 else { return }
    isMoreWaiting = false
    scheduleFlush()
  }

  /// Writes what is queued without waiting for the turn's end.
  func flushNow() {
    if !isBlocked { fillAndFlush() }
  }

  func sendPing(_ counter: UInt64) {
    guard isOpen, let transport else { return }
    let payload = (0..<8).map { UInt8(truncatingIfNeeded: counter >> (56 - 8 * UInt64($0))) }
    driver.metrics.pings.add()
    socket.sendPing(payload.span, using: &driver.entropy, into: &transport.output)
    scheduleFlush()
  }

  /// Sends a message of the session itself, ahead of whatever waits in the queue.
  func sendOwn(_ message: PriorityMessage) {
    guard isOpen, socket.canSend, let transport else { return }
    driver.pushHistory.sent(1)
    if lane.count == 0, transport.unsent < settings.highWater {
      write(message.payload, kind: message.kind, into: transport)
    } else {
      lane.append(message)
    }
    scheduleFlush()
  }

  /// 1005 stands for a close frame without a code, and other codes that may not be sent for a normal closure.
  func sendClose(_ code: UInt16) {
    guard isOpen, let transport else { return }
    let sendable: UInt16? = code == 1005 ? nil : CloseFrame.isSendable(code) ? code : 1000
    socket.sendClose(code: sendable, using: &driver.entropy, into: &transport.output)
    scheduleFlush()
  }

  private func fillAndFlush() {
    guard isOpen, !isDiscarded, let transport, !transport.isBroken else { return }
    if isHeld, transport.unsent <= settings.lowWater { isHeld = false }
    if socket.canSend, !isHeld {
      // Not while the upstream leaves what we send unread: then only its newest ping stays to be answered.
      socket.writeReplies(using: &driver.entropy, into: &transport.output)
      for message in lane.takeAll() { write(message.payload, kind: message.kind, into: transport) }
      if driver.isSending(self) {
        let room = settings.highWater - transport.unsent
        let (took, leavesMore) = driver.take(for: self, atMost: room)
        if took { driver.guardBatch(self) }
        // A batch is bounded by high water, which the session's own messages may fill alone, and by the pace. What is left goes
        // with the next turn, or expires.
        isMoreWaiting = leavesMore && (took || room <= 0)
        if leavesMore { driver.armOutboxTimer() }
      }
    }
    let writes = transport.writes
    let result = transport.flush()
    driver.flushed(self, isBlocked: result == .blocked, returning: result == .blocked ? takeBackUnsent() : nil)
    if transport.writes > writes { driver.metrics.writes.add(transport.writes - writes) }
    noteWritten(upTo: transport.written)
    switch result {
    case .done:
      if isHeld {
        // Nobody else tells that the queue may go on.
        isHeld = false
        scheduleFlush()
      }
    case .blocked:
      isBlocked = true
      if transport.unsent >= settings.highWater { isHeld = true }
      loop.spawn(FlushTask(self, transport))
    case .failed:
      // The reader learns of it too, and with it the end of what the upstream may still have said.
      isMoreWaiting = false
    }
  }

  /// Takes the frames out of the output of which the kernel has no byte, and returns the number of the first message: it and
  /// those behind it go back to the queue, where they can still expire. A message that is begun must go on.
  ///
  /// The frames of a batch lie together: nothing else is written between taking them and flushing.
  private func takeBackUnsent() -> UInt64? {
    guard let transport, let end = marks.last?.end else { return nil }
    var first = marks.count
    while first > firstMark, marks[first - 1].start >= transport.committed { first -= 1 }
    guard first < marks.count else { return nil }
    let mark = marks[first]
    transport.takeBack(mark.start, end)
    socket.forgetSentMessages()
    driver.pushHistory.sent(first - marks.count)
    marks.removeSubrange(first...)
    return mark.sequence
  }

  /// Appends the frame of one message of the queue.
  func append(_ message: OutboxMessage) {
    guard let transport else { return }
    let start = transport.end
    write(message.payload, kind: message.kind, into: transport)
    marks.append(Mark(start: start, end: transport.end, sequence: message.sequence))
  }

  private func write(_ payload: SharedBytes, kind: MessageKind, into transport: UpstreamTransport) {
    socket.sendMessage(kind, payload.bytes, using: &driver.entropy, into: &transport.output)
  }

  /// Tells the account which messages lie before this position of the output.
  func noteWritten(upTo position: UInt64) {
    var last: UInt64?
    while firstMark < marks.count, marks[firstMark].end <= position {
      last = marks[firstMark].sequence
      firstMark += 1
    }
    if firstMark == marks.count {
      marks.removeAll(keepingCapacity: marks.capacity <= 4_096)
      firstMark = 0
    }
    if let last { driver.written(through: last) }
  }

  /// The message of which the kernel has a part, and not the whole.
  var begunMessage: UInt64? {
    guard let transport, firstMark < marks.count, marks[firstMark].start < transport.written else { return nil }
    return marks[firstMark].sequence
  }

  /// Whether messages were taken that the kernel does not have as a whole.
  var hasUnwritten: Bool { firstMark < marks.count }

  /// Writes what the kernel still takes of the output, before the end; false where something is left.
  func flushLast() -> Bool {
    guard let transport else { return false }
    let result = transport.flush()
    noteWritten(upTo: transport.written)
    return result == .done
  }

  fileprivate func unblocked() {
    isBlocked = false
    scheduleFlush()
  }
}

/// Waits for the kernel to take more of a link's output.
private final class FlushTask: LoopTask {
  private let link: UpstreamLink
  private let transport: UpstreamTransport

  init(_ link: UpstreamLink, _ transport: UpstreamTransport) {
    self.link = link
    self.transport = transport
  }

  func run() async {
    guard await transport.channel.writable() == .ready else { return }
    link.unblocked()
  }
}
