import Testing

@testable import SocketIO

@Suite struct PendingAcknowledgementsTests {
  private func id(_ number: UInt64) -> AcknowledgementID { AcknowledgementID(namespace: 0, id: number) }

  @Test func onlyPendingAcknowledgementsCountTowardsTheLimit() {
    var pending = PendingAcknowledgements(limit: 4)
    pending.insert(id(0))
    for number in 1...1_000 as ClosedRange<UInt64> {
      pending.insert(id(number))
      let isPending = pending.remove(id(number))
      #expect(isPending)
    }
    let isPending = pending.remove(id(0))
    #expect(isPending, "however many acknowledgements were added and removed later")
  }

  @Test func aboveTheLimitTheOldestAcknowledgementIsForgotten() {
    var pending = PendingAcknowledgements(limit: 4)
    for number in 0..<6 as Range<UInt64> { pending.insert(id(number)) }
    let arePending = (0..<6 as Range<UInt64>).map { pending.remove(id($0)) }
    #expect(arePending == [false, false, true, true, true, true])
  }
}
