import ByteStreams
import Host
import LoopbackSupport
import Synchronization
import TestSupport
import Testing

@testable import Reactor

/// A resolver with a name service that a test controls.
@Suite struct ResolverTests {
  /// Names that begin with `slow` block until the test releases them.
  private final class Names: Sendable {
    let asked = Mutex<[String]>([])
    private let released = Mutex<Set<String>>([])

    func lookUp(_ host: String) -> Resolver.Resolution {
      asked.withLock { $0.append(host) }
      while host.hasPrefix("slow"), !released.withLock({ $0.contains(host) || $0.contains("") }) {
        _ = CountingSemaphore().wait(atMost: .milliseconds(1))
      }
      return .success([.ipv4(0x0101_0101, port: 0)])
    }

    func release(_ host: String) { released.withLock { _ = $0.insert(host) } }

    func askedFor(_ host: String) -> Int { asked.withLock { $0.count { $0 == host } } }
  }

  private func make(threadsPerOwner: Int = 2) -> (Names, Resolver) {
    let names = Names()
    return (names, Resolver(threadsPerOwner: threadsPerOwner, lookUp: { names.lookUp($0) }))
  }

  @Test func findsTheInterfaceOfAZone() async throws {
    let loopback = SocketAddress.ipv6(high: 0xFE80 << 48, low: 1, port: 8080, scope: 1)
    #expect(loopback.description == "[fe80::1%1]:8080")
    let resolver = Resolver()
    #expect(await resolver.resolve(host: "fe80::1%lo", port: 8080) == .success([loopback]))
    #expect(
      await resolver.resolve(host: "fe80::1%nowhere", port: 8080)
        == .failure(ResolveError(host: "fe80::1%nowhere", reason: "this machine has no interface 'nowhere'")))
  }

  @Test func namesOfOneOwnerThatHangDoNotDelayOthers() async throws {
    let (names, resolver) = make()
    defer { names.release("") }
    for index in 0..<20 { Task { await resolver.resolve(host: "slow\(index)", port: 1, for: "a") } }
    try await until { names.asked.withLock { $0.count } == 2 && resolver.queuedLookups == 18 }
    #expect(await resolver.resolve(host: "quick", port: 7, for: "b") == .success([.ipv4(0x0101_0101, port: 7)]))
    #expect(resolver.queuedLookups == 18, "the lookups of one owner use only its share of the threads")
  }

  @Test func aCancelledLookUpLeavesTheQueue() async throws {
    let (names, resolver) = make()
    defer { names.release("") }
    let lookups = (0..<6).map { _ in resolver.makeLookup() }
    let tasks = lookups.enumerated().map { index, lookup in
      Task { await resolver.resolve(host: "slow\(index)", port: 1, for: "a", as: lookup) }
    }
    try await until { names.asked.withLock { $0.count } == 2 && resolver.queuedLookups == 4 }
    for lookup in lookups { resolver.cancel(lookup) }
    // Requests return at once, even if their lookups are still running.
    for task in tasks {
      let result = await task.value
      #expect(throws: ResolveError.self) { try result.get() }
    }
    #expect(resolver.queuedLookups == 0)
    names.release("")
    #expect(await resolver.resolve(host: "last", port: 1, for: "a") == .success([.ipv4(0x0101_0101, port: 1)]))
    #expect(names.asked.withLock { $0.count } == 3)
    resolver.cancel(lookups[0])
  }

  @Test func requestsOfOneOwnerForOneNameUseOneLookUp() async throws {
    let (names, resolver) = make()
    defer { names.release("") }
    let tasks = [("a", 1), ("a", 2), ("b", 3)].map { owner, port in
      Task { await resolver.resolve(host: "slow", port: UInt16(port), for: owner) }
    }
    try await until { names.askedFor("slow") == 2 }
    names.release("slow")
    for (task, port) in zip(tasks, 1...) {
      #expect(await task.value == .success([.ipv4(0x0101_0101, port: UInt16(port))]))
    }
    #expect(names.askedFor("slow") == 2)
  }
}

@Suite struct LookupQueueTests {
  private typealias Queue = LookupQueue<Int>

  private func key(_ owner: String, _ host: String) -> Queue.Key { Queue.Key(owner: owner, host: host) }

  @Test func ownersTakeTurns() {
    var queue = Queue(limit: 10, limitOfOwner: 10, threadsPerOwner: 10)
    for (id, host) in ["1", "2", "3"].enumerated() { #expect(queue.add(id, UInt64(id), key("a", host)) == nil) }
    #expect(queue.add(4, 4, key("b", "4")) == nil)
    #expect((0..<4).compactMap { _ in queue.next()?.host } == ["1", "4", "2", "3"])
    #expect(queue.next() == nil)
  }

  @Test func anOwnerHasItsShareOfTheThreads() {
    var queue = Queue(limit: 10, limitOfOwner: 10, threadsPerOwner: 1)
    for (id, host) in ["1", "2"].enumerated() { _ = queue.add(id, UInt64(id), key("a", host)) }
    #expect(queue.next() == key("a", "1"))
    #expect(queue.next() == nil)
    #expect(queue.finish(key("a", "1")) == [0])
    #expect(queue.next() == key("a", "2"))
    #expect(queue.finish(key("a", "2")) == [1] && queue.isEmpty)
  }

  @Test func limitsApplyToLookUpsAndNotToRequests() {
    var queue = Queue(limit: 3, limitOfOwner: 2, threadsPerOwner: 1)
    for id in 0..<9 { #expect(queue.add(id, UInt64(id), key("a", "same")) == nil) }
    #expect(queue.add(10, 10, key("a", "2")) == nil)
    #expect(queue.add(11, 11, key("a", "3")) == 2)
    #expect(queue.add(12, 12, key("b", "1")) == nil)
    #expect(queue.add(13, 13, key("b", "2")) == 3)
  }

  /// Requests arrive, end and are cancelled in any order, and no state remains.
  @Test(arguments: [UInt64](1...5))
  func keepsNoStateAfterTheLastRequest(seed: UInt64) {
    var random = SeededGenerator(seed: seed)
    var queue = Queue(limit: 20, limitOfOwner: 8, threadsPerOwner: 2)
    var waiting: Set<UInt64> = []
    var running: [Queue.Key] = []
    for id in 0..<2_000 as Range<UInt64> {
      let new = key(["a", "b", "c"].randomElement(using: &random) ?? "a", "\(Int.random(in: 0..<12, using: &random))")
      if queue.add(Int(id), id, new) == nil { waiting.insert(id) }
      if let cancelled = waiting.randomElement(using: &random), Bool.random(using: &random) {
        #expect(queue.cancel(cancelled) == Int(cancelled))
        waiting.remove(cancelled)
      }
      if running.count < 4, let next = queue.next() { running.append(next) }
      for owner in ["a", "b", "c"] { #expect(running.count { $0.owner == owner } <= 2) }
      if !running.isEmpty, Bool.random(using: &random) {
        for waiter in queue.finish(running.removeFirst()) { #expect(waiting.remove(UInt64(waiter)) != nil) }
      }
    }
    for id in waiting.sorted().dropLast(3) {
      _ = queue.cancel(id)
      waiting.remove(id)
    }
    while let next = running.popLast() ?? queue.next() {
      for waiter in queue.finish(next) { #expect(waiting.remove(UInt64(waiter)) != nil) }
    }
    #expect(waiting.isEmpty && queue.isEmpty)
  }
}
