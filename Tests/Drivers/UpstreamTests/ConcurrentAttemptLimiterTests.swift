import ByteStreams
import Testing
import UpstreamSession
import WebSocketCodec

@testable import Upstream

/// Limits on connection attempts per host, which apply to several sessions together.
@Suite(.serialized) struct ConcurrentAttemptLimiterTests {
  private static let wait = "HTTP/1.1 503 Service Unavailable\r\nRetry-After: 1800\r\nContent-Length: 0\r\n\r\n"
  /// The same wait as a date, half an hour after the response's Date. Both dates are long past by our clock.
  private static let waitUntil =
    "HTTP/1.1 429 Too Many Requests\r\nDate: Sun, 06 Nov 1994 08:00:00 GMT\r\n"
    + "Retry-After: Sun, 06 Nov 1994 08:30:00 GMT\r\nContent-Length: 0\r\n\r\n"

  @Test(arguments: [wait, waitUntil])
  func retryAfterAppliesToAllSessionsOfAHost(response: String) async throws {
    let upstream = try ScriptedUpstream(.respond(response), .echo)
    let attemptLimiter = ConcurrentAttemptLimiter()
    let refused = try SessionFixture(upstream.url, attemptLimiter: attemptLimiter)
    try await refused.until("it is refused") { refused.state == .backoff }
    let other = try SessionFixture(upstream.url, attemptLimiter: attemptLimiter)
    try await other.until("it waits") { other.state == .backoff }
    for session in [refused, other] {
      let wait = session.handle.snapshot().nextAttempt.map { ($0 - session.now).seconds } ?? 0
      // Nearly half an hour, with a margin for a slow machine. Our own backoff would be seconds.
      #expect(wait > 900 && wait < 2_000)
    }
    // An operator's `open` overrides the wait, for this session only.
    other.handle.close()
    try await other.until("it is down") { other.state == .stopped }
    other.handle.open()
    try await other.until("it is ready") { other.handle.isReady }
    #expect(upstream.seen.connections == 2)
    #expect(refused.state == .backoff)
    #expect(other.handle.snapshot().attempts == 0)
    // A different port is a different server.
    let elsewhere = try ScriptedUpstream(.echo)
    let third = try SessionFixture(elsewhere.url, attemptLimiter: attemptLimiter)
    try await third.until("it is ready") { third.handle.isReady }
    for session in [refused, other, third] { try await session.finish() }
    upstream.stop()
    elsewhere.stop()
  }

  /// Retry-After applies to the host that responded, not to the host that redirected to it.
  @Test func retryAfterAppliesToTheHostThatResponded() async throws {
    let busy = try ScriptedUpstream(.respond(Self.wait))
    let redirection = "HTTP/1.1 302 Found\r\nLocation: ws://127.0.0.1:\(busy.port)/\r\nContent-Length: 0\r\n\r\n"
    let upstream = try ScriptedUpstream(.respond(redirection), .echo)
    let attemptLimiter = ConcurrentAttemptLimiter()
    let redirected = try SessionFixture(upstream.url, attemptLimiter: attemptLimiter)
    try await redirected.until("it is refused") { redirected.state == .backoff }
    let direct = try SessionFixture(upstream.url, attemptLimiter: attemptLimiter)
    try await direct.until("it is ready") { direct.handle.isReady }
    let late = try SessionFixture(busy.url, attemptLimiter: attemptLimiter)
    try await late.until("it waits") { late.state == .backoff }
    #expect(busy.seen.connections == 1)
    for session in [redirected, direct, late] { try await session.finish() }
    upstream.stop()
    busy.stop()
  }

  /// A client chooses the requests that the upstream responds to, so the wait in a response must not apply to other
  /// clients.
  @Test func aPauseForOneClientDoesNotDelayAnotherClient() async throws {
    let upstream = try ScriptedUpstream(.respond(Self.wait), .echo)
    let attemptLimiter = ConcurrentAttemptLimiter()
    let refused = try SessionFixture(upstream.url, attemptLimiter: attemptLimiter, owner: "a")
    try await refused.until("it is refused") { refused.state == .backoff }
    let other = try SessionFixture(upstream.url, attemptLimiter: attemptLimiter, owner: "b")
    try await other.until("it is ready") { other.handle.isReady }
    let same = try SessionFixture(upstream.url, attemptLimiter: attemptLimiter, owner: "a")
    try await same.until("it waits") { same.state == .backoff }
    #expect(upstream.seen.connections == 2)
    for session in [refused, other, same] { try await session.finish() }
    upstream.stop()
  }

  @Test func aSessionThatEndsWhileItWaitsReturnsItsReservedTime() async throws {
    let upstream = try ScriptedUpstream(.echo)
    var limits = AttemptLimits()
    limits.burst = 1
    limits.perSecond = 1
    let attemptLimiter = ConcurrentAttemptLimiter(limits)
    let first = try SessionFixture(upstream.url, attemptLimiter: attemptLimiter)
    try await first.until("it is ready") { first.handle.isReady }
    // If the ended sessions kept their reserved times, the last session would have to wait longer than the test does.
    for _ in 0..<100 {
      let session = try SessionFixture(upstream.url, attemptLimiter: attemptLimiter)
      try await session.until("it waits") { session.state == .backoff || session.handle.isReady }
      try await session.finish()
    }
    let last = try SessionFixture(upstream.url, attemptLimiter: attemptLimiter)
    try await last.until("it is ready") { last.handle.isReady }
    for session in [first, last] { try await session.finish() }
    upstream.stop()
  }

  /// The replacement of a connection is delayed. Meanwhile, the session becomes idle.
  @Test func aSessionThatBecomesIdleReturnsItsReservedTime() async throws {
    let upstream = try ScriptedUpstream(.echo)
    var limits = AttemptLimits()
    limits.burst = 1
    limits.perSecond = 1
    let attemptLimiter = ConcurrentAttemptLimiter(limits)
    let session = try SessionFixture(upstream.url, attemptLimiter: attemptLimiter) {
      $0.session.onDemand = true
      $0.session.idleAfter = .minutes(10)
    }
    session.post("first")
    try await session.until("it is ready") { session.messages == ["first"] }
    let host = session.handle.attemptKey(of: try WebSocketURL(upstream.url).server)
    func reserve() throws -> HostAttemptLimiter.Ticket {
      guard case .wait(let ticket) = attemptLimiter.admit(host, nil, now: session.now) else { throw NoTicket() }
      return ticket
    }
    for _ in 0..<100 { _ = try reserve() }
    let last = try reserve()
    var settings = session.handle.settings.value
    settings.session.idleAfter = .milliseconds(1)
    session.handle.reconfigure(try PreparedSettings(settings), because: .configuration)
    try await session.until("it is idle") { session.state == .idle }
    let history = session.handle.snapshot().status.history
    #expect(history.contains { $0.to == .replacing }, "it has asked for a time")
    #expect(try reserve().slot == last.slot + .seconds(1), "nobody has the next time")
    try await session.finish()
    upstream.stop()
  }

  private struct NoTicket: Error {}

  @Test func aHangingAttemptCountsUntilItIsCancelled() async throws {
    let upstream = try ScriptedUpstream(.silence, .echo)
    var limits = AttemptLimits()
    limits.concurrent = 1
    limits.perSecond = 1_000
    let attemptLimiter = ConcurrentAttemptLimiter(limits)
    let hanging = try SessionFixture(upstream.url, attemptLimiter: attemptLimiter) {
      $0.session.limits.wholeAttempt = .minutes(10)
    }
    try await hanging.until("the server has accepted the connection") { upstream.seen.connections == 1 }
    let waiting = try SessionFixture(upstream.url, attemptLimiter: attemptLimiter)
    try await waiting.until("it has been delayed many times") {
      waiting.handle.snapshot().status.generation.number > 20
    }
    #expect(upstream.seen.connections == 1)
    #expect(waiting.handle.snapshot().attempts == 0)
    // Each delay causes two transitions, which lead back to the same state. Readers of the state must still see a
    // change.
    func last() -> UInt64 { waiting.handle.snapshot().status.history.last?.sequence ?? 0 }
    let (revision, transition) = (waiting.handle.stateRevision, last())
    try await waiting.until("it has been delayed again") { last() > transition + 4 }
    #expect(waiting.handle.stateRevision > revision)
    hanging.handle.close()
    try await waiting.until("it is allowed to connect") { waiting.handle.isReady }
    for session in [hanging, waiting] { try await session.finish() }
    upstream.stop()
  }

  /// Every outcome of an attempt frees its place. After all of them, another attempt is still possible.
  @Test func everyOutcomeOfAnAttemptEndsItsCount() async throws {
    let upstream = try ScriptedUpstream(
      .reset, .respond(""), .respond("HTTP/1.1 500 No\r\n\r\n"), .silence, .upgradeThenReset([]),
      .upgradeThenSend([0xFF]),
      .respond("HTTP/1.1 302 Found\r\nLocation: /elsewhere\r\n\r\n"), .reset, .echo)
    var limits = AttemptLimits()
    limits.concurrent = 1
    limits.perSecond = 1_000
    let session = try SessionFixture(upstream.url, attemptLimiter: ConcurrentAttemptLimiter(limits)) {
      $0.session.limits.wholeAttempt = .milliseconds(50)
    }
    session.post("through")
    try await session.until("it is ready") { session.handle.isReady && upstream.seen.connections >= 9 }
    try await session.finish()
    upstream.stop()
  }
}
