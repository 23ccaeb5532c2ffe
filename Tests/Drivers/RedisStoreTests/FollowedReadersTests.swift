import Foundation
import Journal
import JournalSupport
import RedisSupport
import Testing

@testable import RedisStore

/// Gateways that follow sessions for their readers, with a real server.
@Suite(needsRedis) struct FollowedReadersTests {
  @Test func aRefreshReportsEverythingThatWasStoredBefore() async throws {
    let server = try await RedisProcess.server()
    let (first, second) = (try TestGateway(server), try TestGateway(server))
    try await first.hold()
    second.store.follow("s")
    try await second.until("current") { $0.copies["s"]?.isCurrent == true }
    for number in 1...20 as ClosedRange<UInt64> {
      try await first.store([.push(RandomSession.push(number))])
      second.store.follow("s", refresh: number)
      try await second.until("refreshed") { $0.copies["s"]?.refreshed == number }
      #expect(second.state.copies["s"]?.last ?? 0 >= number)
    }
    // Lower numbers are complete already.
    second.store.follow("s", refresh: 3)
    second.store.follow("s", refresh: 21)
    try await second.until("refreshed") { $0.copies["s"]?.refreshed == 21 }
    await first.close()
    await second.close()
  }

  @Test func aCopyIsOutdatedWhileTheConnectionIsDownAndWhenNobodyFollows() async throws {
    let server = try await RedisProcess.server()
    let proxy = try TestProxy(to: server.port)
    let (first, second) = (try TestGateway(server), try TestGateway(server, port: proxy.port))
    try await first.hold()
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

  @Test func aReadThatRedisHasRefusedIsRepeated() async throws {
    let server = try await RedisProcess.server()
    let (first, second) = (try TestGateway(server), try TestGateway(server))
    try await first.hold()
    try await first.store([.push(RandomSession.push(1))])
    second.store.follow("s")
    try await second.until("current") { $0.copies["s"]?.isCurrent == true }
    let client = try TestClient(server)
    let key = "{drawbridge}:s:s:p"
    _ = try await client.call("RENAME", key, "elsewhere")
    _ = try await client.call("SET", key, "no stream")
    second.store.follow("s", refresh: 1)
    try await client.until("INFO", "errorstats") { $0.contains("errorstat_WRONGTYPE") }
    // Nothing is notified.
    _ = try await client.call("RENAME", "elsewhere", key)
    try await second.until("refreshed") { $0.copies["s"]?.refreshed == 1 }
    await first.close()
    await second.close()
  }

  @Test func theHolderIsNotifiedOfReadersElsewhere() async throws {
    let server = try await RedisProcess.server()
    let (first, second) = (try TestGateway(server), try TestGateway(server))
    try await first.hold()
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
