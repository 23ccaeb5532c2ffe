import ByteStreams
import Foundation
import Journal
import JournalSupport
import RedisSupport
import Replication
import Submissions
import Testing

@testable import RedisStore

/// A Redis that can be reached, but does not store.
@Suite(needsRedis) struct StoreRefusalTests {
  /// Connections work, and heartbeats are accepted. Messages must be refused at once instead of waiting.
  @Test func aFullRedisIsAFailureUntilItHasRoom() async throws {
    let server = try await RedisProcess.server()
    let gateway = try TestGateway(server) { $0.times = TenureTimes(lease: .seconds(60)) }
    let journal = try await gateway.becomeHolder().journal
    let client = try TestClient(server)
    _ = try await client.call("CONFIG", "SET", "maxmemory", "1")
    let ticket = try gateway.submit([.accepted(RandomSession.message(1))])
    try await gateway.until("failed") { _ in gateway.store.state.failure?.hasPrefix("OOM") == true }
    #expect(journal.isFailed && gateway.store.mayWrite && gateway.store.state.cause == .refused)
    server.signal(SIGSTOP)
    try await gateway.until("away") { _ in gateway.store.state.cause == .unreachable }
    #expect(journal.isFailed)
    server.signal(SIGCONT)
    _ = try await client.call("CONFIG", "SET", "maxmemory", "0")
    try await gateway.untilStored(ticket)
    try await gateway.until("works") { _ in gateway.store.state.failure == nil }
    #expect(gateway.state.losses.isEmpty)
    await gateway.close()
  }

  /// A Redis that refuses for a short time and is then lost counts as unreachable.
  @Test func aRedisThatRefusesAndDisconnectsIsAFailure() async throws {
    let server = try await RedisProcess.server { _, _ in ["--repl-diskless-sync-delay", "0"] }
    let replica = try await RedisProcess.replica(of: server)
    let proxy = try TestProxy(to: server.port)
    let gateway = try TestGateway(server, port: proxy.port) {
      $0.times = TenureTimes(lease: .seconds(60))
      $0.waitReplicas = 1
    }
    try await gateway.becomeHolder()
    replica.stop()
    proxy.redirect(to: server.port)
    _ = try gateway.submit([.push(RandomSession.push(1))])
    let before = gateway.metric("drawbridge_store_wait_short_total")
    try await gateway.until("refused") { _ in gateway.metric("drawbridge_store_wait_short_total") >= before + 3 }
    // The proxy is redirected. If the server were stopped, a server of another test could get its port.
    proxy.redirect(to: TestProxy.noServer)
    try await gateway.until("away") { _ in
      gateway.store.state.failure?.contains("replicas") == false && gateway.store.state.cause == .unreachable
    }
    gateway.kill()
  }

  /// If Redis has refused a lookup, a session with this name may exist.
  @Test func aRefusedLookUpOfANameIsNotAMissingSession() async throws {
    let server = try await RedisProcess.server()
    let gateway = try TestGateway(server)
    try await gateway.becomeHolder()
    let missing = gateway.store.lookUp("none")
    try await gateway.until("looked up") { _ in missing.outcome != nil }
    #expect(missing.outcome == .done)
    _ = try await TestClient(server).call("ACL", "SETUSER", "default", "-hget")
    let refused = gateway.store.lookUp("none")
    try await gateway.until("refused") { _ in refused.outcome != nil }
    #expect(refused.outcome == .failed)
    gateway.kill()
  }

  /// A gateway that has just started may get a request for a session before it is connected to Redis.
  @Test func lookUpsWaitForTheFirstConnectionAndAreRepeatedOnTheNext() async throws {
    let server = try await RedisProcess.server()
    let proxy = try TestProxy(to: TestProxy.noServer)
    let gateway = try TestGateway(server, port: proxy.port) { $0.times = TenureTimes(lease: .seconds(60)) }
    let early = gateway.store.lookUp("none")
    proxy.redirect(to: server.port)
    try await gateway.until("looked up") { _ in early.outcome != nil }
    #expect(early.outcome == .done)
    proxy.lose(Array("sought".utf8))
    let sent = gateway.store.lookUp("sought")
    try await gateway.until("looked up again") { _ in sent.outcome != nil }
    #expect(sent.outcome == .done)
    gateway.kill()
  }

  @Test func oneClientCannotUseUpTheLookUpsOfNames() async throws {
    let server = try await RedisProcess.server()
    let gateway = try TestGateway(server) { $0.times = TenureTimes(lease: .seconds(600)) }
    try await gateway.becomeHolder()
    server.signal(SIGSTOP)
    // Up to 64 lookups are sent to Redis. Then 1,024 others may be pending.
    let heavy = (0..<1_100).map { _ in gateway.store.lookUp("none", by: 1) }
    let light = (0..<17).map { _ in gateway.store.lookUp("none", by: 2) }
    server.signal(SIGCONT)
    try await gateway.until("looked up") { _ in (heavy + light).allSatisfy { $0.outcome != nil } }
    #expect(heavy.first?.outcome == .done && heavy.last?.outcome == .failed)
    #expect(light.map(\.outcome) == Array(repeating: .done, count: 16) + [.failed])
    gateway.kill()
  }

  @Test func aRedisThatRefusesWAITIsAFailureWithThisReason() async throws {
    let server = try await RedisProcess.server()
    _ = try await TestClient(server).call("ACL", "SETUSER", "default", "-wait")
    let gateway = try TestGateway(server) { $0.waitReplicas = 1 }
    gateway.store.join("s")
    gateway.store.follow("s")
    try await gateway.until("failed") { _ in gateway.store.state.failure?.hasPrefix("NOPERM") == true }
    #expect(gateway.store.state.cause == .refused)
    gateway.kill()
  }

  @Test func aShortRefusalIsNotAFailure() {
    var refusals = StoreRefusals()
    for time in stride(from: 0, to: 2000, by: 500) as StrideTo<Int64> {
      let isFailure = refusals.refused(.error("OOM"), at: at(time))
      #expect(!isFailure)
    }
    let lasts = refusals.refused(.error("OOM"), at: at(2000))
    #expect(lasts && !refusals.hasEnded(by: at(3999)) && refusals.hasEnded(by: at(4000)))
    let isLate = refusals.refused(.error("OOM"), at: at(4500))
    #expect(!isLate, "nothing was refused for two seconds")
    refusals.succeeded(hasEntries: true)
    #expect(refusals.hasEnded(by: at(4500)))
  }

  /// A full Redis accepts heartbeats, so an accepted heartbeat does not show that Redis has room. Replicas that confirm
  /// a heartbeat also confirm entries.
  @Test func aHeartbeatEndsAShortageOfReplicasAndNoOtherError() {
    var refusals = StoreRefusals()
    _ = refusals.refused(.error("OOM"), at: at(0))
    refusals.succeeded(hasEntries: false)
    #expect(!refusals.hasEnded(by: at(1)))
    _ = refusals.refused(.shortage("no replica"), at: at(2))
    refusals.succeeded(hasEntries: false)
    #expect(!refusals.hasEnded(by: at(3)), "a heartbeat does not end the earlier error")
    refusals.succeeded(hasEntries: true)
    _ = refusals.refused(.shortage("no replica"), at: at(4))
    refusals.succeeded(hasEntries: false)
    #expect(refusals.hasEnded(by: at(5)))
  }

  private func at(_ milliseconds: Int64) -> MonotonicTime { .zero + .milliseconds(5000 + milliseconds) }
}
