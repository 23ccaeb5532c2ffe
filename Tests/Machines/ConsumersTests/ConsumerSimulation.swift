import ByteStreams
import Inbox
import TestSupport
import Testing

@testable import Consumers

/// Workers die, stall and acknowledge late. A model says which worker may handle which push.
@Suite struct ConsumerSimulation {
  /// The model's record of a push.
  private struct Push {
    let key: Int?
    /// The valid lease, and the time at which it ends.
    var lease: Lease?
    var end = MonotonicTime.zero
    var isAcknowledged = false
    var isDead = false
    /// Whether the push was a dead letter before. Such a push is delivered out of order.
    var isRetried = false
  }

  private var fixture = ConsumerFixture()
  private var random = SeededGenerator(seed: 0)
  private var settings = ConsumerSettings()
  private var pushes: [Push] = []
  /// The leases that workers have, valid or not.
  private var held: [Lease] = []
  private var reported: UInt64 = 0

  private var isStored = false

  @Test(arguments: [UInt64](1...12))
  func leasesEveryPushToOneWorkerAtATimeInOrder(seed: UInt64) throws {
    var simulation = ConsumerSimulation()
    try simulation.run(seed)
  }

  @Test(arguments: [UInt64](1...12))
  func leasesEveryPushInOrderAcrossRestartsIfStored(seed: UInt64) throws {
    var simulation = ConsumerSimulation()
    simulation.isStored = true
    try simulation.run(seed)
  }

  private mutating func run(_ seed: UInt64) throws {
    random = SeededGenerator(seed: seed)
    fixture = ConsumerFixture(retention: Retention(count: seed % 4 == 0 ? 30 : 100_000), seed: seed)
    settings.isWorkSharing = true
    settings.visibility = .seconds(10)
    settings.maximumDeliveries = UInt32.random(in: 1...4, using: &random)
    if seed % 3 != 0 { settings.order = seed % 2 == 0 ? .topic : ConsumerOrder("/key") }
    if isStored { fixture.startStoring() }
    _ = try fixture.put(settings)
    for _ in 0..<4_000 {
      try step()
      guard isStored else { continue }
      try fixture.store()
      if Int.random(in: 0..<50, using: &random) == 0 { try restart() }
    }
    try drain()
    let status = try fixture.status
    let settled = UInt64(pushes.count { $0.isAcknowledged }) + UInt64(status.deadLetters) + status.droppedDeadLetters
    #expect(settled + reported == UInt64(pushes.count), "each push is acknowledged, dead or reported as missing")
    #expect(status.lag == 0 && status.leases == 0)
    #expect(status.missed == reported)
    #expect(seed % 4 == 0 || reported == 0)
  }

  private mutating func step() throws {
    fixture.wait(.milliseconds(Int64.random(in: 0...200, using: &random)))
    switch Int.random(in: 0..<20, using: &random) {
    case 0..<6:
      let key = Int.random(in: 0..<6, using: &random)
      pushes.append(Push(key: key == 0 || settings.order == nil ? nil : key))
      if settings.order == .topic {
        fixture.push("x", topic: key == 0 ? "" : "t\(key)")
      } else {
        fixture.push(key == 0 ? "x" : "{\"key\":\"\(key)\"}")
      }
    case 6..<11: try receive(Int.random(in: 1...4, using: &random))
    case 11: held.removeAll { _ in Bool.random(using: &random) }  // Workers die.
    case 12: _ = fixture.table.expire(now: fixture.now, fixture.log)
    case 13 where Int.random(in: 0..<20, using: &random) == 0: try retry()
    default: try settle()
    }
  }

  private mutating func restart() throws {
    let before = try fixture.status
    fixture.wait(.milliseconds(Int64.random(in: 0...12_000, using: &random)))
    try fixture.restart(isCompacted: Bool.random(using: &random))
    let after = try fixture.status
    // The position may move forward. It no longer waits for pushes of a gap behind a lease, or for dead letters that
    // are delivered again.
    #expect(after.position.sequence >= before.position.sequence && after.leases == before.leases)
    #expect(after.deadLetters == before.deadLetters && after.droppedDeadLetters == before.droppedDeadLetters)
    #expect(after.deadBytes == before.deadBytes && after.missed == before.missed)
  }

  private func isLive(_ push: Push) -> Bool { push.lease != nil && push.end > fixture.now }

  private mutating func receive(_ limit: Int) throws {
    let batch = try fixture.receive(limit)
    reported += batch.gap?.missed ?? 0
    for message in batch.messages {
      let number = message.lease.number
      let push = pushes[Int(number) - 1]
      #expect(!isLive(push), "push \(number) has two leases")
      #expect(!push.isAcknowledged && !push.isDead, "push \(number) was settled")
      #expect(message.lease.attempt <= settings.maximumDeliveries)
      if let key = push.key, !push.isRetried { expectNoneBefore(number, of: key) }
      pushes[Int(number) - 1].lease = message.lease
      pushes[Int(number) - 1].end = message.expires
      held.append(message.lease)
    }
  }

  /// Expects that every push of the key before `number` is settled, or can never be delivered again.
  private func expectNoneBefore(_ number: UInt64, of key: Int) {
    for earlier in 1..<number {
      let push = pushes[Int(earlier) - 1]
      guard push.key == key, !push.isAcknowledged, !push.isDead, !push.isRetried else { continue }
      let isUndeliverable = (push.lease?.attempt ?? 0) >= settings.maximumDeliveries
      #expect(
        !isLive(push) && (earlier < fixture.log.firstRetained || isUndeliverable),
        "push \(number) overtakes \(earlier)")
    }
  }

  private mutating func settle() throws {
    guard let lease = held.randomElement(using: &random) else { return }
    if Bool.random(using: &random) { held.removeAll { $0 == lease } }
    let settlement: Settlement =
      switch Int.random(in: 0..<10, using: &random) {
      case 0: .reject
      case 1: .extend
      case 2: .release(.zero)
      case 3: .release(.seconds(3))
      default: .acknowledge
      }
    let index = Int(lease.number) - 1
    let isValid = pushes[index].lease == lease && isLive(pushes[index])
    let outcome = try fixture.settle(settlement, lease)[0]
    guard isValid else {
      // A push that retention has removed does not become a dead letter.
      let isMissing = lease.number < fixture.log.firstRetained
      let mayBeSettled = pushes[index].isAcknowledged || !isLive(pushes[index]) && (isMissing || !pushes[index].isDead)
      #expect(outcome == .leaseLost || outcome == .acknowledged && mayBeSettled, "\(outcome)")
      return
    }
    switch outcome {
    case .acknowledged:
      #expect(settlement == .acknowledge)
      pushes[index].isAcknowledged = true
    case .dead: pushes[index].isDead = true
    case .extended(let end): pushes[index].end = end
    case .released: break
    case .leaseLost: Issue.record("a valid lease is lost")
    }
    if case .extended = outcome {} else { pushes[index].lease = nil }
  }

  private mutating func retry() throws {
    for letter in try fixture.table.deadLetters(of: ConsumerFixture.name).letters {
      pushes[Int(letter.message.sequence) - 1].isDead = false
      pushes[Int(letter.message.sequence) - 1].isRetried = true
      pushes[Int(letter.message.sequence) - 1].lease = nil
    }
    _ = try fixture.table.retryDeadLetters(of: ConsumerFixture.name, now: fixture.now)
  }

  /// Adds a worker that handles all remaining pushes.
  private mutating func drain() throws {
    for _ in 0..<10_000 {
      fixture.wait(.seconds(4))
      let before = held.count
      try receive(100)
      for lease in held[before...] {
        #expect(try fixture.settle(.acknowledge, lease) == [.acknowledged])
        pushes[Int(lease.number) - 1].isAcknowledged = true
        pushes[Int(lease.number) - 1].lease = nil
      }
      let lag = try fixture.status.lag
      let next = fixture.table.nextDeadline() ?? .zero
      if held.count == before, lag == 0, next > fixture.now + .minutes(1) { return }
    }
    Issue.record("the queue does not drain")
  }
}
