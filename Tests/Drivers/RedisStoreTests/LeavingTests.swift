import Foundation
import Journal
import JournalSupport
import RedisProtocol
import RedisSupport
import Replication
import Submissions
import Testing

@testable import RedisStore

/// Gateways that end, and sessions that a gateway releases.
@Suite(needsRedis) struct LeavingTests {
  @Test func aGatewayThatDrainsTakesNoSession() async throws {
    let server = try await RedisProcess.server()
    let first = try TestGateway(server) { $0.address = "127.0.0.1:1" }
    try await first.becomeHolder()
    let draining = try TestGateway(server)
    draining.store.join("s")
    try await draining.until("found") { $0.holders["s"] != nil }
    draining.store.drain()
    let client = try TestClient(server)
    try await client.until("HVALS", "{drawbridge}:gateways") { $0.contains("draining=1") }
    await first.close()
    let next = try TestGateway(server) { $0.address = "127.0.0.1:2" }
    try await next.becomeHolder()
    #expect(draining.state.acquisitions == 0)
    // The draining gateway knows the holder, to which it forwards requests.
    try await draining.until("found") { $0.holders["s"]?.gateway == next.store.gateway }
    await draining.close()
    await next.close()
  }

  /// If the gateway acquired the session again, it would open a connection to the upstream during its shutdown.
  @Test func aSessionThatIsLostWhileTheGatewayDrainsIsReleased() async throws {
    let server = try await RedisProcess.server()
    let proxy = try TestProxy(to: server.port)
    let gateway = try TestGateway(server, port: proxy.port)
    try await gateway.becomeHolder()
    try await gateway.store([.push(RandomSession.push(1))])
    gateway.store.drain()
    let client = try TestClient(server)
    try await client.until("HVALS", "{drawbridge}:gateways") { $0.contains("draining=1") }
    #expect(gateway.state.losses.isEmpty, "a draining gateway keeps its session")
    proxy.freeze()
    try await gateway.until("lost") { $0.losses == [.deadline] }
    proxy.thaw()
    try await gateway.until("released") { $0.losses == [.deadline, .released] }
    #expect(gateway.state.acquisitions == 1)
    await gateway.close()
  }

  @Test func aSessionThatIsReleasedWhileItIsAcquiredHasNoOwner() async throws {
    let server = try await RedisProcess.server()
    let proxy = try TestProxy(to: server.port)
    let gateway = try TestGateway(server, port: proxy.port)
    try await gateway.until("connected") { _ in gateway.store.mayWrite }
    proxy.freeze(after: StoreScript.acquire.script.digest)
    gateway.store.join("s")
    try await gateway.until("sent") { _ in proxy.isFrozen }
    gateway.store.release("s")
    proxy.thaw()
    let client = try TestClient(server)
    try await client.until("HGET", "{drawbridge}:s:s:m", "token") { $0 == "$0\r\n\r\n" }
    #expect(gateway.state.acquisitions == 0)
    await gateway.close()
  }

  /// Otherwise the other gateways would wait for the end of the draining gateway, and then for the end of its tenure.
  @Test func aSessionWhoseAcquisitionHadNoReplyIsReleasedWhileTheGatewayDrains() async throws {
    let server = try await RedisProcess.server()
    let proxy = try TestProxy(to: server.port)
    let gateway = try TestGateway(server, port: proxy.port)
    try await gateway.until("connected") { _ in gateway.store.mayWrite }
    proxy.freeze(after: StoreScript.acquire.script.digest)
    gateway.store.join("s")
    let client = try TestClient(server)
    try await client.until("HGET", "{drawbridge}:s:s:m", "token") { $0.contains(":") }
    gateway.store.drain()
    proxy.redirect(to: server.port)
    proxy.thaw()
    try await client.until("HGET", "{drawbridge}:s:s:m", "token") { $0 == "$0\r\n\r\n" }
    #expect(gateway.state.acquisitions == 0)
    await gateway.close()
  }

  @Test func anUnusedSessionLeavesNoState() async throws {
    let server = try await RedisProcess.server()
    let gateway = try TestGateway(server)
    let client = try TestClient(server)
    for _ in 0..<2 {
      try await gateway.becomeHolder()
      gateway.store.release("s")
      try await client.until("PUBSUB", "NUMSUB", "{drawbridge}:s:s:n") { $0.hasSuffix(":0\r\n") }
    }
    // The gateway joins again before the session is released.
    try await gateway.becomeHolder()
    gateway.store.release("s")
    gateway.store.join("s")
    try await gateway.until("held again") { $0.acquisitions == 4 }
    gateway.store.follow("other")
    try await client.until("PUBSUB", "NUMSUB", "{drawbridge}:s:other:n") { $0.hasSuffix(":1\r\n") }
    gateway.store.unfollow("other")
    try await client.until("PUBSUB", "NUMSUB", "{drawbridge}:s:other:n") { $0.hasSuffix(":0\r\n") }
    await gateway.close()
  }
}
