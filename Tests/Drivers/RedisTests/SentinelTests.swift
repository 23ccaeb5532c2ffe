import ByteStreams
import Foundation
import RedisProtocol
import RedisSupport
import Testing

@testable import Redis

@Suite(.serialized) struct SentinelTests {
  private static func sentinels(_ ports: [UInt16], name: String = "main") throws -> RedisConnector.Target {
    .sentinels(
      try ports.map { try RedisEndpoint("redis://127.0.0.1:\($0)") }, name: name,
      primary: try RedisEndpoint("redis://unused"))
  }

  @Test(needsRedis) func aFailoverIsReportedAndTheNewPrimaryFound() async throws {
    let primary = try await RedisProcess.server { _, _ in ["--repl-diskless-sync-delay", "0"] }
    let replica = try await RedisProcess.replica(of: primary)
    let sentinel = try await RedisProcess.sentinel(of: primary.port)
    try await sentinel.waitForLog("+slave")

    // A program that has connections learns of a failover from a watcher like this one.
    let watcher = try ConnectionRun(watching: [1, sentinel.port])
    // In both lists, the first port has no Sentinel.
    let run = try ConnectionRun(connecting: Self.sentinels([1, sentinel.port]))
    try await run.untilReady()
    #expect(run.state.ready[0].address.port == primary.port)
    #expect(run.events.contains { $0.hasPrefix("failed: 1 127.0.0.1:1: connect") })
    #expect(await run.call("SET", "key", "1") == "OK")
    let history = run.state.ready[0].information?.replicationID

    primary.stop()
    try await run.until("ended") { $0.events.last?.hasPrefix("ended: ") == true }
    try await watcher.until("switched") { !$0.events.isEmpty }
    #expect(watcher.events == ["1: 127.0.0.1:\(replica.port)"])
    run.perform { owner in owner.connector?.connect(for: owner) }
    try await run.untilReady(2)
    #expect(run.state.ready[1].address.port == replica.port)
    let information = run.state.ready[1].information
    #expect(information?.isPrimary == true && information?.replicationID != history)
  }

  @Test(needsRedis) func aServerThatStartsLaterIsFound() async throws {
    let first = try await RedisProcess.server()
    first.stop()
    let run = try ConnectionRun(connecting: .server(RedisEndpoint("redis://127.0.0.1:\(first.port)")))
    try await run.until("failed three times") { $0.events.count >= 3 }
    let second = try await RedisProcess.server(after: first)
    try await run.untilReady()
    #expect(await run.call("PING") == "PONG")
    second.stop()
  }

  /// During a failover, a Sentinel may still report the old primary, which is already a replica.
  @Test func theAddressIsRequestedAgainUntilItIsAPrimary() async throws {
    let primary = try ScriptedRedis { _ in nil }
    let replica = try ScriptedRedis {
      $0 == ["INFO", "replication"]
        ? .send(ScriptedRedis.bulk("role:slave\r\nmaster_replid:\(String(repeating: "b", count: 40))\r\n")) : nil
    }
    let questions = Counter()
    let sentinel = try ScriptedRedis { command in
      switch command {
      case ["INFO", "server"]: .send(ScriptedRedis.information(mode: "sentinel"))
      case ["SENTINEL", "GET-MASTER-ADDR-BY-NAME", "main"]:
        .send(Self.address(questions.next() < 3 ? replica.port : primary.port))
      default: nil
      }
    }
    let other = try ScriptedRedis { command in
      switch command {
      case ["INFO", "server"]: .send(ScriptedRedis.information(mode: "sentinel"))
      case ["SENTINEL", "GET-MASTER-ADDR-BY-NAME", "main"]: .send("*-1\r\n")
      default: nil
      }
    }
    let run = try ConnectionRun(connecting: Self.sentinels([other.port, sentinel.port]))
    try await run.untilReady()
    #expect(run.state.ready[0].address.port == primary.port)
    let unknown = "failed: \(other.port) Sentinel does not have a primary with the name 'main'"
    let wrong = "failed: \(replica.port) the server is a replica: the address of the primary is required"
    #expect(run.events == [unknown, wrong, unknown, wrong, unknown, wrong, unknown, "ready"])
    for server in [primary, replica, sentinel, other] { server.stop() }
  }

  @Test func aSentinelThatDoesNotReplyIsSkipped() async throws {
    let primary = try ScriptedRedis { _ in nil }
    let stalled = try ScriptedRedis { _ in .stall }
    let mute = try ScriptedRedis { command in
      command == ["INFO", "server"] ? .send(ScriptedRedis.information(mode: "sentinel")) : .nothing
    }
    let noSentinel = try ScriptedRedis { _ in nil }
    let sentinel = try ScriptedRedis { command in
      command == ["INFO", "server"]
        ? .send(ScriptedRedis.information(mode: "sentinel")) : .send(Self.address(primary.port))
    }
    let servers = [stalled, mute, noSentinel, sentinel]
    let run = try ConnectionRun(connecting: Self.sentinels(servers.map(\.port)))
    try await run.untilReady()
    #expect(
      run.events == [
        "failed: \(stalled.port) the connection to 127.0.0.1:\(stalled.port) was not ready in time",
        "failed: \(mute.port) Redis did not reply to a command in time",
        "failed: \(noSentinel.port) the server runs in mode 'standalone', which is not supported here", "ready",
      ])
    for server in servers + [primary] { server.stop() }
  }

  @Test func cancellingEndsTheAttempts() async throws {
    let stalled = try ScriptedRedis { _ in .stall }
    let run = try ConnectionRun(connecting: Self.sentinels([stalled.port]))
    while stalled.commands.isEmpty { await Task.yield() }
    run.perform { $0.connector?.cancel() }
    // The connector can connect again.
    run.perform { owner in owner.connector?.connect(for: owner) }
    while stalled.commands.count < 2 { await Task.yield() }
    run.perform { $0.connector?.cancel() }
    _ = await run.call("PING")
    #expect(run.events == [])
    stalled.stop()
  }

  private static func address(_ port: UInt16) -> String {
    "*2\r\n" + ScriptedRedis.bulk("127.0.0.1") + ScriptedRedis.bulk("\(port)")
  }
}
