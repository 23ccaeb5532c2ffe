import ByteStreams
import Metrics
import Outbox
import Testing
import UpstreamProtocol
import UpstreamSession

@testable import Upstream

/// Sessions with an `UpstreamProtocol` other than `PlainProtocol`.
@Suite(.serialized) struct ApplicationProtocolTests {
  @Test func oneMessageMayBeSentAsSeveralFrames() async throws {
    let upstream = try ScriptedUpstream(.listen)
    let session = try SessionFixture(upstream.url, protocol: TwoPartProtocol())
    session.post("hello")
    session.post("world")
    try await session.until("both are confirmed") { session.handle.deliveryState(2) == .confirmed }
    #expect(upstream.seen.messages.map { String(decoding: $0, as: UTF8.self) } == ["begin", "hello", "begin", "world"])
    try await session.finish()
    upstream.stop()
  }

  @Test func onlyPushesReachTheClients() async throws {
    let upstream = try ScriptedUpstream(.echo)
    let session = try SessionFixture(upstream.url, protocol: TwoPartProtocol())
    session.post("hello")
    try await session.until("the push is received") { session.messages == ["hello"] }
    try await session.until("the heartbeat is counted") { session.handle.metrics.receivedHeartbeats.total == 1 }
    try await session.finish()
    upstream.stop()
  }
}

/// A session with a protocol that only the tests know.
@Suite(.serialized) struct ThirdProtocolTests {
  private static func session(
    with upstream: ScriptedUpstream, _ change: (inout UpstreamSettings) -> Void = { _ in }
  ) throws -> SessionFixture {
    try SessionFixture(upstream.url, protocol: UpperCaseProtocol()) { settings in
      // `UpstreamSettings` derives the same settings from a protocol that is in the list of declarations.
      settings.session.setup = [SetupStep(expectsResponse: true, timeLimit: .minutes(1))]
      settings.session.liveness.endsConnection = false
      change(&settings)
    }
  }

  @Test func messagesAreEncodedAndThePingsOfTheProtocolConfirmThem() async throws {
    let upstream = try ScriptedUpstream(.echo)
    let session = try Self.session(with: upstream)
    session.post("hello")
    try await session.until("the message came back") { session.messages == ["HELLO"] }
    try await session.until("it is confirmed") { session.handle.deliveryState(1) == .confirmed }
    let texts = upstream.seen.messages.map { String(decoding: $0, as: UTF8.self) }
    #expect(texts.first == "HI" && texts.contains("HELLO") && texts.contains("?"))
    try await session.finish()
    upstream.stop()
  }

  @Test func theServerSetsTheIntervalOfHeartbeats() async throws {
    let upstream = try ScriptedUpstream(.echo)
    let session = try Self.session(with: upstream)
    try await session.until("heartbeats are sent") { session.handle.metrics.sentHeartbeats.total >= 2 }
    #expect(session.messages.isEmpty && upstream.seen.connections == 1)
    try await session.finish()
    upstream.stop()
  }

  @Test func aCloseOfTheServerEndsTheConnectionCleanly() async throws {
    let upstream = try ScriptedUpstream(.echo)
    let session = try Self.session(with: upstream)
    session.post("?,bye")
    try await session.until("the session connects again") { upstream.seen.connections >= 2 }
    #expect(session.handle.snapshot().lastFailure == "the server said BYE" && session.messages.isEmpty)
    try await session.finish()
    upstream.stop()
  }

  @Test func aViolationNamesTheProtocol() async throws {
    let upstream = try ScriptedUpstream(.echo)
    let session = try Self.session(with: upstream)
    session.post("!")
    try await session.until("the connection has failed") {
      session.handle.snapshot().lastFailure == "violation of Upper Case: a server does not shout"
    }
    try await session.finish()
    upstream.stop()
  }

  @Test func aTimeoutNamesTheStepOfTheProtocol() async throws {
    let upstream = try ScriptedUpstream(.listen)
    let session = try Self.session(with: upstream) { $0.session.limits.setup = .milliseconds(50) }
    try await session.until("the setup has failed") {
      session.handle.snapshot().lastFailure
        == "the server did not return the greeting within the timeout ('upstream.timeouts.on_open')"
    }
    try await session.finish()
    upstream.stop()
  }
}

/// Each outgoing message follows a `begin`. A `begin` of the upstream counts as its heartbeat.
private struct TwoPartProtocol: UpstreamProtocol, ProtocolDeclaration, Equatable {
  var name: String { "Two Parts" }
  var capabilities: ProtocolCapabilities { [.examination, .encoding] }

  func makeProtocol(_ conventions: UpstreamConventions, messageBytes: Int) -> any UpstreamProtocol { self }

  mutating func receive(_ payload: Span<UInt8>, kind: MessageKind, _ memory: inout ProtocolMemory) -> ProtocolEvent {
    payload.text() == "begin" ? .heartbeat : .push
  }

  mutating func encode(
    _ payload: Span<UInt8>, kind: MessageKind, isCall: Bool, _ write: (MessageParts, MessageKind) -> Void
  ) -> EncodingResult {
    write(MessageParts(Array("begin".utf8).span), .text)
    write(MessageParts(payload), kind)
    return .written
  }
}
