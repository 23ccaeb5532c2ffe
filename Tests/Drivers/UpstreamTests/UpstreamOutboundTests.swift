import ByteStreams
import Metrics
import Outbox
import Testing
import UpstreamSession

@testable import Upstream

/// The queue with real connections: when it writes, when it waits, and the messages of a lost connection.
@Suite(.serialized) struct UpstreamOutboundTests {
  /// Settings with pings that only confirm messages. A session then stays connected to an upstream that does not read.
  private static func withoutHeartbeat(_ settings: inout UpstreamSettings) {
    settings.session.liveness.interval = .hours(1)
    settings.session.liveness.timeout = .hours(1)
    settings.userTimeout = .hours(1)
  }

  private func texts(_ count: Int) -> [String] { (1...count).map { "message \($0)" } }

  private func confirmed(_ session: SessionFixture) -> UInt64 { session.handle.total(.confirmed) }

  @Test func writesAllMessagesOfATurnAtOnce() async throws {
    let upstream = try ScriptedUpstream(.listen)
    let session = try SessionFixture(upstream.url, Self.withoutHeartbeat)
    try await session.until("ready") { session.handle.isReady }
    session.postInOneTurn(texts(500))
    try await session.until("all are confirmed") { confirmed(session) == 500 }
    #expect(session.handle.metrics.writes.total == 1, "500 messages and the ping after them")
    #expect(session.handle.metrics.pings.total == 1)
    #expect(upstream.seen.messages.count == 500)
    try await session.finish()
    upstream.stop()
  }

  /// The messages behind a large one are not requested before it was written.
  @Test(arguments: [false, true])
  func sendsALargeMessageOverSeveralTurnsBetweenItsNeighbours(compresses: Bool) async throws {
    let upstream = try ScriptedUpstream(.listen)
    let session = try SessionFixture(upstream.url) {
      Self.withoutHeartbeat(&$0)
      if !compresses { $0.compression = nil }
      $0.outbox.maximumBytes = 32 << 20
    }
    try await session.until("ready") { session.handle.isReady }
    let large = (0..<500_000).map { "item \($0) " }.joined()
    let texts = ["first", large, "second", large, large, "third"]
    session.postInOneTurn(texts)
    try await session.until("all are confirmed") { confirmed(session) == 6 }
    #expect(upstream.seen.messages.map { String(decoding: $0, as: UTF8.self) } == texts)
    try await session.finish()
    upstream.stop()
  }

  @Test func sendsAPingAfterManySmallTurnsOnly() async throws {
    let upstream = try ScriptedUpstream(.listen)
    let session = try SessionFixture(upstream.url) {
      Self.withoutHeartbeat(&$0)
      // Only the number of messages triggers a ping here. Another test covers the delay.
      $0.outbox.barrierDelay = .hours(1)
    }
    try await session.until("ready") { session.handle.isReady }
    session.postOneATurn(texts(1_000))
    try await session.until("all are written") { session.handle.total(.written) == 1_000 }
    try await session.until("all messages before the last ping are confirmed") { confirmed(session) == 960 }
    #expect(session.handle.metrics.pings.total == 15)
    try await session.finish()
    #expect(confirmed(session) == 1_000, "the ping before the close frame confirms the last")
    upstream.stop()
  }

  @Test func sendsFewPingsToAnUpstreamThatDoesNotRespond() async throws {
    let upstream = try ScriptedUpstream(.deaf)
    let session = try SessionFixture(upstream.url) {
      Self.withoutHeartbeat(&$0)
      $0.session.limits.closing = .milliseconds(20)
      $0.outbox.barrierMessages = 1
    }
    try await session.until("ready") { session.handle.isReady }
    session.postOneATurn(texts(1_000))
    try await session.until("all are written") { session.handle.total(.written) == 1_000 }
    #expect(session.handle.metrics.pings.total == 8)
    try await session.finish()
    #expect(session.handle.total(.unknown) == 1_000)
    upstream.stop()
  }

  @Test func sendsOnePingPerIntervalToASessionThatSendsFewMessagesAtATime() async throws {
    let upstream = try ScriptedUpstream(.listen)
    let session = try SessionFixture(upstream.url) {
      Self.withoutHeartbeat(&$0)
      $0.outbox.barrierDelay = .milliseconds(1)
      $0.outbox.barrierInterval = .hours(1)
    }
    session.post("first")
    try await session.until("the first is confirmed") { confirmed(session) == 1 }
    for number in 1...50 {
      session.post("\(number)")
      try await session.until("it is written") { session.handle.total(.written) == number + 1 }
    }
    #expect(session.handle.metrics.pings.total == 1)
    session.handle.beginWaitingForConfirmations()
    try await session.until("a client waits, and all are confirmed") { confirmed(session) == 51 }
    session.handle.endWaitingForConfirmations()
    try await session.finish()
    upstream.stop()
  }

  @Test func theIntervalAlsoAppliesToATimerThatWasSetBeforeTheLastPing() async throws {
    let upstream = try ScriptedUpstream(.listen)
    let session = try SessionFixture(upstream.url) {
      Self.withoutHeartbeat(&$0)
      $0.outbox.barrierDelay = .milliseconds(100)
      $0.outbox.barrierInterval = .hours(1)
    }
    try await session.until("ready") { session.handle.isReady }
    session.post("sets the timer")
    try await session.until("it is written") { session.handle.total(.written) == 1 }
    let delayEnd = session.now + .milliseconds(100)
    session.handle.beginWaitingForConfirmations()
    try await session.until("it is confirmed") { confirmed(session) == 1 }
    session.handle.endWaitingForConfirmations()
    session.post("sent after the ping")
    try await session.until("the delay has passed") { session.now > delayEnd + .milliseconds(50) }
    session.post("sent after the delay")
    try await session.until("all are written") { session.handle.total(.written) == 3 }
    #expect(session.handle.metrics.pings.total == 1)
    try await session.finish()
    upstream.stop()
  }

  @Test func messagesThatMayBeSentAgainDoNotWaitForTheInterval() async throws {
    let upstream = try ScriptedUpstream(.listen)
    let session = try SessionFixture(upstream.url) {
      Self.withoutHeartbeat(&$0)
      $0.outbox.redelivery = .unconfirmed
      $0.outbox.barrierDelay = .milliseconds(1)
      $0.outbox.barrierInterval = .hours(1)
    }
    for number in 1...3 {
      session.post("\(number)")
      try await session.until("it is confirmed") { confirmed(session) == number }
    }
    try await session.finish()
    upstream.stop()
  }

  @Test func pingsAtOnceWhileAClientWaitsForAConfirmation() async throws {
    let upstream = try ScriptedUpstream(.listen)
    let session = try SessionFixture(upstream.url) {
      Self.withoutHeartbeat(&$0)
      $0.outbox.barrierDelay = .hours(1)
    }
    session.handle.beginWaitingForConfirmations()
    session.post("awaited")
    try await session.until("it is confirmed") { confirmed(session) == 1 }
    session.handle.endWaitingForConfirmations()
    try await session.finish()
    upstream.stop()
  }

  @Test func confirmsFewMessagesAfterAShortDelay() async throws {
    let upstream = try ScriptedUpstream(.listen)
    let session = try SessionFixture(upstream.url, Self.withoutHeartbeat)
    session.post("alone")
    try await session.until("it is confirmed") { confirmed(session) == 1 }
    try await session.finish()
    upstream.stop()
  }

  /// The queue waits while the output is above the high-water mark. It resumes as soon as the upstream reads, without
  /// any other event.
  @Test func resumesByItselfWhenTheUpstreamReadsAgain() async throws {
    let upstream = try ScriptedUpstream(.listenAfterRead)
    let session = try SessionFixture(upstream.url) {
      Self.withoutHeartbeat(&$0)
      $0.outbox.maximumBytes = 32 << 20
      // The least favourable case: the queue waits until the kernel has taken all output, and no pong wakes the
      // session.
      $0.lowWater = 0
      $0.outbox.confirms = false
    }
    try await session.until("ready") { session.handle.isReady }
    let payload = [UInt8](repeating: UInt8(ascii: "x"), count: 64 << 10)
    try await session.until("the queue is full") { session.post(payload, ttl: nil) == .full(.bytes) }
    let posted = session.handle.snapshot().queuedMessages
    #expect(posted > 400, "most messages are queued, not in the output")
    upstream.read()
    try await session.until("the queue is empty") { session.handle.snapshot().queuedMessages == 0 }
    try await session.finish()
    upstream.stop()
  }

  @Test func expiresMessagesForAnUpstreamThatDoesNotRead() async throws {
    let upstream = try ScriptedUpstream(.deaf)
    let session = try SessionFixture(upstream.url) {
      Self.withoutHeartbeat(&$0)
      $0.outbox.maximumBytes = 64 << 20
      $0.session.limits.closing = .milliseconds(20)
    }
    try await session.until("ready") { session.handle.isReady }
    // These messages exceed the buffers of the kernel and of the output, and are posted at once. No later event would
    // make the session check for expiry.
    session.postInOneTurn(
      Array(repeating: String(repeating: "x", count: 64 << 10), count: 400), ttl: .milliseconds(100))
    try await session.until("the last expires") { session.handle.deliveryState(400) == .expired }
    try await session.finish()
    upstream.stop()
  }

  @Test func neverResendsAMessageThatIsTooLargeForTheUpstream() async throws {
    let upstream = try ScriptedUpstream(.refuseAsTooLarge(after: 100_000), .listen)
    let session = try SessionFixture(upstream.url) {
      Self.withoutHeartbeat(&$0)
      $0.compression = nil
      $0.outbox.maximumBytes = 64 << 20
      $0.outbox.redelivery = .unconfirmed
      $0.session.limits.closing = .milliseconds(200)
    }
    session.post("first")
    session.post([UInt8](repeating: UInt8(ascii: "x"), count: 32 << 20))
    session.post("last")
    try await session.until("the others arrive") { confirmed(session) == 2 }
    #expect(session.handle.deliveryState(2) == .rejected)
    #expect(upstream.seen.messages.map(\.count) == [5, 4])
    #expect(upstream.seen.connections == 2)
    try await session.finish()
    upstream.stop()
  }

  @Test func stopsResendingAMessageThatEndsItsConnections() async throws {
    let upstream = try ScriptedUpstream(.resetAfter(100_000), .resetAfter(100_000), .resetAfter(100_000), .listen)
    let session = try SessionFixture(upstream.url) {
      Self.withoutHeartbeat(&$0)
      $0.compression = nil
      $0.outbox.maximumBytes = 64 << 20
    }
    session.post([UInt8](repeating: UInt8(ascii: "x"), count: 32 << 20), ttl: nil)
    session.post("last")
    try await session.until("the other arrives") { confirmed(session) == 1 }
    #expect(session.handle.deliveryState(1) == .rejected)
    #expect(upstream.seen.connections == 4)
    #expect(upstream.seen.messages.map(\.count) == [4])
    try await session.finish()
    upstream.stop()
  }

  @Test func limitsTheRateAndSendsEveryMessage() async throws {
    let upstream = try ScriptedUpstream(.listen)
    let session = try SessionFixture(upstream.url) {
      Self.withoutHeartbeat(&$0)
      $0.outbox.pace = Pace(messages: 100, burst: 5)
    }
    try await session.until("ready") { session.handle.isReady }
    let start = ContinuousClock.now
    session.postInOneTurn(texts(20))
    try await session.until("all arrive") { upstream.seen.messages.count == 20 }
    // The first five messages are the burst. At a hundred per second, each of the other messages takes ten
    // milliseconds.
    #expect(ContinuousClock.now - start >= .milliseconds(149))
    #expect(upstream.seen.messages.map { String(decoding: $0, as: UTF8.self) } == texts(20))
    try await session.finish()
    upstream.stop()
  }

  @Test func refusesMessagesOnceNothingCanBeSent() async throws {
    let upstream = try ScriptedUpstream(.deaf)
    let session = try SessionFixture(upstream.url) {
      Self.withoutHeartbeat(&$0)
      $0.session.limits.closing = .milliseconds(200)
    }
    try await session.until("ready") { session.handle.isReady }
    session.handle.close(flushWithin: .minutes(1))
    try await session.until("the upstream is being closed") { session.state == .closing }
    #expect(session.post("too late") == .closed)
    try await session.until("the session has ended") { session.handle.hasEnded }
    #expect(session.handle.total(.queued) == 0)
    try await session.finish()
    upstream.stop()
  }

  @Test func aClosedSessionShutsDownAtOnce() async throws {
    let upstream = try ScriptedUpstream(.listen)
    let session = try SessionFixture(upstream.url, Self.withoutHeartbeat)
    try await session.until("ready") { session.handle.isReady }
    session.handle.close()
    try await session.until("stopped") { session.state == .stopped }
    session.post("queued")
    session.handle.close(flushWithin: .hours(1))
    session.handle.open()
    try await session.until("the session has ended") { session.handle.hasEnded }
    #expect(session.handle.deliveryState(1) == .rejected)
    #expect(upstream.seen.connections == 1)
    try await session.finish()
    upstream.stop()
  }
}
