import ByteStreams
import Journal
import Testing

@testable import Sessions

/// Which ids of deliveries were issued, and which the store has lost.
@Suite struct DeliveryTermsTests {
  /// The first delivery of each term is 1, 11, 21, ...
  private func terms(_ numbers: [UInt64]) throws -> DeliveryTerms {
    var restored = RestoredSession(epoch: 0xABC)
    for (index, number) in numbers.enumerated() {
      let start = JournalTerm(term: number, firstPush: 1, firstDelivery: UInt64(index) * 10 + 1)
      let isApplied = restored.apply(.opened(start))
      try #require(isApplied)
    }
    return DeliveryTerms(restored)
  }

  private func isLost(_ id: String, _ terms: DeliveryTerms) -> Bool? {
    terms.read(Array("d-000000000abc.\(id)".utf8).span)?.isLost
  }

  @Test func anIdOfALaterNumberThanItsTermIssuedIsLost() throws {
    let terms = try terms([1, 2])
    #expect(isLost("1.10", terms) == false && isLost("2.11", terms) == false)
    #expect(isLost("1.11", terms) == true)
    #expect(isLost("2.10", terms) == nil && isLost("3.1", terms) == nil && isLost("0.1", terms) == nil)
    #expect(isLost("\(1 << 32).1", terms) == nil)
  }

  /// Two gateways began a term after the same one, and the store has lost what one of them accepted.
  @Test func anIdOfATermThatASharedSessionLacksIsLost() throws {
    let terms = try terms([1 << 32 | 5, 2 << 32 | 5])
    #expect(isLost("\(1 << 32 | 5).10", terms) == false)
    for unknown in [1 << 32 | 6, 2 << 32 | 4, 3 << 32] { #expect(isLost("\(unknown).3", terms) == true) }
  }
}
