import TestSupport
import Testing

@testable import Totals

/// The parts that yield, given as tables.
@Suite struct YieldingTotalTests {
  /// A part of the total: its principal, its address and its size.
  private struct Use {
    let principal: UInt64
    let address: UInt64
    let amount: Int
    init(_ principal: UInt64, _ address: UInt64, _ amount: Int) {
      (self.principal, self.address, self.amount) = (principal, address, amount)
    }
    var user: TotalUser { TotalUser(principal: principal, address: address) }
  }

  /// Adds parts in order, each named after its position. Returns the names of the parts that have yielded, in order.
  private func yielded(_ uses: [Use], limit: Int, newestYields: Bool) -> [Int] {
    var total = YieldingTotal<Int>(limit: limit)
    var yielded: [Int] = []
    for (name, use) in uses.enumerated() {
      let handle = total.add(name, use.amount, by: use.user)
      while let part = total.yield(for: newestYields ? handle : nil) { yielded.append(part) }
      #expect(total.used <= limit)
    }
    return yielded
  }

  @Test func oneClientMayUseTheWholeTotalWhileNobodyElseNeedsIt() {
    #expect(yielded((0..<10).map { _ in Use(0, 1, 10) }, limit: 100, newestYields: true) == [])
  }

  @Test func theHeaviestClientIsDroppedForAClientWithLess() {
    // Ten parts of address 1, then two parts of address 2. The two oldest parts of address 1 yield.
    let many = (0..<10).map { _ in Use(0, 1, 10) }
    #expect(yielded(many + [Use(0, 2, 10), Use(0, 2, 10)], limit: 100, newestYields: true) == [0, 1])
    #expect(yielded(many + [Use(0, 2, 10), Use(0, 2, 10)], limit: 100, newestYields: false) == [0, 1])
  }

  @Test func theHeaviestClientIsRefusedIfItNeedsMore() {
    let many = (0..<10).map { _ in Use(0, 1, 10) }
    #expect(yielded(many + [Use(0, 1, 10)], limit: 100, newestYields: true) == [10])
    #expect(yielded(many + [Use(0, 1, 10)], limit: 100, newestYields: false) == [0])
  }

  @Test func equalClientsDoNotDisplaceEachOther() {
    let equal = (0..<10).map { Use(0, UInt64($0 + 1), 10) }
    #expect(yielded(equal + [Use(0, 11, 10)], limit: 100, newestYields: true) == [10])
    #expect(yielded(equal + [Use(0, 11, 9)], limit: 100, newestYields: true).first.map { $0 < 10 } == true)
  }

  @Test func theHeaviestPrincipalIsDroppedHoweverManyAddressesItHas() {
    // Principal 1 uses 90 from nine addresses, and principal 2 uses 10 from one address.
    let uses = (0..<9).map { Use(1, UInt64($0 + 1), 10) } + [Use(2, 100, 10)]
    #expect(yielded(uses + [Use(3, 101, 15)], limit: 100, newestYields: true).allSatisfy { $0 < 9 })
    // Behind a proxy, all clients have the same address, so the principal decides.
    let proxied = (0..<9).map { _ in Use(1, 7, 10) } + [Use(2, 7, 10)]
    #expect(yielded(proxied + [Use(2, 7, 10)], limit: 100, newestYields: true) == [0])
  }

  @Test func theHeaviestAddressOfAPrincipalIsDropped() {
    let uses = [Use(1, 1, 10)] + (0..<9).map { _ in Use(1, 2, 10) }
    #expect(yielded(uses + [Use(1, 1, 10), Use(1, 3, 10)], limit: 100, newestYields: true) == [1, 2])
  }

  @Test func growingPartsAreCountedAgain() {
    var total = YieldingTotal<Int>(limit: 100)
    let user = { TotalUser(address: $0) }
    let (first, second) = (total.add(1, 10, by: user(1)), total.add(2, 50, by: user(2)))
    let fits = (total.change(first, to: 45), total.yield(for: first))
    #expect(fits == (true, nil))
    let yields = (total.change(first, to: 51), total.yield(for: first))
    #expect(yields == (true, 1))
    let isGone = (total.change(first, to: 1), total.remove(first))
    #expect(isGone == (false, false))
    #expect(total.used == 50 && total.amount(of: user(1)) == 0)
    let isRemoved = total.remove(second)
    #expect(isRemoved && total.count == 0 && total.userCount == 0)
  }

  /// Compares the total with a simple model that searches all parts.
  @Test(arguments: 0..<8) func agreesWithASlowModel(_ seed: UInt64) {
    struct Part { let name: Int, use: Use, amount: Int }
    var random = SeededGenerator(seed: seed)
    var total = YieldingTotal<Int>(limit: 1_000)
    var model: [Part] = []
    var handles: [Int: YieldingTotal<Int>.Handle] = [:]
    func weight(_ matches: (Part) -> Bool) -> Int { model.filter(matches).reduce(0) { $0 + $1.amount } }
    for name in 0..<2_000 {
      let use = Use(random.next() % 4, random.next() % 6, Int(random.next() % 120) + 1)
      if name % 3 == 2, let part = model.randomElement(using: &random), let handle = handles[part.name] {
        model.removeAll { $0.name == part.name }
        let isRemoved = total.remove(handle)
        #expect(isRemoved)
        continue
      }
      handles[name] = total.add(name, use.amount, by: use.user)
      model.append(Part(name: name, use: use, amount: use.amount))
      while let part = total.yield() {
        guard let chosen = model.first(where: { $0.name == part })?.use else {
          Issue.record("a part that is not in the total has yielded")
          return
        }
        let principal = weight { $0.use.principal == chosen.principal }
        #expect((0..<4).allSatisfy { other in weight { $0.use.principal == other } <= principal })
        let address = weight { $0.use.user == chosen.user }
        #expect(
          (0..<6).allSatisfy { other in
            weight { $0.use.principal == chosen.principal && $0.use.address == other } <= address
          })
        #expect(model.first { $0.use.user == chosen.user }?.name == part)
        model.removeAll { $0.name == part }
      }
      #expect(total.used == weight { _ in true } && total.count == model.count)
    }
  }

  /// Attack: clients with ever new addresses make the tables grow.
  @Test func forgetsClientsWithoutParts() {
    var random = SeededGenerator(seed: 1)
    var total = YieldingTotal<Int>(limit: 50)
    var present: [(user: TotalUser, handle: YieldingTotal<Int>.Handle)] = []
    for _ in 0..<20_000 {
      if Bool.random(using: &random), let index = present.indices.randomElement(using: &random) {
        let isThere = total.remove(present.remove(at: index).handle)
        #expect(isThere)
      } else {
        let user = TotalUser(
          principal: .random(in: 0..<3, using: &random), address: .random(in: 1..<40, using: &random))
        present.append((user, total.add(0, 1, by: user)))
        while total.yield() != nil {}
        present.removeAll { !total.contains($0.handle) }
      }
      #expect(total.count == present.count && total.userCount == Set(present.map(\.user)).count)
    }
    for part in present { _ = total.remove(part.handle) }
    #expect(total.count == 0 && total.userCount == 0 && total.used == 0)
  }
}
