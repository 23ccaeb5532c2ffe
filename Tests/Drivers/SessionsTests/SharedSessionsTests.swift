import ByteStreams
import DemoUpstream
import Host
import Inbox
import Journal
import Logging
import Metrics
import Outbox
import Reactor
import RedisStore
import Replication
import Testing
import Threading
import UpstreamSession
import WebSocketCodec

@testable import Sessions
@testable import Upstream

/// A configured session whose holder changes between this gateway and others, with a journal in memory instead of
/// Redis.
@Suite struct SharedSessionsTests {
  static func texts(_ inbox: ConcurrentInbox, after cursor: Cursor? = nil) throws -> [String] {
    let start = try inbox.resolve(cursor.map { .cursor($0) } ?? .earliest, now: ProcessInformation.monotonicTime())
    return inbox.read(after: start, limit: 100, maxBytes: .max).messages.map {
      String(decoding: [UInt8](copying: $0.rendered.bytes), as: UTF8.self)
    }
  }

  /// A push of the first term.
  static func push(_ number: UInt64, in store: StoredSession) -> LogChange {
    var renderer = MessageRenderer()
    let id = Cursor(epoch: Epoch(0xABC), term: store.session.terms[0].term, sequence: number)
    let message = renderer.render([0x31].span, kind: .text, topic: Span(), id: id, time: 0, arrival: .zero)
    return .push(message.stored(time: ProcessInformation.wallClockMilliseconds()))
  }

  @Test func aGatewayIsHolderThenFollowerThenHolderAgain() async throws {
    let fixture = try SharedSessionFixture()
    defer { fixture.end() }
    fixture.becomeHolder()
    let first = try fixture.session
    #expect(first.isHere && fixture.slot.placement.place == .here)
    #expect(fixture.prepared.list.withLock { $0 } == [false], "it is prepared before it executes requests")
    #expect(fixture.metric("drawbridge_session_held") == 1 && fixture.metric("drawbridge_session_term") == 1)
    #expect(fixture.post("one", to: first))
    try await fixture.eventually("the push") { first.inbox.latest.sequence == 1 }
    fixture.checkCounters()
    let cursor = first.inbox.latest
    let waiting = ReadStart(cursor)
    #expect(!first.inbox.hasNewData(after: waiting))

    fixture.lose()
    let followed = try fixture.session
    #expect(followed !== first && !followed.isHere && !first.isHere && fixture.slot.placement.place == .nowhere)
    #expect(fixture.metric("drawbridge_session_held") == 0 && fixture.metric("drawbridge_session_term") == 0)
    #expect(!fixture.post("lost", to: first) && !fixture.post("lost", to: followed))
    #expect(first.inbox.hasNewData(after: waiting) && first.inbox.hasEnded && !first.inbox.isClosed)
    #expect(first.inbox.read(after: waiting, limit: 9, maxBytes: .max).cursor == cursor)
    try await fixture.eventually("the upstream is closed") { first.upstream.hasEnded }
    #expect(try Self.texts(followed.inbox).count == 1, "the pushes of the lost session are kept")
    let again = try followed.inbox.resolve(.cursor(cursor), now: ProcessInformation.monotonicTime())
    #expect(!followed.inbox.hasNewData(after: again))
    fixture.checkCounters()

    fixture.becomeHolder()
    let second = try fixture.session
    #expect(second.isHere && !first.isHere && !followed.isHere, "a session that was replaced executes nothing")
    #expect(fixture.metric("drawbridge_session_term") == 2)
    #expect(followed.inbox.hasNewData(after: again))
    #expect(fixture.post("two", to: second))
    try await fixture.eventually("the push") { second.inbox.latest.sequence == 2 }
    let news = try Self.texts(second.inbox, after: cursor)
    #expect(news.count == 1 && news[0].contains("two"))
    fixture.checkCounters()
    #expect(fixture.metric("drawbridge_pushes_total") == 2)
    #expect(fixture.metric("drawbridge_buffer_messages") == 2)
  }

  @Test func aReaderWaitsUntilTheSessionIsKnown() async throws {
    let fixture = try SharedSessionFixture()
    defer { fixture.end() }
    _ = fixture.store.open()
    let unknown = try fixture.session
    let now = ProcessInformation.monotonicTime()
    let term = try #require(fixture.store.terms.last).term.value
    let cursor = Cursor(epoch: Epoch(0xABC), term: term, sequence: 0)
    let start = try unknown.inbox.resolve(.cursor(cursor), now: now)
    #expect(unknown.inbox.isUnknown && !unknown.inbox.hasNewData(after: start))
    fixture.report()
    #expect(unknown.inbox.hasNewData(after: start))
    #expect(unknown.inbox.read(after: start, limit: 9, maxBytes: .max).cursor == cursor, "it comes back with the same")
    let followed = try fixture.session
    #expect(!followed.inbox.isUnknown && followed.inbox.epoch == Epoch(0xABC) && !followed.isHere)
    #expect(!followed.inbox.hasNewData(after: try followed.inbox.resolve(.cursor(cursor), now: now)))
  }

  @Test func aReaderOfAnUnknownSessionEndsWhenItIsClosed() throws {
    let fixture = try SharedSessionFixture()
    defer { fixture.end() }
    let session = try fixture.session
    let wait = try #require(fixture.slot.copy.wait(for: .earliest, in: session.inbox, isPrompt: false))
    #expect(!wait.isOver(in: session.inbox))
    session.close(code: 1000)
    #expect(wait.isOver(in: session.inbox))
  }

  @Test func pushesOfAnotherGatewayAreReadInTheSameInbox() async throws {
    let fixture = try SharedSessionFixture()
    defer { fixture.end() }
    let other = fixture.store.open()
    let push = { (number: UInt64) in Self.push(number, in: fixture.store) }
    // Entries that continue an unknown copy are ignored.
    fixture.shared.follow("default", .entries([push(7)]))
    fixture.shared.follow("default", .isCurrent)
    #expect(try fixture.session.inbox.isUnknown)
    other.journal.submit(.log(push(1)))
    fixture.report()
    let followed = try fixture.session
    let waiting = ReadStart(followed.inbox.latest)
    fixture.shared.follow("default", .entries([push(2)]))
    fixture.shared.follow("default", .isCurrent)
    #expect(try fixture.session === followed && followed.inbox.hasNewData(after: waiting))
    // When the copy is read again, readers use the old copy until the new copy is complete.
    fixture.shared.follow("default", .restarted(epoch: 0xABC, fixture.store.terms))
    #expect(try Self.texts(followed.inbox).count == 2)
    fixture.shared.follow("default", .entries([push(1), push(2), push(3)]))
    fixture.shared.follow("default", .isCurrent)
    #expect(try fixture.session === followed && Self.texts(followed.inbox).count == 3)
    // Everything was lost, and the session begins again.
    fixture.shared.follow("default", .restarted(epoch: 0xDEF, fixture.store.terms))
    fixture.shared.follow("default", .isCurrent)
    #expect(try fixture.session !== followed && followed.inbox.hasEnded)
    let read = try fixture.session.inbox.read(after: waiting, limit: 9, maxBytes: .max)
    #expect(read.gap?.reasons == [.restart])
    // The copy ends when this gateway becomes the holder. Later entries that continue it are ignored.
    fixture.becomeHolder()
    fixture.shared.follow("default", .entries([push(2)]))
    fixture.lose()
    fixture.shared.follow("default", .entries([push(2)]))
    fixture.shared.follow("default", .continued(after: 0, fixture.store.terms))
    #expect(try Self.texts(fixture.session.inbox).count == 1)
  }

  @Test func theSocketOfALostSessionIsClosedWithoutAClosingHandshake() async throws {
    let fixture = try SharedSessionFixture { $0.session.limits.closing = .minutes(5) }
    defer { fixture.end() }
    fixture.becomeHolder()
    let session = try fixture.session
    try await fixture.eventually("it is connected") { session.upstream.isReady }
    fixture.stopUpstream()
    fixture.lose()
    try await fixture.eventually("the connection has ended") { session.upstream.hasEnded }
  }

  @Test func aShutdownDoesNotWaitForASessionOfAnotherGateway() async throws {
    let fixture = try SharedSessionFixture()
    defer { fixture.end() }
    fixture.directory.shutDown(flushWithin: .seconds(1)) {}
    #expect(fixture.directory.haveEnded)
  }
}
