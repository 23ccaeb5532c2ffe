import Testing

@testable import Totals

@Suite struct ReservedTotalTests {
  @Test func oneClientMayUseTheLimitWhileOthersKeepTheirShares() {
    var total = ReservedTotal(limit: 640)
    for _ in 0..<640 {
      #expect(total.admits(by: 1))
      total.add(by: 1)
    }
    #expect(!total.admits(by: 1), "the heaviest client gets no more")
    // Eight other clients get the reserve, an eighth of the limit: ten places each.
    for client in 2...9 as ClosedRange<UInt64> {
      for _ in 0..<10 {
        #expect(total.admits(by: client))
        total.add(by: client)
      }
      #expect(!total.admits(by: client))
    }
    #expect(total.used == total.reserve.maximum && !total.admits(by: 10))
    total.remove(by: 1)
    #expect(!total.admits(by: 1) && total.admits(by: 10), "other clients get the returned part first")
  }

  @Test func partsOfDifferentSizesAreCountedAsAWhole() {
    var total = ReservedTotal(limit: 6_400)
    total.add(6_350, by: 1)
    #expect(total.admits(50, by: 1) && !total.admits(51, by: 1))
    #expect(total.admits(100, by: 2) && !total.admits(101, by: 2))
    total.remove(6_350, by: 1)
    #expect(total.userCount == 0 && total.used == 0)
  }

  @Test func aSmallLimitHasNoReserve() {
    var total = ReservedTotal(limit: 1)
    total.add(by: 1)
    #expect(!total.admits(by: 2))
  }

  @Test func clientsWithoutCredentialsAreCountedByTheirAddresses() {
    let (first, second) = (TotalUser("", at: 1), TotalUser("", at: 2))
    #expect(first.client != second.client)
    #expect(TotalUser("a", at: 1).client == TotalUser("a", at: 2).client)
    #expect(TotalUser("a", at: 1).client != TotalUser("b", at: 1).client)
  }
}
