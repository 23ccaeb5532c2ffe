import ByteStreams
import Inbox
import Testing

@testable import Consumers

/// Each state of a push of a work-sharing consumer, with each operation of a worker on its lease.
@Suite struct LeaseStateTests {
  enum PushState: CaseIterable {
    case notHandedOut, leased, leasedAgain, expired, released, delayed, acknowledged, rejected, removedWhileLeased
    case removedAfterExpiry
  }

  /// A consumer with a push in this state, and the first lease for that push.
  private func fixture(_ state: PushState) throws -> (ConsumerFixture, Lease) {
    var fixture = try ConsumerFixture(retention: Retention(count: 1)) { _ in }
    fixture.push("a")
    guard state != .notHandedOut else { return (fixture, Lease(number: 1, attempt: 1, bits: 7)) }
    let lease = try fixture.lease()
    switch state {
    case .notHandedOut, .leased: break
    case .leasedAgain:
      fixture.wait(.seconds(30))
      #expect(try fixture.lease().attempt == 2)
    case .expired: fixture.wait(.seconds(30))
    case .released: _ = try fixture.settle(.release(.zero), lease)
    case .delayed: _ = try fixture.settle(.release(.seconds(5)), lease)
    case .acknowledged: _ = try fixture.settle(.acknowledge, lease)
    case .rejected: _ = try fixture.settle(.reject, lease)
    case .removedWhileLeased: fixture.push("b")
    case .removedAfterExpiry:
      fixture.push("b")
      fixture.wait(.seconds(30))
    }
    return (fixture, lease)
  }

  private func outcome(_ settlement: Settlement, _ state: PushState) throws -> SettlementOutcome {
    var (fixture, lease) = try fixture(state)
    return try fixture.settle(settlement, lease)[0]
  }

  @Test(arguments: PushState.allCases) func anAcknowledgementSucceedsIfTheLeaseIsValidOrThePushSettled(
    state: PushState
  ) throws {
    let expected: SettlementOutcome =
      switch state {
      case .leased, .acknowledged, .removedWhileLeased, .removedAfterExpiry: .acknowledged
      case .notHandedOut, .leasedAgain, .expired, .released, .delayed, .rejected: .leaseLost
      }
    #expect(try outcome(.acknowledge, state) == expected)
  }

  @Test(arguments: PushState.allCases) func anyOtherSettlementNeedsAValidLease(state: PushState) throws {
    let isValid = state == .leased || state == .removedWhileLeased
    #expect(try outcome(.release(.seconds(5)), state) == (isValid ? .released : .leaseLost))
    #expect(try outcome(.reject, state) == (isValid ? .dead : .leaseLost))
    let end = try fixture(state).0.now + .seconds(30)
    #expect(try outcome(.extend, state) == (isValid ? .extended(until: end) : .leaseLost))
  }

  @Test(arguments: PushState.allCases) func aGuessedLeaseIsNeverValid(state: PushState) throws {
    var (fixture, lease) = try fixture(state)
    for forged in [
      Lease(number: lease.number, attempt: lease.attempt, bits: lease.bits ^ 1),
      Lease(number: lease.number, attempt: lease.attempt + 1, bits: lease.bits),
      Lease(number: 1_000, attempt: 1, bits: lease.bits),
    ] {
      #expect(try fixture.settle(.reject, forged) == [.leaseLost])
      #expect(try fixture.settle(.release(.zero), forged) == [.leaseLost])
      #expect(try fixture.settle(.extend, forged) == [.leaseLost])
      // The queue remembers that a push was settled, but not how.
      let isSettled = state == .acknowledged || state == .removedAfterExpiry
      #expect(
        try fixture.settle(.acknowledge, forged) == [isSettled && forged.number == 1 ? .acknowledged : .leaseLost])
    }
  }

  @Test func anAcknowledgementOfPushesBeforeTheConsumerIsRefused() throws {
    var fixture = try ConsumerFixture { _ in }
    fixture.push("a", "b")
    let lease = try fixture.lease()
    _ = fixture.table.remove(ConsumerFixture.name)
    var settings = ConsumerSettings()
    settings.isWorkSharing = true
    _ = try fixture.table.put(ConsumerFixture.name, settings, start: fixture.log.last, now: fixture.now)
    #expect(try fixture.settle(.acknowledge, lease) == [.leaseLost])
    fixture.push("c")
    let next = try fixture.lease()
    #expect(try fixture.settle(.acknowledge, next, next, lease) == [.acknowledged, .acknowledged, .leaseLost])
    _ = fixture.table.remove(ConsumerFixture.name)
    let foreign = Cursor(epoch: Epoch(0xDEF), sequence: 50)
    _ = try fixture.table.put(ConsumerFixture.name, settings, start: foreign, now: fixture.now)
    #expect(try fixture.settle(.acknowledge, lease) == [.leaseLost], "no push of this log was examined")
    let first = try fixture.lease()
    #expect(try fixture.settle(.acknowledge, first, first) == [.acknowledged, .acknowledged])
  }

  // MARK: States without a lease

  enum QueuedState: CaseIterable { case queued, missing, retried, dropped }
  enum Input: CaseIterable { case receive, expire, retention, retry, remove }

  /// A work-sharing consumer that keeps an order. Push 1 is leased or a dead letter, and push 2 of the same key is in
  /// this state.
  private func fixture(_ state: QueuedState) throws -> ConsumerFixture {
    var fixture = try ConsumerFixture(retention: Retention(count: 3)) { $0.order = .topic }
    fixture.push("1", "2", topic: "a")
    let lease = try fixture.lease()
    switch state {
    case .queued: break
    case .missing: fixture.push("3", "4", "5", topic: "b")
    case .retried, .dropped:
      _ = try fixture.settle(.acknowledge, lease)
      _ = try fixture.settle(.reject, try fixture.lease())
      let name = ConsumerFixture.name
      if state == .retried {
        _ = try fixture.table.retryDeadLetters(of: name, now: fixture.now)
      } else {
        _ = try fixture.table.removeDeadLetters(of: name, now: fixture.now)
      }
    }
    return fixture
  }

  @Test(arguments: QueuedState.allCases, Input.allCases)
  func aPushWithoutALeaseIsDeliveredOnceOrReportedOnce(state: QueuedState, input: Input) throws {
    var fixture = try fixture(state)
    var (numbers, missed): ([UInt64], UInt64) = ([], 0)
    func receive(_ fixture: inout ConsumerFixture) throws {
      let batch = try fixture.receive()
      numbers += batch.messages.map(\.lease.number)
      missed += batch.gap?.missed ?? 0
      for message in batch.messages {
        #expect(try fixture.settle(.acknowledge, message.lease) == [.acknowledged])
      }
    }
    switch input {
    case .receive: try receive(&fixture)
    case .expire:
      fixture.wait(.seconds(30))
      _ = fixture.table.expire(now: fixture.now, fixture.log)
    case .retention: fixture.push("6", "7", "8", topic: "b")
    case .retry: #expect(try fixture.table.retryDeadLetters(of: ConsumerFixture.name, now: fixture.now) == 0)
    case .remove:
      let wasThere = fixture.table.remove(ConsumerFixture.name)
      #expect(wasThere && fixture.table.recordCount == 0)
      return
    }
    fixture.wait(.seconds(30))
    for _ in 0..<3 { try receive(&fixture) }
    let delivered = numbers.count { $0 == 2 }
    switch state {
    case .queued: #expect(delivered == (input == .retention ? 0 : 1))
    case .missing: #expect(delivered == 0 && missed >= 1)
    case .retried: #expect(delivered == 1, "the copy of the push is kept")
    case .dropped: #expect(delivered == 0)
    }
    // In two of the states, the fixture has only leased push 1, which is delivered again or becomes part of the gap. In
    // the other states, the fixture has settled push 1, and in the state `dropped` also push 2.
    let isPending = state == .queued || state == .missing
    let total = fixture.log.last.sequence
    let settledBefore: UInt64 = isPending ? 0 : state == .retried ? 1 : 2
    #expect(UInt64(numbers.count) + missed + settledBefore == total)
    #expect(try fixture.status.lag == 0 && fixture.status.leases == 0 && fixture.table.recordCount == 0)
  }

  @Test func aLeaseHasOneText() throws {
    let lease = Lease(number: 12, attempt: 3, bits: 0x0123_4567_89ab_cdef)
    var text = ByteQueue()
    lease.write(into: &text)
    #expect(text.bytes.text() == "l-12.3.0123456789abcdef")
    #expect(Lease(text.bytes) == lease)
    var longest = ByteQueue()
    Lease(number: UInt64(Int64.max), attempt: .max, bits: .max).write(into: &longest)
    #expect(longest.count == Lease.maximumTextLength && Lease(longest.bytes) != nil)
    for wrong in [
      "", "l-", "l-0.1.0123456789abcdef", "l-1.0.0123456789abcdef", "l-1.1.0123456789abcde", "l-1.1.0123456789ABCDEF",
      "l-1.1.0123456789abcdef0", "p-1.1.0123456789abcdef", "l-1.4294967296.0123456789abcdef", "l-1.1.0123456789abcdeg",
      "l-1.0123456789abcdef", "l-a.1.0123456789abcdef",
    ] {
      #expect(Lease(Array(wrong.utf8).span) == nil, "\(wrong)")
    }
  }
}
