import ByteStreams
import Consumers
import Inbox
import LoopbackSupport
import Synchronization
import Testing

@testable import Reactor
@testable import Sessions

/// When the held receives of other workers are woken. The consumers in these tests have no timer.
@Suite struct ConsumerNotificationTests {
  private let now = MonotonicTime(nanoseconds: 1_000_000_000)

  /// A waiting listener, on a loop of its own.
  private final class Listener: SignalTarget, Sendable {
    private let count = Mutex(0)
    let loop: EventLoop

    init(_ notifier: Notifier) async throws {
      loop = try EventLoop(index: 0)
      loop.submit { context in
        let registered = Notifier.Listener(context.makeSignal(for: self))
        registered.isWaiting.store(true, ordering: .sequentiallyConsistent)
        notifier.add(registered)
        return nil
      }
      try await until("the listener waits") { notifier.hasWaiters }
    }

    func signalled() { count.withLock { $0 += 1 } }

    var notifications: Int { count.withLock { $0 } }

    /// Waits until all earlier signals are counted.
    func settle() async throws {
      let isOver = Mutex(false)
      loop.submit { _ in
        isOver.withLock { $0 = true }
        return nil
      }
      try await until("the loop has processed the signals") { isOver.withLock { $0 } }
    }

    func stop() {
      loop.stop()
      loop.join()
    }
  }

  private func settings() -> ConsumerSettings {
    var settings = ConsumerSettings()
    settings.isWorkSharing = true
    settings.visibility = .seconds(10)
    return settings
  }

  @Test func theConsumersOfAllCreatedSessionsHaveACommonLimit() throws {
    // Each consumer has 612 bytes and its name.
    let budget = RetentionBudget(consumerBytes: 64 * 1_000)
    var settings = ConsumerSettings()
    _ = settings.add(topic: Array("0123456789abcdef".utf8))
    func session(of owner: String) -> ConcurrentConsumers {
      ConcurrentConsumers(
        inbox: ConcurrentInbox(epoch: Epoch(0xABC), retention: Retention()), budget: budget, owner: owner)
    }
    func fill(_ consumers: ConcurrentConsumers, _ name: String) -> Int {
      (0..<200).prefix { number in
        (try? consumers.put("\(name)\(number)", settings, start: Cursor(epoch: Epoch(0xABC), sequence: 0), now: now))
          != nil
      }.count
    }
    var first: ConcurrentConsumers? = session(of: "a")
    let count = first.map { fill($0, "a") } ?? 0
    #expect((90..<110).contains(count))
    let second = session(of: "a")
    #expect(fill(second, "b") == 0, "the same client has no more in another session")
    let other = session(of: "b")
    #expect(fill(other, "c") == 1, "another client has its share")
    first = nil
    #expect(fill(second, "b") > 90, "a session that ends gives its memory back")
    second.close()
    other.close()
    #expect(budget.consumerBytes == 0)
  }

  @Test func theTimeWithoutUseIsStoredBeforeAnIdleConsumerIsRemoved() throws {
    let inbox = ConcurrentInbox(epoch: Epoch(0xABC), retention: Retention())
    let consumers = ConcurrentConsumers(inbox: inbox)
    var settings = settings()
    settings.idle = .hours(16)
    _ = try consumers.put("workers", settings, start: inbox.latest, now: now)
    #expect(consumers.nextAlarm == now + .hours(1))
  }

  @Test func aReceiveThatFindsExpiredLeasesWakesTheOtherWorkersForTheRest() async throws {
    let inbox = ConcurrentInbox(epoch: Epoch(0xABC), retention: Retention())
    let consumers = ConcurrentConsumers(inbox: inbox)
    _ = try consumers.put("workers", settings(), start: inbox.latest, now: now)
    for text in ["a", "b"] { inbox.append(Array(text.utf8).span, kind: .text, time: 0, now: now) }
    let turns = try (0..<3).map { _ in try consumers.beginReceive("workers", acknowledging: nil, now: now) }
    func receive(_ turn: Int, limit: Int, at time: MonotonicTime) throws -> LeasedBatch {
      try consumers.lease(turns[turn], of: "workers", limit: limit, maxBytes: .max, now: time)
    }
    #expect(try receive(0, limit: 2, at: now).messages.count == 2)
    let listener = try await Listener(consumers.notifier)
    consumers.beginHolding(turns[1], of: "workers", now: now)
    #expect(try receive(2, limit: 1, at: now + .seconds(9)).messages.isEmpty)
    try await listener.settle()
    #expect(listener.notifications == 0)
    #expect(try receive(2, limit: 1, at: now + .seconds(10)).messages.count == 1)
    try await until("the held receive is woken") { listener.notifications > 0 }
    var held = turns[1]
    #expect(consumers.hasNews(&held, of: "workers"))
    consumers.endHolding(turns[1], of: "workers", now: now + .seconds(10))
    listener.stop()
  }
}
