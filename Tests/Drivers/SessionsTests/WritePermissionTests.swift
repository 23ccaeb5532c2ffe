import ByteStreams
import DemoUpstream
import Dialing
import Foundation
import Inbox
import Reactor
import Synchronization
import Testing
import Upstream
import UpstreamSession

@testable import Sessions

/// A gateway checks its permission at each write to an upstream.
@Suite struct WritePermissionTests {
  private final class Switch: Sendable {
    private let on = Atomic(true)
    var isOn: Bool {
      get { on.load(ordering: .sequentiallyConsistent) }
      set { on.store(newValue, ordering: .sequentiallyConsistent) }
    }
  }

  enum Write: CaseIterable { case message, ping }

  @Test(arguments: Write.allCases)
  func nothingIsWrittenWithoutPermission(_ write: Write) async throws {
    let server = try DemoUpstream(tickEvery: .hours(1))
    defer { server.stop() }
    let relay = try RecordingRelay(to: server.address)
    defer { relay.stop() }
    let fixture = try SharedSessionFixture(upstream: relay.address) {
      $0.session.backoff.quickReconnect = .milliseconds(10)
      $0.session.backoff.base = .milliseconds(50)
      if write == .ping { $0.session.liveness.interval = .milliseconds(20) }
    }
    defer { fixture.end() }
    let permission = Switch()
    fixture.shared.becomeHolder(of: "default", fixture.store.open(), WritePermission { permission.isOn })
    let session = try fixture.session
    #expect(fixture.post("one", to: session))
    try await fixture.eventually("the push") { session.inbox.latest.sequence == 1 }

    permission.isOn = false
    // When the connection has ended, all bytes that were written before have arrived.
    if write == .message { #expect(fixture.post("two", to: session)) }
    try await fixture.eventually("the connection has ended") { !relay.seen.ends.isEmpty }
    #expect(relay.seen.ends.first == ECONNRESET, "neither a close frame nor FIN")
    let bytes = relay.seen.bytes
    // A connection attempt does not write either.
    try await fixture.eventually("it has tried again") { relay.seen.ends.count >= 3 }
    #expect(relay.seen.bytes == bytes)

    // The permission is given again before the session is given up.
    permission.isOn = true
    if write == .ping { #expect(fixture.post("two", to: session)) }
    try await fixture.eventually("the next push") { session.inbox.latest.sequence == 2 }
    #expect(relay.seen.bytes > bytes)
  }

  @Test func aLostSessionWritesNothing() async throws {
    let server = try DemoUpstream(tickEvery: .hours(1))
    defer { server.stop() }
    let relay = try RecordingRelay(to: server.address)
    defer { relay.stop() }
    let fixture = try SharedSessionFixture(upstream: relay.address) { $0.session.liveness.interval = .hours(1) }
    defer { fixture.end() }
    fixture.shared.becomeHolder(of: "default", fixture.store.open(), WritePermission { true })
    let session = try fixture.session
    #expect(fixture.post("one", to: session))
    try await fixture.eventually("it is confirmed") {
      session.upstream.snapshot().unconfirmedMessages == 0 && session.inbox.latest.sequence == 1
    }
    let bytes = relay.seen.bytes
    fixture.lose()
    try await fixture.eventually("the connection has ended") { relay.seen.ends.count == 1 }
    #expect(relay.seen.ends == [ECONNRESET] && relay.seen.bytes == bytes, "no close frame")
  }
}
