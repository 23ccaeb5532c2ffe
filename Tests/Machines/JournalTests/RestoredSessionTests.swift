import ByteStreams
import Consumers
import Continuity
import Inbox
import Journal
import JournalSupport
import Outbox
import TestSupport
import Testing
import UpstreamProtocol

extension RestoredSession {
  mutating func follow(_ entry: JournalEntry) {
    let isApplied = apply(entry)
    #expect(isApplied, "\(entry)")
  }

  mutating func refuse(_ entry: JournalEntry) {
    let isApplied = apply(entry)
    #expect(!isApplied, "\(entry)")
  }
}

@Suite struct RestoredSessionTests {
  /// The states of deliveries are the largest part of a session in memory.
  @Test func theStatesOfTheLastDeliveriesStayWithinTheirLimit() {
    var session = RestoredSession(epoch: 1)
    let last = UInt64(StoredOutbox.maximumDeliveries) + 100
    for (first, last) in [(1, last - 1), (last, last)] {
      let settlement = StoredSettlement(
        first: first, last: last, state: 3, reason: 0, time: 10, releasesPayloads: true)
      let follows = session.apply(.settled(settlement))
      #expect(follows)
    }
    #expect(session.outbox.deliveries.count == StoredOutbox.maximumDeliveries)
    #expect(session.outbox.deliveries.capacity == StoredOutbox.maximumDeliveries)
    #expect(
      session.outbox.delivery(last)?.state == 3 && session.outbox.delivery(100) == nil
        && session.outbox.delivery(101)?.state == 3)
  }

  /// The entries of a restored state lead to the same state, wherever the sequence is cut.
  @Test(arguments: 0..<40 as Range<UInt64>)
  func theEntriesOfAStateRestoreItWhereverTheSequenceIsSplit(seed: UInt64) {
    var writer = RandomSession(seed: seed)
    var state = RestoredSession(epoch: 7)
    for step in 0..<400 {
      for entry in writer.nextEntries() { state.follow(entry) }
      guard step % 10 == 0 else { continue }
      #expect(Self.rebuilt(state) == state, "seed \(seed), step \(step)")
    }
  }

  /// Rebuilds a state from its entries in another order, since pushes are stored apart from the other entries.
  static func rebuilt(_ state: RestoredSession) -> RestoredSession {
    var result = RestoredSession(epoch: state.epoch)
    let entries = state.stateEntries
    for entry in entries.prefix(1) { result.follow(entry) }
    for entry in state.pushEntries { result.follow(entry) }
    for entry in entries.dropFirst() { result.follow(entry) }
    return result
  }

  @Test func aPushThatDoesNotFollowIsRefused() {
    var state = RestoredSession(epoch: 1)
    state.follow(.push(RandomSession.push(1)))
    state.refuse(.push(RandomSession.push(3)))
    state.refuse(.push(RandomSession.push(1)))
    #expect(state.log.nextPush == 2 && state.log.pushes.count == 1)
  }

  @Test func aSessionMayBeContinuedIfEachNamespaceCan() {
    var state = RestoredSession(epoch: 1)
    func continuation(_ name: String, _ pid: [UInt8], _ offset: [UInt8]?) -> JournalEntry {
      .continued(namespace: name, Continuation(pid: pid, offset: offset))
    }
    #expect(!state.mayBeContinued)
    state.follow(continuation("/", [1], [2]))
    #expect(state.mayBeContinued)
    state.follow(continuation("/admin", [3], nil))
    #expect(!state.mayBeContinued)
    state.follow(continuation("/admin", [], [4]))
    #expect(!state.mayBeContinued)
    state.follow(continuation("/admin", [3], [4]))
    #expect(state.mayBeContinued)
    state.mayHaveLostEntries = true
    #expect(!state.mayBeContinued)
    state.mayHaveLostEntries = false
    state.follow(.discontinued)
    #expect(!state.mayBeContinued && state.memory.continuations.isEmpty)
  }

  @Test func anotherProtocolResumesNothing() {
    var state = RestoredSession(epoch: 1)
    state.follow(.speaks(.socketIO))
    state.follow(.cursor([1]))
    state.follow(.continued(namespace: "/", Continuation(pid: [1], offset: [2])))
    state.follow(.subscribed(StoredSubscription(key: [1], kind: .text, payload: ByteString([1]))))
    let before = state
    state.follow(.speaks(.socketIO))
    #expect(state == before)
    state.follow(.speaks(.websocket))
    #expect(state == RestoredSession(epoch: 1))
  }

  @Test func aTermThatIsNotNewerIsRefused() {
    var state = RestoredSession(epoch: 1)
    state.follow(.opened(JournalTerm(term: 3, firstPush: 1, firstDelivery: 1)))
    state.refuse(.opened(JournalTerm(term: 3, firstPush: 1, firstDelivery: 1)))
    #expect(state.terms.count == 1)
  }

  @Test func aMessageStaysQueuedUntilItIsReleased() {
    var state = RestoredSession(epoch: 1)
    for number in [1, 2, 4] as [UInt64] { state.follow(.accepted(RandomSession.message(number))) }
    #expect(state.outbox.delivery(3) == nil)
    let settlement = StoredSettlement(first: 2, last: 2, state: 3, reason: 0, time: 40, releasesPayloads: true)
    state.follow(.settled(settlement))
    #expect(state.outbox.messages.keys.sorted() == [1, 4])
    #expect(state.outbox.delivery(2) == StoredOutbox.Delivery(state: 3, reason: 0, time: 4))
    #expect(state.outbox.nextDelivery == 5)
  }

  @Test func oldDeliveriesAreForgotten() {
    var state = RestoredSession(epoch: 1)
    let last = UInt64(StoredOutbox.maximumDeliveries) + 10
    let settlement = StoredSettlement(first: 1, last: last, state: 3, reason: 0, time: 0, releasesPayloads: true)
    state.follow(.settled(settlement))
    #expect(state.outbox.delivery(10) == nil)
    #expect(state.outbox.delivery(11) != nil)
    #expect(state.outbox.deliveries.count == StoredOutbox.maximumDeliveries)
  }

  @Test func trimmingKeepsTheNewestGapThatWasDropped() {
    var state = RestoredSession(epoch: 1)
    for number in 1...4 as ClosedRange<UInt64> {
      state.follow(.push(RandomSession.push(number)))
      state.follow(.gap(.upstream))
    }
    state.follow(.gap(.store))
    state.follow(.trimmed(before: 4))
    #expect(state.log.firstRetained == 4)
    #expect(state.log.gaps.map(\.after) == [2, 3, 4])
    #expect(state.log.gaps.last?.marks == [.upstream, .store])
    #expect(state.log.retention.newestTrimmedGap?.after == 2)
    #expect(state.log.lastPosition == 9)
  }
}
