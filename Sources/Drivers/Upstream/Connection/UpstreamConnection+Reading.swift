import ByteStreams
import Dialing
import Glibc
import Host
import Metrics
import Reactor
import TLSEngine
import UpstreamSession
import WebSocketCodec

extension UpstreamConnection {
  private static var bytesPerRead: Int { 64 << 10 }

  func read() async {
    guard transport != nil, !isDiscarded else { return }
    // Frames may have arrived in one segment with the response to the opening handshake.
    guard reportEvents() else { return }
    var budget = settings.readBudget
    while !isDiscarded {
      switch readOnce(&budget) {
      case .again: continue
      case .turnIsOver: await loop.yieldTurn()
      case .nothingArrived: guard await transport?.channel.readEvent(until: .distantFuture) == .ready else { return }
      case .paused:
        await waitUntilReadingIsAllowed()
        continue
      case .ended: return
      }
      budget = settings.readBudget
    }
  }

  private enum ReadOutcome {
    case again
    /// The rest of the input must wait for the next turn, so that one busy upstream does not starve the other
    /// connections of the loop.
    case turnIsOver
    case nothingArrived
    case paused
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
      guard reportEvents() else { return .ended }
      budget -= count
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

  /// Reports all messages that have arrived completely. Returns false if the connection is over.
  @inline(never)
  private func reportEvents() -> Bool {
    // The clock is read once for all messages of one read.
    let now = loop.wallClock
    do throws(WebSocketProtocolError) {
      while let event = try socket.nextEvent() {
        switch event {
        case .message(let kind):
          metrics.receivedMessages.add()
          metrics.receivedBytes.add(socket.payload.count)
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
        if isDiscarded { return false }
      }
      return true
    } catch {
      report(.lost(.violation(code: error.closeCode), error.description))
      return false
    }
  }

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
