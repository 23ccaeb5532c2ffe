import ByteStreams
import Foundation
import Inbox
import Journal
import JournalSupport
import RedisSupport
import Replication
import Testing

@testable import RedisStore

/// Gateways that follow sessions for their readers, with a real server.
@Suite(needsRedis) struct FollowedReadersTests {
  @Test func aRefreshReportsEverythingThatWasStoredBefore() async throws {
    let server = try await RedisProcess.server()
    let (first, second) = (try TestGateway(server), try TestGateway(server))
    try await first.becomeHolder()
    second.store.follow("s")
    try await second.until("current") { $0.copies["s"]?.isCurrent == true }
    for number in 1...20 as ClosedRange<UInt64> {
      try await first.store([.push(RandomSession.push(number))])
      second.store.follow("s", refresh: number)
      try await second.until("refreshed") { $0.copies["s"]?.refreshed == number }
      #expect(second.state.copies["s"]?.last ?? 0 >= number)
    }
    // A refresh with a lower number is already complete.
    second.store.follow("s", refresh: 3)
    second.store.follow("s", refresh: 21)
    try await second.until("refreshed") { $0.copies["s"]?.refreshed == 21 }
    await first.close()
    await second.close()
  }

  @Test func aCopyIsOutdatedWithoutAConnectionOrAFollower() async throws {
    let server = try await RedisProcess.server()
    let proxy = try TestProxy(to: server.port)
    let (first, second) = (try TestGateway(server), try TestGateway(server, port: proxy.port))
    try await first.becomeHolder()
    second.store.follow("s")
    try await second.until("current") { $0.copies["s"]?.isCurrent == true }
    proxy.freeze()
    try await second.until("outdated") { $0.copies["s"]?.isCurrent == false }
    try await first.store([.push(RandomSession.push(1))])
    proxy.thaw()
    try await second.until("current") { $0.copies["s"]?.isCurrent == true }
    #expect(second.state.copies["s"]?.last == 1)
    second.store.unfollow("s")
    try await second.until("outdated") { $0.copies["s"]?.isCurrent == false }
    await first.close()
    await second.close()
  }

  /// A reader may request the session when this gateway has just become its holder.
  @Test func aHolderDoesNotFollowItsOwnSession() async throws {
    let server = try await RedisProcess.server()
    let gateway = try TestGateway(server)
    gateway.store.follow("s")
    try await gateway.becomeHolder()
    try await gateway.store([.push(RandomSession.push(1))])
    gateway.store.follow("s", refresh: 1)
    try await gateway.store([.push(RandomSession.push(2))])
    try await gateway.becomeHolder("other")
    #expect(gateway.state.copies["s"]?.hasEnded != false)
    server.signal(SIGSTOP)
    try await gateway.until("lost") { $0.losses.contains(.deadline) }
    gateway.store.follow("s")
    server.signal(SIGCONT)
    try await gateway.until("held again") { $0.acquisitions >= 3 }
    await gateway.close()
  }

  /// A push and the gap after it may be written again in one entry. The entry has the same id as before.
  @Test func aGapThatIsWrittenAgainWithAPushIsRead() async throws {
    let server = try await RedisProcess.server()
    let times = TenureTimes(lease: .seconds(30), margin: .seconds(1))
    let holder = try TestGateway(server) { $0.times = times }
    try await holder.becomeHolder()
    try await holder.store([.push(RandomSession.push(1))])
    let proxy = try TestProxy(to: server.port)
    let follower = try TestGateway(server, port: proxy.port) { $0.times = times }
    follower.store.follow("s")
    try await follower.until("read") { $0.copies["s"]?.last == 1 }
    // Creates the state after a failover.
    let client = try TestClient(server)
    _ = try await client.call("XDEL", "{drawbridge}:s:s:p", "1-0")
    _ = try await client.call("XSETID", "{drawbridge}:s:s:p", "0-1")
    _ = try await client.call("HSET", "{drawbridge}:s:s:m", "sequence", "0")
    try await holder.store([.gap(.upstream), .accepted(RandomSession.message(1))])
    #expect(try await client.call("XRANGE", "{drawbridge}:s:s:p", "1-1", "+") == "*0\r\n")
    proxy.redirect(to: server.port)
    let expected = try holder.model()
    #expect(expected.log.gaps.map(\.after) == [1])
    try await follower.until("complete") { $0.copies["s"]?.equals(expected) == true }
    await holder.close()
    await follower.close()
  }

  @Test func aReadThatRedisHasRefusedIsRepeated() async throws {
    let server = try await RedisProcess.server()
    let (first, second) = (try TestGateway(server), try TestGateway(server))
    try await first.becomeHolder()
    try await first.store([.push(RandomSession.push(1))])
    second.store.follow("s")
    try await second.until("current") { $0.copies["s"]?.isCurrent == true }
    let client = try TestClient(server)
    let key = "{drawbridge}:s:s:p"
    _ = try await client.call("RENAME", key, "elsewhere")
    _ = try await client.call("SET", key, "no stream")
    second.store.follow("s", refresh: 1)
    try await client.until("INFO", "errorstats") { $0.contains("errorstat_WRONGTYPE") }
    // No notification follows.
    _ = try await client.call("RENAME", "elsewhere", key)
    try await second.until("refreshed") { $0.copies["s"]?.refreshed == 1 }
    await first.close()
    await second.close()
  }

  @Test func theHolderIsNotifiedOfReadersElsewhere() async throws {
    let server = try await RedisProcess.server()
    let (first, second) = (try TestGateway(server), try TestGateway(server))
    try await first.becomeHolder()
    second.store.follow("s")
    try await second.until("current") { $0.copies["s"]?.isCurrent == true }
    #expect(first.state.distantReaders.isEmpty)
    second.store.follow("s", hasReaders: true)
    try await first.until("notified") { $0.distantReaders["s"] == 1 }
    #expect(second.state.distantReaders.isEmpty, "it does not hold the session")
    await first.close()
    await second.close()
  }
}
