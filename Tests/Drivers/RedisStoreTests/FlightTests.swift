import ByteStreams
import Foundation
import Inbox
import Journal
import JournalSupport
import RedisProtocol
import RedisSupport
import Replication
import Submissions
import Testing

@testable import RedisStore

/// Which commands are sent to Redis together.
@Suite(needsRedis) struct FlightTests {
  @Test func theSessionThatWasAddedFirstIsTakenFirst() {
    var pending = PendingSessions()
    pending.insert("a")
    pending.insert(["b", "a"])
    #expect(pending.takeFirst() == "a")
    pending.insert("a")
    #expect(
      pending.count == 2 && pending.takeFirst() == "b" && pending.takeFirst() == "a" && pending.takeFirst() == nil)
  }

  @Test func turnsAreLimitedAndInOrder() {
    var turns = LimitedTurns(limit: 2)
    let begun = ["a", "b", "a", "c", "d"].map { turns.begin($0) }
    #expect(begun == [true, true, true, false, false] && !turns.hasRoom && turns.next().isEmpty)
    turns.end("a")
    turns.end("a")
    #expect(turns.hasRoom && turns.next() == ["c"])
    turns.wait("e")
    turns.endAll()
    #expect(turns.next() == ["d", "e"] && turns.next().isEmpty)
  }

  /// The WAIT must have room after any number of bytes. Otherwise nothing would be sent any more.
  @Test func aPushOfAnySizeIsStored() async throws {
    let primary = try await RedisProcess.server { _, _ in ["--repl-diskless-sync-delay", "0"] }
    let replica = try await RedisProcess.replica(of: primary)
    let gateway = try TestGateway(primary) {
      $0.times = TenureTimes(lease: .seconds(60))
      $0.waitReplicas = 1
    }
    try await gateway.becomeHolder()
    try await gateway.store([.push(RandomSession.push(1, size: RedisPipeline.byteLimit + 1))])
    try await gateway.store([.push(RandomSession.push(2))])
    #expect(gateway.state.losses.isEmpty)
    await gateway.close()
    replica.stop()
  }

  /// A gateway that acquires many sessions reads only a few at a time, so that Redis and the loop of the heartbeat stay
  /// responsive.
  @Test func manySessionsAreLoadedInSeveralFlights() async throws {
    let server = try await RedisProcess.server()
    let names = (0..<150).map { "s\($0)" }
    let first = try TestGateway(server)
    for name in names { first.store.join(name) }
    try await first.until("held") { $0.local.count == names.count }
    for name in names { _ = try first.submit([.push(RandomSession.push(1))], to: name) }
    await first.close()
    let proxy = try TestProxy(to: server.port)
    proxy.count("\r\n262144\r\n")
    let next = try TestGateway(server, port: proxy.port)
    for name in names {
      next.store.join(name)
      next.store.follow(name)
    }
    try await next.until("held") {
      $0.local.count == names.count && $0.local.allSatisfy { $0.value.model.log.nextPush == 2 }
    }
    // A flight reads at most 8 MiB: the first 256 KiB of 32 sessions. The proxy may also count the first reads of the
    // next flight.
    #expect((2..<64).contains(proxy.mostCounted))
    await next.close()
  }

  /// A log with a missing entry is read once more from the beginning, since pushes may have been dropped during the
  /// read. After that, flights serve other sessions.
  @Test func aFollowerStopsReadingADamagedLog() async throws {
    let server = try await RedisProcess.server()
    let gateway = try TestGateway(server)
    try await gateway.becomeHolder()
    try await gateway.store((1...300 as ClosedRange<UInt64>).map { .push(RandomSession.push($0, size: 1_000)) })
    let client = try TestClient(server)
    _ = try await client.call("XADD", "{drawbridge}:s:s:p", "300-7", "b", "\u{1}\u{2}garbage")
    let follower = try TestGateway(server)
    try await follower.becomeHolder("other")
    follower.store.follow("s")
    try await follower.until("read") { ($0.copies["s"]?.restarts ?? 0) >= 2 }
    for number in 1...50 as ClosedRange<UInt64> {
      try await follower.store([.push(RandomSession.push(number))], in: "other")
    }
    // After a second failure, the log is read every 10 s.
    #expect((2..<20).contains(follower.state.copies["s"]?.restarts ?? 0))
    await follower.close()
  }
}
