import ByteStreams
import Metrics
import Outbox
import Testing
import UpstreamProtocol
import UpstreamSession

@testable import Upstream

/// Sessions with an `UpstreamProtocol` other than `PlainProtocol`.
@Suite(.serialized) struct ApplicationProtocolTests {
  @Test func oneMessageMayBeSentAsSeveral() async throws {
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

/// Each outgoing message follows a `begin`. A `begin` of the upstream counts as its heartbeat.
private struct TwoPartProtocol: UpstreamProtocol {
  var examinesMessages: Bool { true }
  var treatsAnyMessageAsHeartbeat: Bool { false }
  var encodesMessages: Bool { true }
  var awaitedStep: Int? { nil }

  mutating func setSecrets(_ secrets: TemplateValues) {}
  mutating func prepareSetup(from first: Int, _ memory: ProtocolMemory, now: Int64) throws(SetupError) {}
  mutating func beginSetup(step: Int) -> [ProtocolFrame] { [] }
  func name(ofStep step: Int) -> String { "\(step)" }

  mutating func receive(_ payload: Span<UInt8>, kind: MessageKind, _ memory: inout ProtocolMemory) -> ProtocolEvent {
    payload.text() == "begin" ? .heartbeat : .push
  }

  mutating func heartbeat(
    _ counter: UInt64, _ memory: ProtocolMemory, now: Int64
  ) throws(TemplateError) -> SharedBytes? { nil }

  mutating func heartbeatReply(_ memory: ProtocolMemory, now: Int64) throws(TemplateError) -> SharedBytes? { nil }

  mutating func encode(
    _ payload: Span<UInt8>, kind: MessageKind, _ write: (Span<UInt8>, MessageKind) -> Void
  ) -> EncodingResult {
    write(Array("begin".utf8).span, .text)
    write(payload, kind)
    return .written
  }
}
