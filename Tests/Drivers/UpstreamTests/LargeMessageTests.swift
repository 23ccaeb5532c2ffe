import ByteStreams
import Deflate
import Reactor
import Testing
import UpstreamProtocol
import UpstreamSession

@testable import Upstream

/// Large messages of the upstream, which another thread reads.
@Suite(.serialized) struct LargeMessageTests {
  private static let close: [UInt8] = [0x88, 2, 0x03, 0xE8]

  private static func frame(_ opcode: UInt8, _ payload: [UInt8]) -> [UInt8] {
    guard payload.count > 125 else { return [0x80 | opcode, UInt8(payload.count)] + payload }
    let length = payload.count < 65_536 ? 2 : 8
    let size = (1...length).map { UInt8(truncatingIfNeeded: payload.count >> (8 * (length - $0))) }
    return [0x80 | opcode, length == 2 ? 126 : 127] + size + payload
  }

  private static func texts(_ texts: [String]) -> [UInt8] { texts.flatMap { frame(1, Array($0.utf8)) } }

  private static func large(_ text: String) -> String { String(repeating: text, count: 300_000 / text.utf8.count) }

  private static let messages = [
    "first", large("a"), "second", large("[1,2]"), large("\n\u{1}ß"), "third", "", large("{\"a\":1}"), "last",
  ]

  @Test func messagesStayInOrderUpToTheEndOfTheConnection() async throws {
    let upstream = try ScriptedUpstream(.upgradeThenSend(Self.texts(Self.messages) + Self.close), .listen)
    let session = try SessionFixture(upstream.url)
    try await session.until("the next connection") { upstream.seen.connections == 2 }
    let isSame = session.messages == Self.messages
    #expect(isSame, "\(session.messages.map(\.utf8.count))")
    #expect(session.renderingCount == 4)
    try await session.finish()
    upstream.stop()
  }

  @Test func binaryMessagesAndTheirSmallestSize() async throws {
    let sizes = [LargeMessage.smallest - 1, LargeMessage.smallest, LargeMessage.smallest + 1]
    let frames = sizes.flatMap { Self.frame(2, [UInt8](repeating: 0x61, count: $0)) }
    let upstream = try ScriptedUpstream(.upgradeThenSend(frames))
    let session = try SessionFixture(upstream.url)
    try await session.until("all messages") { session.messages.count == 3 }
    #expect(session.messages.map(\.utf8.count) == sizes)
    #expect(session.renderingCount == 2)
    try await session.finish()
    upstream.stop()
  }

  @Test func aSmallMessageThatDecompressesToALargeOneIsLarge() async throws {
    let sizes = [LargeMessage.smallest - 1, LargeMessage.smallest, 3]
    let frames = sizes.flatMap { size in
      var deflater = Deflater(.gzip)
      var packed = ByteQueue()
      deflater.compress([UInt8](repeating: 0x61, count: size).span, into: &packed)
      deflater.finish(into: &packed)
      return Self.frame(2, packed.copyBytes())
    }
    let upstream = try ScriptedUpstream(.upgradeThenSend(frames + Self.texts(["last"])))
    let session = try SessionFixture(upstream.url) { $0.conventions.codec = .gzip }
    try await session.until("all messages") { session.messages.count == 4 }
    #expect(session.messages.map(\.utf8.count) == sizes + [4])
    #expect(session.renderingCount == 1)
    try await session.finish()
    upstream.stop()
  }

  /// The loop sends and confirms messages while another thread reads a large message.
  @Test func theLoopContinuesMeanwhile() async throws {
    let upstream = try ScriptedUpstream(.upgradeThenSend(Self.texts([Self.large("x"), "after"])))
    let session = try SessionFixture(upstream.url)
    session.holdRenderings(true)
    try await session.until("the work begins") { session.renderingCount == 1 }
    session.post("meanwhile")
    try await session.until("the message arrives") { upstream.seen.messages.count == 1 }
    #expect(session.messages.isEmpty, "nothing overtakes the large message")
    session.holdRenderings(false)
    try await session.until("both messages") { session.messages == [Self.large("x"), "after"] }
    try await session.finish()
    upstream.stop()
  }

  /// The upstream does not count as silent while its message is read.
  @Test func aLongWorkIsNotSilence() async throws {
    let upstream = try ScriptedUpstream(.upgradeThenSend(Self.texts([Self.large("x")])), .listen)
    let session = try SessionFixture(upstream.url) {
      $0.session.liveness.interval = .milliseconds(100)
      $0.session.liveness.timeout = .seconds(1)
    }
    session.holdRenderings(true)
    try await session.until("the work begins") { session.renderingCount == 1 }
    let end = session.now + .milliseconds(2_500)
    try await session.until("the timeout passes twice") { session.now >= end }
    session.holdRenderings(false)
    try await session.until("the message") { session.messages == [Self.large("x")] }
    #expect(upstream.seen.connections == 1 && session.losses == 0)
    try await session.finish()
    upstream.stop()
  }

  @Test func aSessionThatEndsMeanwhilePassesNothingOn() async throws {
    let upstream = try ScriptedUpstream(
      .upgradeThenSend(Self.texts([Self.large("x")])), .upgradeThenSend(Self.texts([Self.large("y")])))
    let session = try SessionFixture(upstream.url)
    session.holdRenderings(true)
    try await session.until("the work begins") { session.renderingCount == 1 }
    session.handle.close(flushWithin: .zero)
    try await session.until("the session has ended") { session.handle.hasEnded }
    session.holdRenderings(false)
    // The work of the next session follows on the same thread.
    let next = try SessionFixture(upstream.url)
    try await next.until("the next message") { next.messages == [Self.large("y")] }
    #expect(session.messages.isEmpty)
    try await next.finish()
    session.loop.stop()
    session.loop.join()
    upstream.stop()
  }

  /// Heartbeats change the state of the protocol while the message is read, so the message is read again.
  @Test func aMessageIsReadAgainIfTheProtocolHasChanged() async throws {
    let greeting = Self.texts(["HI", Self.large("x"), "after"])
    let upstream = try ScriptedUpstream(.upgradeThenSend(greeting))
    let session = try SessionFixture(upstream.url, protocol: UpperCaseProtocol()) { settings in
      settings.session.setup = [SetupStep(expectsResponse: true, timeLimit: .minutes(1))]
      settings.session.liveness.endsConnection = false
    }
    session.holdRenderings(true)
    try await session.until("the work begins") { session.renderingCount == 1 }
    // The gateway sends a greeting, and then a heartbeat every 20 ms.
    let sent = upstream.seen.messages.count
    try await session.until("a heartbeat") { upstream.seen.messages.count > sent + 1 }
    session.post("client")
    session.holdRenderings(false)
    try await session.until("both messages") { session.messages == [Self.large("x"), "after"] }
    #expect(session.renderingCount > 1)
    try await session.until("the message of the client") { upstream.seen.messages.contains(Array("CLIENT".utf8)) }
    try await session.finish()
    upstream.stop()
  }
}
