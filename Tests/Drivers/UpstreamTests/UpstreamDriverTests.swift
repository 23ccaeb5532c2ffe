import ByteStreams
import Dialing
import Host
import Outbox
import Reactor
import RouteNetlink
import Testing
import UpstreamSession

@testable import Upstream

@Suite(.serialized) struct UpstreamDriverTests {
  @Test func sendsAndReceives() async throws {
    let upstream = try ScriptedUpstream(.echo)
    let session = try SessionFixture(upstream.url) { $0.fields = [RequestField(name: "X-Custom", value: "yes")] }
    session.post("before it is open")
    try await session.until("the echo") { session.messages == ["before it is open"] }
    for number in 1...1_000 { session.post("\(number)") }
    try await session.until("all echoes") { session.messages.count == 1_001 }
    #expect(session.messages.dropFirst() == ArraySlice((1...1_000).map { "\($0)" }))
    try await session.until("confirmations") { session.handle.deliveryState(1_001) == .confirmed }
    let request = upstream.seen.requests[0]
    #expect(request.hasPrefix("GET /chat?token=secret HTTP/1.1\r\n"))
    #expect(request.contains("\r\nX-Custom: yes\r\n"))
    #expect(session.handle.snapshot().url == "ws://127.0.0.1:\(upstream.port)/chat")
    try await session.finish()
    #expect(upstream.seen.closes == [1001])
    upstream.stop()
  }

  /// The session uses the network only through its dialer.
  @Test func aSessionIsOfflineIfItsDialerFindsNoRoute() async throws {
    let session = try SessionFixture("ws://upstream.invalid/", dialing: DialerOfTest { _ in NoRouteDialer() })
    try await session.until("it is offline") { session.state == .offline }
    #expect(session.handle.snapshot().lastFailure == "the cable is out")
    #expect(session.handle.snapshot().attempts == 0, "no attempt is counted")
    try await session.finish()
  }

  @Test func sendsMessagesOfEverySize() async throws {
    let upstream = try ScriptedUpstream(.echo)
    let session = try SessionFixture(upstream.url)
    for size in [0, 1, 125, 126, 65_535, 65_536, 10 << 20] {
      let payload = [UInt8](repeating: UInt8(ascii: "x"), count: size)
      while case .full = session.post(payload) { try await Task.sleep(for: .milliseconds(1)) }
      try await session.until("\(size) bytes") { session.messages.last?.utf8.count == size }
    }
    try await session.finish()
    upstream.stop()
  }

  @Test func writesTheQueueBeforeItCloses() async throws {
    let upstream = try ScriptedUpstream(.listen)
    let session = try SessionFixture(upstream.url)
    for number in 0..<500 { session.post("\(number)") }
    session.handle.close(flushWithin: .seconds(30))
    try await session.until("the end") { session.handle.hasEnded }
    session.loop.stop()
    session.loop.join()
    #expect(upstream.seen.messages.count == 500)
    #expect(upstream.seen.closes == [1001])
    #expect(
      session.handle.deliveryState(500) == .confirmed, "the ping before the close frame confirms the last of them")
    #expect(session.post("late") == .closed)
    upstream.stop()
  }

  @Test func anAttemptWhoseLocalAddressIsRemovedIsRepeatedAtOnce() async throws {
    let upstream = try ScriptedUpstream(.silence, .listen)
    let session = try SessionFixture(upstream.url) {
      $0.session.limits.upgrading = .hours(1)
      $0.session.limits.wholeAttempt = .hours(1)
    }
    try await session.until("the upgrade is requested") { session.state == .upgrading }
    var change = NetworkChange()
    change.hasGained = true
    change.vanished = [.ipv4(0x7F00_0001)]
    session.handle.networkChanged(change)
    try await session.until("the next attempt") { session.state == .ready }
    #expect(upstream.seen.connections == 2)
    #expect(session.handle.snapshot().attempts == 0, "no failure is counted")
    try await session.finish()
    upstream.stop()
  }

  /// A message that is lost with its connection does not delay the shutdown.
  @Test func theShutdownEndsWhenTheLastMessageIsLost() async throws {
    let upstream = try ScriptedUpstream(.resetAfter(1 << 16), .silence)
    let session = try SessionFixture(upstream.url) {
      $0.outbox.maximumAttempts = 1
      $0.session.limits.upgrading = .hours(1)
      $0.session.limits.wholeAttempt = .hours(1)
    }
    try await session.until("the session is ready") { session.state == .ready }
    session.post([UInt8](repeating: 0, count: 8 << 20))
    session.handle.close(flushWithin: .hours(1))
    try await session.until("the end") { session.handle.hasEnded }
    #expect(session.handle.isSettled(1))
    session.loop.stop()
    session.loop.join()
    upstream.stop()
  }

  /// Responses that do not open a WebSocket, each with the failure that the session reports.
  @Test(arguments: [
    ("HTTP/1.1 200 OK\r\nContent-Length: 14\r\n\r\n<html>hi</html", "responded with 200 OK"),
    (
      "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: no\r\n\r\n",
      "Sec-WebSocket-Accept"
    ),
    ("SSH-2.0-OpenSSH_9.2\r\n", "not valid HTTP"),
    ("", "without a response"),
  ])
  func reportsARefusedUpgradeAndReconnects(response: String, reason: String) async throws {
    let upstream = try ScriptedUpstream(.respond(response), .echo)
    let session = try SessionFixture(upstream.url)
    try await session.until("the second attempt succeeds") { session.handle.isReady }
    let snapshot = session.handle.snapshot()
    #expect(snapshot.lastFailure?.contains(reason) == true, "\(snapshot.lastFailure ?? "nil")")
    #expect(snapshot.generation == Generation(2))
    if response.contains("html") { #expect(snapshot.status.lastReport?.body == "<html>hi</html") }
    try await session.finish()
    upstream.stop()
  }

  @Test func reconnectsAfterResetsAndSilence() async throws {
    let upstream = try ScriptedUpstream(
      .reset, .silence, .upgradeThenReset([0x81, 0x7E, 0x10]), .upgradeThenReset([]), .echo)
    let session = try SessionFixture(upstream.url) {
      $0.session.limits.wholeAttempt = .milliseconds(50)
      // A message written to a connection that is reset may have arrived. By default it is not sent again.
      $0.outbox.redelivery = .unconfirmed
    }
    session.post("through")
    try await session.until("the echo arrives") { session.messages == ["through"] }
    #expect(upstream.seen.connections >= 5)
    #expect(session.losses >= 1)
    try await session.finish()
    upstream.stop()
  }

  /// Frames that violate the protocol end the connection with the right code, and the session reconnects.
  @Test(
    arguments: [
      ([0x81, 0x80, 0, 0, 0, 0], 1002), ([0xC1, 0x00], 1002), ([0x83, 0x00], 1002), ([0x81, 0x01, 0xFF], 1007),
      ([0x82, 0x7F, 0, 0, 0, 0, 0x40, 0, 0, 0], 1009),
    ] as [([UInt8], UInt16)])
  func failsAConnectionThatViolatesTheProtocol(bytes: [UInt8], code: UInt16) async throws {
    let upstream = try ScriptedUpstream(.upgradeThenSend(bytes), .echo)
    let session = try SessionFixture(upstream.url) { $0.outbox.redelivery = .unconfirmed }
    session.post("through")
    try await session.until("the echo arrives") { session.messages == ["through"] }
    #expect(upstream.seen.closes.first == .some(code))
    try await session.finish()
    upstream.stop()
  }

  @Test func detectsASilentUpstream() async throws {
    let upstream = try ScriptedUpstream(.deaf, .echo)
    let session = try SessionFixture(upstream.url) {
      $0.session.liveness.interval = .milliseconds(20)
      $0.session.liveness.timeout = .milliseconds(40)
    }
    try await session.until("a second connection") { session.handle.snapshot().status.connections >= 2 }
    try await session.until("a round trip") { session.handle.snapshot().roundTripMilliseconds != nil }
    try await session.finish()
    upstream.stop()
  }

  @Test func keepsTheQueueWhileTheUpstreamDoesNotRead() async throws {
    let upstream = try ScriptedUpstream(.deaf)
    let session = try SessionFixture(upstream.url) { $0.session.limits.closing = .milliseconds(20) }
    let payload = [UInt8](repeating: UInt8(ascii: "x"), count: 64 << 10)
    try await session.until("the queue is full") { session.post(payload) == .full(.bytes) }
    let snapshot = session.handle.snapshot()
    #expect(snapshot.queuedBytes <= 4 << 20)
    try await session.finish()
    #expect(session.handle.snapshot().queuedMessages == 0)
    upstream.stop()
  }

  @Test func refusesImmediateMessagesWhileItIsNotReady() async throws {
    let upstream = try ScriptedUpstream(.silence)
    let session = try SessionFixture(upstream.url)
    #expect(session.post("now", ttl: .zero) == .notReady(.notConnected))
    session.post("soon gone", ttl: .milliseconds(10))
    try await session.until("it expires") { session.handle.deliveryState(1) == .expired }
    try await session.finish()
    upstream.stop()
  }

  @Test func closesAndOpensOnRequest() async throws {
    let upstream = try ScriptedUpstream(.echo)
    let session = try SessionFixture(upstream.url)
    try await session.until("ready") { session.handle.isReady }
    session.handle.close()
    try await session.until("stopped") { session.state == .stopped }
    session.post("waits")
    session.handle.open()
    try await session.until("the echo arrives") { session.messages == ["waits"] }
    #expect(upstream.seen.closes == [1000])
    try await session.finish()
    upstream.stop()
  }
}

private final class NoRouteDialer: Dialer {
  func dial(
    _ destination: DialDestination, _ cancellation: Cancellation, _ input: inout ByteQueue,
    report: (DialPhase) -> Void
  ) async throws(DialError) -> Transport {
    report(.connecting)
    throw .failed(.connecting, .noRoute, "the cable is out")
  }
}
