import ByteStreams
import Calls
import Logging
import LoopbackSupport
import Metrics
import Outbox
import Reactor
import Synchronization
import Testing
import Threading
import UpstreamProtocol
import UpstreamSession
import WebSocketCodec

@testable import Upstream

/// A reply wakes the session's loop if a message waits for the confirmation that the reply brings. The test itself acts
/// as the loop and the connections.
@Suite struct ReplySignalTests {
  @Test func messagesThatWaitForAPredecessorAreSentAfterItsLastReply() async throws {
    let session = try UndrivenSession()
    session.handle.update { $0.outbox.startSending(on: Generation(1)) }
    _ = try session.call()
    #expect(session.write() == 1)
    session.handle.update { guarded in
      guarded.outbox.stopSending()
      guarded.outbox.startSending(on: Generation(2))
    }
    _ = session.handle.post(PostedMessages(.one(ByteString([1])), kind: .text, timeToLive: nil), now: session.now)
    #expect(session.write() == 0, "the request may have to be sent again, ahead of the message")
    try await session.expectWake { #expect(session.receiveReply()) }
    #expect(session.write() == 1)
  }

  @Test func aShutdownEndsWithALateReply() async throws {
    let session = try UndrivenSession()
    session.handle.update { $0.outbox.startSending(on: Generation(1)) }
    let call = try session.call()
    #expect(session.write() == 1)
    guard case .timedOut = session.handle.finish(call, for: "", now: session.now).outcome else {
      Issue.record("the call has another outcome")
      return
    }
    session.handle.update { guarded in
      guarded.outbox.stopSending()
      guarded.outbox.settle()
    }
    session.handle.close(flushWithin: .hours(1))
    #expect(session.handle.guarded.withLock { !$0.outbox.isEmpty }, "the request is to be sent again")
    try await session.expectWake { #expect(session.receiveReply()) }
    #expect(session.handle.guarded.withLock { $0.outbox.isEmpty })
  }

  @Test func theLateCallsOfAllCreatedSessionsHaveACommonLimit() throws {
    // Each client's share is 500 bytes: one call with a reply.
    let total = LateCallTotal(limit: 32_000)
    var sessions: [UndrivenSession] = []
    /// Returns whether a new session of `owner` keeps the reply to a call that has timed out.
    func keepsReply(of owner: String?) throws -> Bool {
      let session = try UndrivenSession(ownedBy: owner, total)
      sessions.append(session)
      session.handle.update { $0.outbox.startSending(on: Generation(1)) }
      let call = try session.call()
      _ = session.write()
      _ = session.handle.finish(call, for: "", now: session.now)
      return session.receiveReply(digits: 100)
    }
    while sessions.count < 1_000, try keepsReply(of: "a") {}
    #expect(sessions.count > 50 && sessions.count < 100 && total.bytes <= 32_000)
    let used = total.bytes
    let others = try ["b", "b", "c", nil].map { try keepsReply(of: $0) }
    #expect(others == [true, false, true, true])
    #expect(total.bytes > used && total.bytes < used + 1_000, "those of configured sessions are not counted")
    for session in sessions.prefix(10) { session.handle.expireCalls(now: session.now + .seconds(60)) }
    let isKept = try keepsReply(of: "a")
    #expect(isKept)
    for session in sessions { session.end() }
    #expect(total.bytes == 0)
  }
}

/// A session without a driver, and one call.
private final class UndrivenSession: UpstreamSink {
  private static let id = CallID(.number, random: 1)

  private let holder = Mutex<SessionHandle?>(nil)
  let now = MonotonicTime(nanoseconds: 1_000_000_000)

  /// - Parameter owner: the client that has created the session; nil if it is configured.
  init(ownedBy owner: String? = nil, _ total: LateCallTotal? = nil) throws {
    var settings = UpstreamSettings(urls: [try WebSocketURL("ws://127.0.0.1:1/")])
    settings.outbox.redelivery = .unconfirmed
    settings.conventions.correlation = .jsonRPC
    let logger = Logger(level: .error, format: .text)
    let metrics = MetricsRegistry()
    let handle =
      if let owner {
        SessionHandle(
          try PreparedSettings(settings), ownedBy: owner, sink: self, logger: logger,
          sharedMetrics: UpstreamMetrics(metrics, session: ""), attemptLimiter: ConcurrentAttemptLimiter(),
          lineLimiter: LogLineLimiter(), lateCalls: total)
      } else {
        try SessionHandle(settings, sink: self, logger: logger, metrics: metrics)
      }
    holder.withLock { $0 = handle }
  }

  var handle: SessionHandle {
    guard let handle = holder.withLock({ $0 }) else { preconditionFailure("no session") }
    return handle
  }

  /// Breaks the cycle of references between this object and the session.
  func end() { holder.withLock { $0 = nil } }

  func received(_ payload: Span<UInt8>, kind: MessageKind, topic: Span<UInt8>, now: Int64) {}
  func connectionLost() {}

  func call() throws -> SessionHandle.RegisteredCall {
    let receipt = handle.call(
      Self.id, ByteSlice(ByteString([1])), token: ByteString([UInt8(ascii: "1")]), timeToLive: .hours(1), now: now)
    guard case .registered(let call) = receipt else { throw Refused() }
    return call
  }

  /// Takes and writes as many messages as the sending connection may. Returns their number.
  func write() -> Int {
    handle.update { guarded in
      var batch: [OutboxMessage] = []
      guarded.outbox.takeBatch(maximumMessages: 10, maximumBytes: .max, now: now, into: &batch)
      if let last = batch.last { guarded.outbox.written(through: last.sequence) }
      return batch.count
    }
  }

  /// Passes the reply to the call to the session. Returns whether the session recognises it as a reply.
  func receiveReply(digits: Int = 1) -> Bool {
    let result = String(repeating: "1", count: digits)
    let reply = Array(#"{"id":"#.utf8) + Self.id.token + Array(#","result":\#(result)}"#.utf8)
    return handle.receiveReply(reply.span, .jsonRPC, now: now)
  }

  /// Waits until `action` has woken the session's loop, for a minute at most.
  func expectWake(by action: () -> Void) async throws {
    let loop = try EventLoop(index: 0)
    let (handle, counter) = (handle, WakeCounter())
    loop.submit { context in
      let signal = context.makeSignal(for: counter)
      handle.guarded.withLock { $0.signal = signal }
      return nil
    }
    defer {
      handle.guarded.withLock { $0.signal = nil }
      loop.stop()
      loop.join()
    }
    try await until("the session has a loop") { handle.guarded.withLock { $0.signal != nil } }
    action()
    try await until("the loop is woken") { counter.count.load(ordering: .sequentiallyConsistent) > 0 }
  }

  struct Refused: Error {}
}

/// Counts how many times a session's loop is woken.
private final class WakeCounter: SignalTarget, Sendable {
  let count = Atomic(0)

  func signalled() { count.add(1, ordering: .sequentiallyConsistent) }
}
