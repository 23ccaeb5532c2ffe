import ByteStreams
import Dialing
import HTTPCodec
import Host
import Inbox
import Journal
import LoopbackSupport
import Profiles
import Reactor
import RedisStore
import Synchronization
import TLSEngine
import Testing
import Threading
import UpstreamSession
import WebSocketCodec
import Webhooks

@testable import Sessions
@testable import Upstream

/// Reloaded settings and webhooks of a session that gateways share.
@Suite struct SharedSessionReloadTests {
  /// Responds to each request with 200, but to none while it hangs.
  private final class WebhookReceiver: Sendable {
    private let state = Locked<(pushes: [String], hangs: Bool, ended: Int)>(([], false, 0))
    private let server: LoopbackServer

    init() throws {
      server = try LoopbackServer()
      server.serve { [self] in Connection($0, self) }
    }

    var address: SocketAddress { server.address }
    func stop() { server.stop() }

    /// The number of the push in each delivery.
    var pushes: [String] { state.withLock { $0.pushes } }
    /// The number of ended connections.
    var ended: Int { state.withLock { $0.ended } }
    func hang(_ hangs: Bool) { state.withLock { $0.hangs = hangs } }

    /// Returns whether to respond.
    private func note(_ id: String) -> Bool {
      state.withLock { state in
        state.pushes.append(String(id.split(separator: "_").last ?? ""))
        return !state.hangs
      }
    }

    private final class Connection: LoopTask {
      private let channel: Channel
      private let receiver: WebhookReceiver

      init(_ channel: Channel, _ receiver: WebhookReceiver) {
        self.channel = channel
        self.receiver = receiver
      }

      func run() async {
        let channel = channel
        var input = ""
        var output = OutputQueue()
        loop: while true {
          switch channel.receive() {
          case .bytes: input += channel.received.text()
          case .wouldBlock:
            guard await channel.readable() == .ready else { break loop }
            continue
          case .endOfStream, .failed: break loop
          }
          guard let end = input.firstRange(of: "\r\n\r\n") else { continue }
          let lines = input[..<end.lowerBound].split(separator: "\r\n")
          func value(_ name: String) -> Substring {
            lines.first { $0.lowercased().hasPrefix(name + ": ") }?.dropFirst(name.count + 2) ?? ""
          }
          guard input[end.upperBound...].utf8.count >= Int(value("content-length")) ?? 0 else { continue }
          guard receiver.note(String(value("webhook-id"))) else { continue }
          output.withText { $0.append("HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n") }
          _ = output.flush(to: channel)
          break
        }
        channel.close()
        receiver.state.withLock { $0.ended += 1 }
      }
    }
  }

  private func webhook(
    _ name: String, _ receiver: WebhookReceiver, _ change: (inout WebhookSettings) -> Void = { _ in }
  ) throws -> WebhookPlan {
    var settings = WebhookSettings(name: name, url: try HTTPURL("http://\(receiver.address)/"))
    settings.rules.allowed = [try #require(AddressBlock("127.0.0.0/8"))]
    settings.retries = [.milliseconds(10)]
    change(&settings)
    var cache = TLSContextCache(fileTimeout: .seconds(5))
    return try WebhookPlan(settings, with: &cache)
  }

  @Test func onlyTheHolderDeliversToWebhooks() async throws {
    let receiver = try WebhookReceiver()
    defer { receiver.stop() }
    let fixture = try SharedSessionFixture(webhooks: [try webhook("hook", receiver)])
    defer { fixture.end() }
    fixture.becomeHolder()
    let first = try fixture.session
    #expect(first.webhooks?.contains("hook") == true)
    #expect(fixture.post("one", to: first))
    try await fixture.eventually("the push is delivered") { receiver.pushes == ["1"] }
    let labels = ",webhook=\"hook\""
    let results = labels + ",result=\"delivered\""
    try await fixture.eventually("it is settled") {
      fixture.metric("drawbridge_webhook_attempts_total", results) == 1
        && fixture.metric("drawbridge_webhook_lag_messages", labels) == 0
    }

    // The receiver has a request when the session is lost.
    receiver.hang(true)
    #expect(fixture.post("two", to: first))
    try await fixture.eventually("the push is sent") { receiver.pushes == ["1", "2"] }
    #expect(fixture.metric("drawbridge_webhook_lag_messages", labels) == 1)
    let ended = receiver.ended
    fixture.lose()
    try await fixture.eventually("the request has ended") { receiver.ended > ended }
    #expect(try fixture.session.webhooks == nil)
    try await fixture.eventually("the webhooks are idle") { first.webhooks?.isIdle == true }
    #expect(fixture.metric("drawbridge_webhook_lag_messages", labels) == 0, "only the holder has a position")

    // Another tenure has leased this push, so it is delivered again. The push before it is settled.
    receiver.hang(false)
    fixture.becomeHolder()
    let second = try fixture.session
    try await fixture.eventually("the push is delivered again") { receiver.pushes == ["1", "2", "2"] }
    #expect(fixture.post("three", to: second))
    try await fixture.eventually("the push is delivered") { receiver.pushes == ["1", "2", "2", "3"] }
    try await fixture.eventually("the metrics continue") {
      fixture.metric("drawbridge_webhook_attempts_total", results) == 3
    }
  }

  /// When the permission ends.
  enum End: CaseIterable { case beforeAnAttempt, beforeItIsWritten }

  @Test(arguments: End.allCases) func nothingIsDeliveredWithoutPermission(_ end: End) async throws {
    let receiver = try WebhookReceiver()
    defer { receiver.stop() }
    let fixture = try SharedSessionFixture(webhooks: [
      try webhook("hook", receiver) { $0.timeout = .milliseconds(100) }
    ]) {
      $0.session.liveness.interval = .hours(1)
    }
    defer { fixture.end() }
    // How many more times permission is given, and how many times it was refused.
    let permission = Locked((left: Int.max, refusals: 0))
    fixture.shared.becomeHolder(
      of: "default", fixture.store.open(),
      WritePermission {
        permission.withLock { state in
          if state.left > 0 { state.left -= 1 } else { state.refusals += 1 }
          return state.left > 0
        }
      })
    let held = try fixture.session
    #expect(fixture.post("one", to: held))
    try await fixture.eventually("the push is delivered") { receiver.pushes == ["1"] }
    try await fixture.eventually("it is settled") { held.webhooks?.lag(of: "hook") == 0 }
    let attempts = fixture.webhookAttempts

    permission.withLock { $0.left = end == .beforeAnAttempt ? 0 : 2 }
    fixture.append("two", to: held)
    // Some refusals are for this attempt, and some for later attempts.
    try await fixture.eventually("it was refused") {
      permission.withLock { $0.refusals } > 8 && held.webhooks?.status(of: "hook")?.inProgress == 0
        || receiver.pushes.count > 1
    }
    #expect(receiver.pushes == ["1"] && fixture.webhookAttempts == attempts, "that is no failure of the receiver")
    permission.withLock { $0.left = .max }
    try await fixture.eventually("the push is delivered") { receiver.pushes == ["1", "2"] }
  }

  @Test func webhooksOfALostSessionLeaveNoState() async throws {
    let receiver = try WebhookReceiver()
    defer { receiver.stop() }
    let fixture = try SharedSessionFixture(webhooks: [try webhook("hook", receiver), try webhook("other", receiver)])
    defer { fixture.end() }
    receiver.hang(true)
    for _ in 0..<3 {
      let sent = receiver.pushes.count
      fixture.becomeHolder()
      weak let session = try fixture.session
      weak let webhooks = session?.webhooks
      try await fixture.eventually("they have positions") { session?.consumers.statuses.count == 2 }
      fixture.append("x", to: try #require(session))
      try await fixture.eventually("requests are in progress") { receiver.pushes.count >= sent + 2 }
      fixture.lose()
      try await fixture.eventually("all is freed") { session == nil && webhooks == nil }
    }
  }

  @Test func theNextHolderUsesReloadedSettings() async throws {
    let receiver = try WebhookReceiver()
    defer { receiver.stop() }
    let fixture = try SharedSessionFixture()
    defer { fixture.end() }
    var settings = fixture.slot.plan.settings.value
    settings.session.onDemand = true
    let upstream = SessionReload.Upstream.connection(try PreparedSettings(settings), because: .configuration)
    var retention = Retention()
    retention.count = 2
    // While another gateway is the holder.
    fixture.directory.reload(
      "default", SessionReload(retention: retention, webhooks: [try webhook("hook", receiver)], upstream: upstream))
    #expect(try fixture.session.upstream.hasEnded, "nothing connects")
    fixture.becomeHolder()
    let held = try fixture.session
    #expect(held.webhooks?.contains("hook") == true && held.upstream.isOnDemand.load(ordering: .relaxed))
    for text in ["one", "two", "three"] { #expect(fixture.post(text, to: held)) }
    try await fixture.eventually("the pushes") { held.inbox.latest.sequence == 3 }
    try await fixture.eventually("two are kept") { try SharedSessionsTests.texts(held.inbox).count == 2 }

    // While this gateway is the holder.
    retention.count = 1
    fixture.directory.reload("default", SessionReload(retention: retention, webhooks: [], upstream: .unchanged))
    try await fixture.eventually("one is kept") { try SharedSessionsTests.texts(held.inbox).count == 1 }
    #expect(held.webhooks?.contains("hook") == false)
    fixture.lose()
    #expect(try SharedSessionsTests.texts(fixture.session.inbox).count == 1)
    fixture.becomeHolder()
    #expect(try fixture.session.webhooks?.contains("hook") == false)
    #expect(try fixture.session.upstream.isOnDemand.load(ordering: .relaxed))
  }

  @Test func aCopyThatBeganBeforeAReloadHasTheNewLimits() throws {
    let fixture = try SharedSessionFixture()
    defer { fixture.end() }
    fixture.becomeHolder()
    fixture.lose()
    fixture.shared.follow("default", .restarted(epoch: fixture.store.session.epoch, fixture.store.terms))
    var retention = Retention()
    retention.count = 1
    fixture.directory.reload("default", SessionReload(retention: retention, webhooks: [], upstream: .unchanged))
    fixture.shared.follow("default", .entries((1...3).map { SharedSessionsTests.push($0, in: fixture.store) }))
    fixture.shared.follow("default", .isCurrent)
    #expect(try SharedSessionsTests.texts(fixture.session.inbox).count == 1)
  }

  @Test func webhooksThatHaveEndedDoNotBeginInTheNextSession() async throws {
    let receiver = try WebhookReceiver()
    defer { receiver.stop() }
    let fixture = try SharedSessionFixture(webhooks: [try webhook("hook", receiver)])
    defer { fixture.end() }
    let ends = Locked(0)
    fixture.becomeHolder()
    fixture.directory.stopWebhooks { ends.withLock { $0 += 1 } }
    try await fixture.eventually("they have ended") { fixture.directory.webhooksAreIdle && ends.withLock { $0 } > 0 }
    // The deadline passes, and the session is acquired again while the gateway drains.
    fixture.lose()
    fixture.becomeHolder()
    let held = try fixture.session
    #expect(fixture.post("one", to: held))
    try await fixture.eventually("the push") { held.inbox.latest.sequence == 1 }
    #expect(fixture.directory.webhooksAreIdle && held.webhooks?.status(of: "hook") == nil && receiver.pushes.isEmpty)
  }
}
