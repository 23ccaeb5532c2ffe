import ByteStreams
import Inbox
import Journal
import JournalSupport
import Reactor
import RedisSupport
import Replication
import Testing

@testable import RedisStore

/// The list of created sessions at several gateways, with a real server.
@Suite(.serialized) struct DefinitionTests {
  private func definition(_ incarnation: UInt64, owner: String = "alice") -> SessionDefinition {
    SessionDefinition(
      incarnation: incarnation, profile: "p", variables: ["v": "\(incarnation)"], owner: owner, time: 1,
      idleLimit: .seconds(60))
  }

  private static let limits = DefinitionLimits(total: 100, perOwner: 100)

  private func outcome(_ request: DefinitionRequest) async throws -> DefinitionRequest.Outcome {
    let start = ContinuousClock.now
    while true {
      if let outcome = request.outcome { return outcome }
      try #require(ContinuousClock.now - start < .seconds(30), "no outcome")
      try await Task.sleep(for: .milliseconds(1))
    }
  }

  private func connected(_ gateways: TestGateway...) async throws {
    for gateway in gateways { try await gateway.until("connected") { _ in gateway.store.knowsDefinitions } }
  }

  /// Makes Redis unreachable, and waits until the gateway has noticed.
  private func freeze(_ proxy: TestProxy, of gateway: TestGateway) async throws {
    proxy.freeze()
    try await gateway.until("away") { _ in !gateway.store.knowsDefinitions }
  }

  /// The readiness of a gateway depends on this: its first request may be for a created session.
  @Test func aGatewayKnowsThatItHasNotReadTheListYet() async throws {
    let server = try await RedisProcess.server()
    let first = try TestGateway(server)
    try await connected(first)
    #expect(try await outcome(first.store.define("a", definition(1), within: Self.limits)) == .done)
    let proxy = try TestProxy(to: server.port)
    proxy.delay(after: "HSCAN")
    let second = try TestGateway(server, port: proxy.port)
    try await second.until("reads the list") { _ in proxy.isDelaying }
    #expect(!second.store.hasKnownDefinitions)
    proxy.endDelay()
    try await second.until("has read the list") { _ in second.store.hasKnownDefinitions }
    #expect(second.state.definitions["a"] != nil)
    try await freeze(proxy, of: second)
    #expect(second.store.hasKnownDefinitions)
    for gateway in [first, second] { gateway.kill() }
  }

  @Test func aSessionIsDefinedOnceAndKnownToEveryGateway() async throws {
    let server = try await RedisProcess.server()
    let (first, second) = (try TestGateway(server), try TestGateway(server))
    try await connected(first, second)
    #expect(try await outcome(first.store.define("a", definition(1), within: Self.limits)) == .done)
    #expect(first.state.definitions == ["a": definition(1)])
    try await second.until("known") { $0.definitions == ["a": definition(1)] }
    #expect(try await outcome(second.store.define("a", definition(2), within: Self.limits)) == .exists(definition(1)))
    // The gateway that has defined the session acquires it first.
    try await first.untilHeld("a~0000000000000001")
    // A gateway that starts later reads the list.
    let third = try TestGateway(server)
    try await third.until("known") { $0.definitions == ["a": definition(1)] }
    for gateway in [first, second, third] { await gateway.close() }
  }

  @Test func limitsCountTheSessionsOfAllGateways() async throws {
    let server = try await RedisProcess.server()
    let (first, second) = (try TestGateway(server), try TestGateway(server))
    try await connected(first, second)
    let limits = DefinitionLimits(total: 3, perOwner: 2)
    #expect(try await outcome(first.store.define("a", definition(1), within: limits)) == .done)
    #expect(try await outcome(second.store.define("b", definition(2), within: limits)) == .done)
    #expect(try await outcome(first.store.define("c", definition(3), within: limits)) == .tooManyOfOwner)
    #expect(try await outcome(first.store.define("c", definition(3, owner: "bob"), within: limits)) == .done)
    #expect(try await outcome(second.store.define("d", definition(4, owner: "eve"), within: limits)) == .tooMany)
    await first.close()
    await second.close()
  }

  @Test func aGatewayTakesOnlySessionsForWhichItHasDescriptors() async throws {
    let server = try await RedisProcess.server()
    let (small, large) = (try TestGateway(server) { $0.createdSessions = 2 }, try TestGateway(server))
    try await connected(small, large)
    for number in 1...4 as ClosedRange<UInt64> {
      #expect(try await outcome(small.store.define("s\(number)", definition(number), within: Self.limits)) == .done)
    }
    try await small.until("full") { $0.local.count == 2 && small.store.isFull }
    try await large.until("the others") { $0.local.count == 2 }
    // The limit does not apply to a configured session.
    try await small.becomeHolder("configured")
    large.kill()
    // There is room for another session once one is removed.
    let name = try #require(small.state.local.keys.first { $0 != "configured" }?.split(separator: "~").first)
    let held = try #require(small.state.definitions[String(name)])
    #expect(try await outcome(small.store.remove(String(name), held, code: 1000)) == .done)
    try await small.until("another one") { $0.local.count == 3 && $0.acquisitions == 4 }
    await small.close()
  }

  @Test func aSessionThatIsRemovedElsewhereLeavesNoState() async throws {
    let server = try await RedisProcess.server()
    let (first, second) = (try TestGateway(server), try TestGateway(server))
    try await connected(first, second)
    _ = try await outcome(first.store.define("a", definition(1), within: Self.limits))
    let name = "a~0000000000000001"
    try await first.untilHeld(name)
    try await first.store([.push(RandomSession.push(1))], in: name)
    try await second.until("known") { $0.definitions.count == 1 }
    #expect(try await outcome(second.store.remove("a", definition(1), code: 4001)) == .done)
    #expect(second.state.removals == [name: 4001])
    try await first.until("removed") { $0.removals == [name: 4001] }
    #expect(first.state.losses.isEmpty)
    #expect(try await outcome(first.store.remove("a", definition(1), code: 1000)) == .done)
    // A later session of the same name begins without pushes.
    #expect(try await outcome(second.store.define("a", definition(2), within: Self.limits)) == .done)
    let restored = try await second.untilHeld("a~0000000000000002").restored
    #expect(restored.log.nextPush == 1)
    let client = try TestClient(server)
    #expect(try await client.call("KEYS", "{drawbridge}:s:\(name):*") == "*0\r\n")
    await first.close()
    await second.close()
  }

  /// The gateway processes both changes only when the flight has ended.
  @Test func aSessionThatIsCreatedAndRemovedDuringAFlightLeavesNoState() async throws {
    let server = try await RedisProcess.server()
    let proxy = try TestProxy(to: server.port)
    let (first, second) = (try TestGateway(server), try TestGateway(server, port: proxy.port))
    try await connected(first, second)
    proxy.delay(after: "{drawbridge}:s:s:m")
    second.store.join("s")
    try await second.until("in the air") { _ in proxy.isDelaying }
    #expect(try await outcome(first.store.define("a", definition(1), within: Self.limits)) == .done)
    #expect(try await outcome(first.store.remove("a", definition(1), code: 1000)) == .done)
    try await second.until("known") { $0.removals.count == 1 }
    proxy.endDelay()
    try await second.untilHeld("s")
    try await TestClient(server).until("PUBSUB", "CHANNELS", "*a~*") { $0 == "*0\r\n" }
    await first.close()
    await second.close()
  }

  /// The gateway may read only one session at a time. The removal must let it read the next session.
  @Test func aSessionThatIsRemovedWhileItIsReadKeepsNoTurn() async throws {
    let server = try await RedisProcess.server()
    let proxy = try TestProxy(to: server.port)
    let first = try TestGateway(server) { $0.createdSessions = 0 }
    let second = try TestGateway(server, port: proxy.port) { $0.concurrentLoads = 1 }
    try await connected(first, second)
    proxy.delay(after: "{drawbridge}:s:a~0000000000000001:c\r\n")
    let request = second.store.define("a", definition(1), within: Self.limits)
    try await second.until("being read") { _ in proxy.isDelaying }
    #expect(try await outcome(first.store.remove("a", definition(1), code: 4001)) == .done)
    try await second.until("removed") { $0.removals.count == 1 }
    proxy.endDelay()
    _ = try await outcome(request)
    try await second.becomeHolder("s")
    await first.close()
    await second.close()
  }

  @Test func onlyTheHolderRemovesAnIdleSession() async throws {
    let server = try await RedisProcess.server()
    let (first, second) = (try TestGateway(server), try TestGateway(server))
    try await connected(first, second)
    _ = try await outcome(first.store.define("a", definition(1), within: Self.limits))
    try await first.untilHeld("a~0000000000000001")
    try await second.until("known") { $0.definitions.count == 1 }
    second.store.removeIdle("a", definition(1))
    // Commands are executed in the order in which they are submitted.
    _ = try await outcome(second.store.define("b", definition(2), within: Self.limits))
    #expect(second.state.definitions.count == 2)
    first.store.removeIdle("a", definition(1))
    for gateway in [first, second] { try await gateway.until("removed") { $0.definitions.keys.sorted() == ["b"] } }
    await first.close()
    await second.close()
  }

  /// Clients used the session again while Redis was unreachable.
  @Test func aSessionThatWasIdleWhileRedisWasAwayIsNotRemovedAfterwards() async throws {
    let server = try await RedisProcess.server()
    let proxy = try TestProxy(to: server.port)
    let gateway = try TestGateway(server, port: proxy.port)
    try await connected(gateway)
    _ = try await outcome(gateway.store.define("a", definition(1), within: Self.limits))
    try await gateway.untilHeld("a~0000000000000001")
    try await freeze(proxy, of: gateway)
    gateway.store.removeIdle("a", definition(1))
    let next = gateway.store.define("b", definition(2), within: Self.limits)
    proxy.thaw()
    #expect(try await outcome(next) == .done)
    #expect(gateway.state.definitions.keys.sorted() == ["a", "b"])
    await gateway.close()
  }

  @Test func aRemovalFailsIfTheNameBelongsToAnotherSession() async throws {
    let server = try await RedisProcess.server()
    let gateway = try TestGateway(server)
    try await connected(gateway)
    _ = try await outcome(gateway.store.define("a", definition(2), within: Self.limits))
    #expect(try await outcome(gateway.store.remove("a", definition(1), code: 1000)) == .failed)
    #expect(try await outcome(gateway.store.remove("a", definition(2), code: 1000)) == .done)
    #expect(try await outcome(gateway.store.remove("a", definition(2), code: 1000)) == .done)
    await gateway.close()
  }

  @Test func aRecordThatIsReadAfterTheRemovalIsForgotten() async throws {
    let server = try await RedisProcess.server()
    let proxy = try TestProxy(to: server.port)
    let first = try TestGateway(server) { $0.address = "a:1" }
    try await connected(first)
    _ = try await outcome(first.store.define("a", definition(1), within: Self.limits))
    let name = "a~0000000000000001"
    try await first.untilHeld(name)
    proxy.delay(after: "{drawbridge}:s:\(name):m")
    let second = try TestGateway(server, port: proxy.port)
    try await second.until("in the air") { _ in proxy.isDelaying }
    second.store.join("s")
    #expect(try await outcome(first.store.remove("a", definition(1), code: 1000)) == .done)
    try await second.until("removed") { $0.removals.count == 1 }
    proxy.endDelay()
    try await second.untilHeld("s")
    #expect(second.state.holders[name] == nil)
    await first.close()
    await second.close()
  }

  @Test func aSessionThatRedisHasLostIsDefinedAgainByItsHolder() async throws {
    let server = try await RedisProcess.server()
    let (first, second) = (try TestGateway(server), try TestGateway(server))
    try await connected(first, second)
    _ = try await outcome(first.store.define("a", definition(1), within: Self.limits))
    let name = "a~0000000000000001"
    try await first.untilHeld(name)
    let client = try TestClient(server)
    _ = try await client.call("FLUSHALL")
    try await first.store([.push(RandomSession.push(1))], in: name)
    let stored = try await client.call("HGET", "{drawbridge}:sessions", "a")
    #expect(stored.hasSuffix("\r\n\(String(decoding: definition(1).text, as: UTF8.self))\r\n"))
    #expect(first.state.definitions.count == 1 && second.state.definitions.count == 1)
    #expect(second.state.removals.isEmpty)
    #expect(first.state.losses.isEmpty && first.state.acquisitions == 1)
    await first.close()
    await second.close()
  }

  /// There are more sessions than changes that may be pending.
  @Test func manySessionsThatRedisHasLostAreDefinedAgain() async throws {
    let server = try await RedisProcess.server()
    let gateway = try TestGateway(server)
    try await connected(gateway)
    let count = 1_200
    let limits = DefinitionLimits(total: count, perOwner: count)
    for start in stride(from: 0, to: count, by: 400) {
      let requests = (start..<start + 400).map {
        gateway.store.define("s\($0)", definition(UInt64($0)), within: limits)
      }
      for request in requests { #expect(try await outcome(request) == .done) }
    }
    try await gateway.until("held") { $0.local.count == count }
    let client = try TestClient(server)
    _ = try await client.call("FLUSHALL")
    try await client.until("HLEN", "{drawbridge}:sessions") { $0 == ":\(count + 1)\r\n" }
    #expect(gateway.state.removals.isEmpty && gateway.state.losses.isEmpty)
    await gateway.close()
  }

  /// Only its holder would define the session again, and the holder was killed.
  @Test func aSessionWithoutAHolderEndsWhenRedisHasLostIt() async throws {
    let server = try await RedisProcess.server()
    let (first, second) = (try TestGateway(server), try TestGateway(server))
    try await connected(first, second)
    _ = try await outcome(first.store.define("a", definition(1), within: Self.limits))
    try await first.untilHeld("a~0000000000000001")
    try await second.until("known") { $0.definitions.count == 1 }
    first.kill()
    _ = try await TestClient(server).call("FLUSHALL")
    try await second.until("removed") { $0.definitions.isEmpty && $0.removals.count == 1 }
    await second.close()
  }

  /// The session was removed while its holder could not reach Redis.
  @Test func aHolderThatWasAwayDoesNotRestoreARemovedSession() async throws {
    let server = try await RedisProcess.server()
    let proxy = try TestProxy(to: server.port)
    let (first, second) = (try TestGateway(server, port: proxy.port), try TestGateway(server))
    try await connected(first, second)
    _ = try await outcome(first.store.define("a", definition(1), within: Self.limits))
    let name = "a~0000000000000001"
    try await first.untilHeld(name)
    try await second.until("known") { $0.definitions.count == 1 }
    try await freeze(proxy, of: first)
    #expect(try await outcome(second.store.remove("a", definition(1), code: 1000)) == .done)
    proxy.thaw()
    try await first.until("removed") { $0.removals == [name: 1000] }
    #expect(second.state.definitions.isEmpty)
    #expect(try await TestClient(server).call("KEYS", "*\(name)*") == "*0\r\n")
    await first.close()
    await second.close()
  }

  /// Restores the state of a new primary that lacks the last changes of the old primary.
  private func undo(_ client: TestClient, _ name: String, _ definition: SessionDefinition) async throws {
    let key = "{drawbridge}:sessions"
    _ = try await client.call("DEL", key, "\(key):removed")
    let text = String(decoding: definition.text, as: UTF8.self)
    _ = try await client.call("HSET", key, "", "00000000000000f1 1", name, text)
  }

  @Test func aRemovalThatAFailoverLostIsRepeated() async throws {
    let server = try await RedisProcess.server()
    let (first, second) = (try TestGateway(server), try TestGateway(server))
    try await connected(first, second)
    _ = try await outcome(first.store.define("a", definition(1), within: Self.limits))
    let name = "a~0000000000000001"
    try await first.untilHeld(name)
    try await second.until("known") { $0.definitions.count == 1 }
    #expect(try await outcome(second.store.remove("a", definition(1), code: 4001)) == .done)
    try await first.until("removed") { $0.removals == [name: 4001] }
    let client = try TestClient(server)
    try await undo(client, "a", definition(1))
    try await client.until("HEXISTS", "{drawbridge}:sessions", "a") { $0 == ":0\r\n" }
    for gateway in [first, second] {
      try await gateway.until("the list was read") { _ in gateway.store.knowsDefinitions }
      #expect(gateway.state.definitions.isEmpty)
    }
    #expect(first.state.acquisitions == 1 && second.state.acquisitions == 0)
    // A client can create a session of this name even before a gateway has read the list again.
    try await undo(client, "a", definition(1))
    #expect(try await outcome(second.store.define("a", definition(2), within: Self.limits)) == .done)
    try await second.untilHeld("a~0000000000000002")
    await first.close()
    await second.close()
  }

  @Test func aRemovedSessionThatReturnsDoesNotEndItsSuccessor() async throws {
    let server = try await RedisProcess.server()
    let (first, second) = (try TestGateway(server), try TestGateway(server))
    try await connected(first, second)
    _ = try await outcome(first.store.define("a", definition(1), within: Self.limits))
    try await second.until("known") { $0.definitions.count == 1 }
    #expect(try await outcome(second.store.remove("a", definition(1), code: 4001)) == .done)
    #expect(try await outcome(second.store.define("a", definition(2), within: Self.limits)) == .done)
    try await second.untilHeld("a~0000000000000002")
    try await first.until("known") { $0.definitions == ["a": definition(2)] }
    let client = try TestClient(server)
    try await undo(client, "a", definition(1))
    let text = String(decoding: definition(2).text, as: UTF8.self)
    try await client.until("HGET", "{drawbridge}:sessions", "a") { $0.hasSuffix("\r\n\(text)\r\n") }
    for gateway in [first, second] {
      #expect(gateway.state.definitions == ["a": definition(2)])
      #expect(gateway.state.removals["a~0000000000000002"] == nil && gateway.state.losses.isEmpty)
    }
    await first.close()
    await second.close()
  }

  /// No gateway has acquired the session, because none has room.
  @Test func aRequestForASessionWithoutAHolderGetsAResponseWhenTheGatewayEnds() async throws {
    let server = try await RedisProcess.server()
    let gateway = try TestGateway(server) { $0.createdSessions = 0 }
    try await connected(gateway)
    let request = gateway.store.define("a", definition(1), within: Self.limits)
    try await gateway.until("defined") { $0.definitions.count == 1 }
    await gateway.close()
    #expect(try await outcome(request) == .done)
  }

  @Test(arguments: [true, false]) func commandsThatWereLostWithTheConnectionAreSentAgain(isExecuted: Bool) async throws
  {
    let server = try await RedisProcess.server()
    let proxy = try TestProxy(to: server.port)
    let gateway = try TestGateway(server, port: proxy.port)
    try await connected(gateway)
    proxy.lose(definition(1).text, isExecuted: isExecuted)
    #expect(try await outcome(gateway.store.define("a", definition(1), within: Self.limits)) == .done)
    proxy.lose(definition(1).text, isExecuted: isExecuted)
    #expect(try await outcome(gateway.store.remove("a", definition(1), code: 1000)) == .done)
    #expect(gateway.state.definitions.isEmpty && gateway.state.removals.count == 1)
    await gateway.close()
  }

  @Test func commandsThatNobodyWaitsForAreNotSent() async throws {
    let server = try await RedisProcess.server()
    let proxy = try TestProxy(to: server.port)
    let gateway = try TestGateway(server, port: proxy.port)
    try await connected(gateway)
    try await freeze(proxy, of: gateway)
    let request = gateway.store.define("a", definition(1), within: Self.limits)
    let abandoned = gateway.store.define("b", definition(2), within: Self.limits)
    abandoned.abandon()
    proxy.thaw()
    #expect(try await outcome(request) == .done)
    #expect(try await outcome(abandoned) == .failed)
    #expect(gateway.state.definitions.keys.sorted() == ["a"])
    await gateway.close()
  }
}
