import ByteStreams
import Inbox
import Journal
import JournalSupport
import RedisSupport
import Replication
import Submissions
import Testing

@testable import RedisStore

/// The engine of the log that the gateways of a test share.
enum TestEngine: Sendable {
  case memory(MemoryServer)
  case redis(RedisProcess)
}

/// Tests that every engine must pass. Without Redis, only the engine in memory is tested.
@Suite struct SharedLogTests {
  enum Kind: Sendable, CaseIterable {
    case memory
    case redis

    static var available: [Kind] { RedisProcess.program == nil ? [.memory] : allCases }

    func start() async throws -> TestEngine {
      switch self {
      case .memory: .memory(MemoryServer())
      case .redis: .redis(try await RedisProcess.server())
      }
    }
  }

  @Test(arguments: Kind.available) func aSessionIsRestoredAsItWas(kind: Kind) async throws {
    let engine = try await kind.start()
    var writer = RandomSession(seed: 5, opensTerms: false)
    var gateway = try TestGateway(engine)
    try await gateway.becomeHolder()
    for run in 1...3 {
      for _ in 0..<40 { try gateway.submit((0..<5).flatMap { _ in writer.nextEntries() }) }
      let expected = try gateway.model()
      await gateway.close()
      gateway = try TestGateway(engine)
      let restored = try await gateway.becomeHolder().restored
      #expect(restored.trimmed(as: expected) == expected.reopened(restored.terms), "run \(run)")
    }
    await gateway.close()
  }

  @Test(arguments: Kind.available) func commandsInFlightWhenTheConnectionEndsAreStoredOnce(kind: Kind) async throws {
    let engine = try await kind.start()
    let gateway = try TestGateway(engine)
    try await gateway.becomeHolder()
    for number in 1...50 as ClosedRange<UInt64> {
      let ticket = try gateway.submit([.push(RandomSession.push(number))])
      if number % 10 == 0 {
        try await interrupt(engine)
        try await gateway.untilStored(ticket)
      }
    }
    let expected = try gateway.model()
    await gateway.close()
    let next = try TestGateway(engine)
    let restored = try await next.becomeHolder().restored
    #expect(restored == expected.reopened(restored.terms) && gateway.state.losses == [.released])
    await next.close()
  }

  private func interrupt(_ engine: TestEngine) async throws {
    switch engine {
    case .memory(let server): server.interrupt()
    case .redis(let server): _ = try await TestClient(server).call("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
    }
  }

  @Test(arguments: Kind.available) func aSessionIsTakenFromAGatewayThatEndsWithoutReleasingIt(kind: Kind) async throws {
    let engine = try await kind.start()
    let first = try TestGateway(engine)
    try await first.becomeHolder()
    try await first.store([.push(RandomSession.push(1))])
    let second = try TestGateway(engine)
    second.store.join("s")
    second.store.follow("s")
    try await second.until("followed") { $0.copies["s"]?.last == 1 && $0.local.isEmpty }
    first.kill()
    let restored = try await second.untilHeld().restored
    #expect(restored.log.nextPush == 2 && restored.terms.count == 2 && !restored.mayHaveLostEntries)
    await second.close()
  }

  @Test(arguments: Kind.available) func manyEntriesAreReplacedByTheStateOfTheSession(kind: Kind) async throws {
    let engine = try await kind.start()
    let gateway = try TestGateway(engine)
    try await gateway.becomeHolder()
    try await gateway.storeSettledMessages(6_000)
    let expected = try gateway.model()
    await gateway.close()
    if case .memory(let server) = engine {
      let changes = try #require(server.session("s")).changes
      #expect(changes.reduce(0) { $0 + $1.bytes.count } < 5 << 20 && changes.contains { $0.id.count > 0 })
    }
    let next = try TestGateway(engine)
    let restored = try await next.becomeHolder().restored
    #expect(restored == expected.reopened(restored.terms))
    await next.close()
  }

  @Test(arguments: Kind.available) func aSessionThatAClientCreatesIsKnownEverywhereUntilItIsRemoved(
    kind: Kind
  ) async throws {
    let engine = try await kind.start()
    let (first, second) = (try TestGateway(engine), try TestGateway(engine))
    for gateway in [first, second] { try await gateway.until("connected") { _ in gateway.store.knowsDefinitions } }
    let definition = SessionDefinition(
      incarnation: 1, profile: "p", variables: [:], owner: "alice", time: 1, idleLimit: .seconds(60))
    let limits = DefinitionLimits(total: 1, perOwner: 1)
    let request = first.store.define("a", definition, within: limits)
    try await first.until("defined") { _ in request.outcome == .done }
    try await second.until("known") { $0.definitions == ["a": definition] }
    let other = second.store.define("b", definition, within: limits)
    try await second.until("refused") { _ in other.outcome == .tooManyOfOwner }
    try await first.untilHeld("a~0000000000000001")
    let removal = second.store.remove("a", definition, code: 4000)
    try await second.until("removed") { _ in removal.outcome == .done }
    try await first.until("removed") { $0.definitions.isEmpty && $0.removals == ["a~0000000000000001": 4000] }
    for gateway in [first, second] { await gateway.close() }
  }
}
