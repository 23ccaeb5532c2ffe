import ByteStreams
import Inbox
import Testing

@testable import Consumers

/// Each state of a push of a shared consumer, with each thing that a worker can do with a lease of it.
@Suite struct LeaseStateTests {
  enum PushState: CaseIterable {
    case notHandedOut, leased, leasedAgain, expired, released, delayed, acknowledged, rejected, removedWhileLeased
    case removedAfterExpiry
  }

  /// A consumer with a push in this state, and a lease for it. The lease is the first one.
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
    }
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
