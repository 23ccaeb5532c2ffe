import ByteStreams
import Foundation
import Journal
import JournalSupport
import RedisSupport
import Replication
import Submissions
import Testing

@testable import RedisStore

/// What leaves for Redis together.
@Suite(needsRedis) struct FlightTests {
  @Test func whatIsNotedFirstIsServedFirst() {
    var pending = PendingSessions()
    pending.insert("a")
    pending.insert(["b", "a"])
    #expect(pending.takeFirst() == "a")
    pending.insert("a")
    #expect(
      pending.count == 2 && pending.takeFirst() == "b" && pending.takeFirst() == "a" && pending.takeFirst() == nil)
  }

  /// A gateway that takes many sessions reads few of them at once: Redis, and the loop of the heartbeat, have time for other things in between.
  @Test func manySessionsAreLoadedInSeveralFlights() async throws {
    let server = try await RedisProcess.server()
    let names = (0..<150).map { "s\($0)" }
    let first = try TestGateway(server)
    for name in names { first.store.join(name) }
    try await first.until("held") { $0.held.count == names.count }
    for name in names { _ = try first.submit([.push(RandomSession.push(1))], to: name) }
    await first.close()
    let proxy = try TestProxy(to: server.port)
    proxy.count("\r\n262144\r\n")
    let next = try TestGateway(server, port: proxy.port)
    for name in names {
      next.store.join(name)
      next.store.follow(name)
    }
    try await next.until("held") { $0.held.count == names.count && $0.held.allSatisfy { $0.value.model.nextPush == 2 } }
    #expect((2...32).contains(proxy.mostCounted), "8 MiB, in first parts of 256 KiB")
    await next.close()
  }
}
