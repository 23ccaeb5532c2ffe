import ByteStreams
import Dialing
import Glibc
import Host
import Metrics
import Reactor
import TLSEngine
import Threading
import UpstreamSession
import WebSocketCodec

extension UpstreamConnection {
  private static var bytesPerRead: Int { 64 << 10 }

  /// After this many decompressed bytes, the rest of the input waits for the next turn.
  static var inflatedPerTurn: Int { 1 << 20 }

  /// The threads that process large messages. A loop always uses the same thread.
  private static let threads = (0..<8).map { _ in WorkThread(named: "large-messages") }

  func read() async {
    guard transport != nil, !isDiscarded else { return }
    // Frames may have arrived in one segment with the response to the opening handshake.
    var outcome = reportEvents()
    var budget = settings.readBudget
    while !isDiscarded {
      switch outcome {
      case .again: break
      case .turnIsOver:
        await loop.yieldTurn()
        budget = settings.readBudget
      case .inputIsLeft:
        await loop.yieldTurn()
        guard !isDiscarded else { return }
        budget = settings.readBudget
        outcome = reportEvents()
        continue
      case .nothingArrived:
        guard await transport?.channel.readEvent(until: .distantFuture) == .ready else { return }
        budget = settings.readBudget
      case .paused:
        await waitUntilReadingIsAllowed()
        budget = settings.readBudget
      case .largeMessage(let message):
        await pass(message)
        guard !isDiscarded else { return }
        budget = settings.readBudget
        outcome = reportEvents()
        continue
      case .ended: return
      }
      // The connection may have been discarded during a wait.
      guard !isDiscarded else { return }
      outcome = readOnce(&budget)
    }
  }

  private enum ReadOutcome {
    case again
    /// The rest of the input must wait for the next turn, so that one busy upstream does not starve the other
    /// connections of the loop.
    case turnIsOver
    /// Like `turnIsOver`. Bytes that were received have no events yet.
    case inputIsLeft
    case nothingArrived
    case paused
    /// Another thread must process this message before the events after it.
    case largeMessage(LargeMessage)
    case ended
  }

  /// Reads once and reports what has arrived. Not inlined. If it were, the task of each idle connection would keep the
  /// stack memory that a report needs.
  @inline(never)
  private func readOnce(_ budget: inout Int) -> ReadOutcome {
    guard !mustNotRead else { return .paused }
    guard let transport else { return .ended }
    var received = IOResult.wouldBlock
    socket.receive { received = transport.receive(into: &$0, atMost: Self.bytesPerRead) }
    // TLS may have produced output of its own.
    if transport.unsent > 0 { scheduleFlush() }
    switch received {
    case .bytes(let count):
      report(.bytesReceived)
      budget -= count
      let outcome = reportEvents()
      guard case .again = outcome else { return outcome }
      return budget > 0 ? .again : .turnIsOver
    case .wouldBlock:
      socket.releaseStorageIfIdle()
      if !isBlocked { transport.releaseIdleStorage() }
      return .nothingArrived
    case .endOfStream:
      report(.lost(.ended, endOfStream()))
      return .ended
    case .failed(let code):
      let isRoute = code == ENETDOWN || code == ENETUNREACH
      let reason = transport.failure.map { "TLS: \($0)" } ?? SystemError.reason(of: code)
      report(.lost(isRoute ? .noRoute : .reset, reason))
      return .ended
    }
  }

  /// Reports all messages that have arrived completely.
  @inline(never)
  private func reportEvents() -> ReadOutcome {
    // The clock is read once for all messages of one read.
    let now = loop.wallClock
    do throws(WebSocketProtocolError) {
      while let event = try socket.nextEvent() {
        switch event {
        case .message(let kind):
          metrics.receivedMessages.add()
          metrics.receivedBytes.add(socket.payload.count)
          if isLarge(socket.payload, kind) { return .largeMessage(LargeMessage(socket.takeMessage(), kind, time: now)) }
          report(.message(kind, time: now))
          if flushesAfterEachMessage { flushNow() }
        case .ping:
          scheduleFlush()
        case .pong:
          if let counter = pongCounter() { report(.pong(counter)) }
        // The session machine decides how to respond to a close frame. The reply that the codec suggests is not used.
        case .close(let code, let reason):
          report(.closed(code: code ?? 1005, reason: reason))
        }
        if isDiscarded { return .ended }
      }
      return socket.takePause() ? .inputIsLeft : .again
    } catch {
      report(.lost(.violation(code: error.closeCode), error.description))
      return .ended
    }
  }

  @inline(__always)
  private func isLarge(_ payload: Span<UInt8>, _ kind: MessageKind) -> Bool {
    guard let conversation else { return payload.count >= LargeMessage.smallest }
    return conversation.isLarge(payload, kind)
  }

  /// Has a large message processed by another thread, and reports it. Until then, this connection reads nothing. So the
  /// order of the messages stays the same, and a connection that ends meanwhile ends after the message.
  ///
  /// Not inlined. If it were, the task of each connection would keep the stack memory that the report needs.
  @inline(never)
  private func pass(_ message: LargeMessage) async {
    let thread = Self.threads[loop.index % Self.threads.count]
    preparedMessage = message
    for attempt in 1...Self.preparations {
      let preparation = preparation
      let isLast = attempt == Self.preparations
      let prepared: PreparedMessage? =
        if isLast { preparation.run(message) } else {
          await withCheckedContinuation { done in
            thread.run { done.resume(returning: message.isCancelled ? nil : preparation.run(message)) }
          }
        }
      guard !isDiscarded, let prepared else { return }
      if !isLast, let snapshot = preparation.conversation, conversation?.isCurrent(snapshot) != true { continue }
      preparedMessage = nil
      report(.largeMessage(prepared, time: message.time))
      if isDiscarded { return }
      // Messages of clients may wait for this flush. If it were scheduled, the next large message could come first.
      flushNow()
      return
    }
  }

  /// The maximum number of times that a message is processed. The state of the protocol may change meanwhile, for
  /// example by a heartbeat, so that the message must be processed again. The last time, the loop itself processes it.
  /// This blocks the loop, but the state cannot change meanwhile.
  private static var preparations: Int { 4 }

  private func endOfStream() -> String {
    // After a close frame, many servers end TCP at once, without ending TLS. Without a close frame, the end of TCP may
    // be the work of an attacker who truncates the stream.
    let cut =
      transport?.failure == .truncated ? ", and TLS without close_notify: it may have been truncated" : ""
    return switch socket.receiveEndOfInput() {
    case .clean: "the upstream ended the stream after the closing handshake"
    case .withoutClose: "the upstream ended the stream without a close frame" + cut
    case .truncated: "the upstream ended the stream inside a message" + cut
    case .failed(let error): error.description
    }
  }

  /// The counter in a pong to a ping of this connection; nil if the pong was unsolicited.
  private func pongCounter() -> UInt64? {
    guard socket.payload.count == 8 else { return nil }
    var counter: UInt64 = 0
    for index in 0..<8 { counter = counter << 8 | UInt64(socket.payload[index]) }
    return counter
  }
}

/// Reads from a connection until it ends.
final class ReadTask: LoopTask {
  private let connection: UpstreamConnection

  init(_ connection: UpstreamConnection) { self.connection = connection }

  func run() async { await connection.read() }
}
