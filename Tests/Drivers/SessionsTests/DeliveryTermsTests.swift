import ByteStreams
import Journal
import Testing

@testable import Sessions

/// Which delivery ids were issued, and which of them the store has lost.
@Suite struct DeliveryTermsTests {
  /// The first deliveries of the terms have the numbers 1, 11, 21, and so on.
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

  @Test func anIdAboveTheLastOfItsTermIsLost() throws {
    let terms = try terms([1, 2])
    #expect(isLost("1.10", terms) == false && isLost("2.11", terms) == false)
    #expect(isLost("1.11", terms) == true)
    #expect(isLost("2.10", terms) == nil && isLost("3.1", terms) == nil && isLost("0.1", terms) == nil)
    #expect(isLost("\(1 << 32).1", terms) == nil)
  }

  /// Two gateways have begun a term with the same counter, and the store has lost one of these terms.
  @Test func anIdOfATermThatASharedSessionDoesNotHaveIsLost() throws {
    let terms = try terms([1 << 32 | 5, 2 << 32 | 5])
    #expect(isLost("\(1 << 32 | 5).10", terms) == false)
    for unknown in [1 << 32 | 6, 2 << 32 | 4, 3 << 32] { #expect(isLost("\(unknown).3", terms) == true) }
  }

  /// A process that ends repeatedly begins many terms while a message is queued.
  @Test func anIdOfATermBeforeTheRememberedTermsIsNotLost() throws {
    let terms = try terms((1...70).map { $0 << 32 | 5 })
    // The seventh term is the oldest term that is kept.
    #expect(isLost("\(1 << 32 | 5).10", terms) == false && isLost("\(6 << 32 | 5).60", terms) == false)
    #expect(isLost("\(6 << 32 | 5).61", terms) == true)
    #expect(isLost("\(7 << 32 | 6).61", terms) == true)
  }

  /// The first term after an upgrade follows a term of an earlier version.
  @Test func aTermWithRandomBitsFollowsATermWithoutThem() throws {
    let next = JournalTerm.number(after: 5, random: 7)
    #expect(next == 6 << 32 | 7 && JournalTerm.number(after: next, random: 3) == 7 << 32 | 3)
    let terms = try terms([4, 5, next])
    #expect(isLost("5.20", terms) == false && isLost("5.21", terms) == true && isLost("\(next).21", terms) == false)
    // The earlier version had begun term 6 in another copy of the file.
    #expect(isLost("6.21", terms) == true)
  }

  @Test func termsIncreaseToTheLastNumberOfAJournal() {
    let last: UInt64 = 1 << 62 - 1
    #expect(JournalTerm.number(after: 0, distance: 1 << 40, random: .max) == last)
    #expect(JournalTerm.number(after: last - 1, random: 0) == last)
  }

  /// A server may still respond to calls of an earlier connection.
  @Test func callsOfDifferentTermsHaveDifferentIDs() {
    func bits(_ counter: UInt64, _ random: UInt64) -> UInt64 {
      JournalTerm(term: counter << 32 | random, firstPush: 1, firstDelivery: 1).callBits
    }
    #expect(Set((1...2_048).map { bits($0, 7) }).count == 2_048)
    #expect(Set((0..<512).map { bits(9, $0) }).count == 512)
    #expect(bits(1 << 30 - 1, .max >> 32) < 1 << 20)
    #expect(JournalTerm(term: 9, firstPush: 1, firstDelivery: 1).callBits != bits(10, 3))
  }
}
