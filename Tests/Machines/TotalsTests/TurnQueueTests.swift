import Testing
import Totals

@Suite struct TurnQueueTests {
  private func user(_ number: UInt64) -> TotalUser { TotalUser(address: number) }

  @Test func usersAtTheirLimitKeepTheirTurns() {
    var queue = TurnQueue<String>()
    for (user, element) in [(1, "a"), (1, "b"), (2, "c"), (3, "d")] {
      queue.append(element, by: TotalUser(address: UInt64(user)))
    }
    #expect(queue.count == 4)
    #expect(queue.first { $0.address > 1 }?.element == "c")
    #expect(queue.removeFirst(of: TotalUser(address: 2)) == "c")
    queue.removeAll(of: TotalUser(address: 3)) { $0 == "d" }
    #expect(queue.first { $0.address > 1 } == nil)
    #expect(queue.removeFirst(of: TotalUser(address: 4)) == nil)
    #expect(all(&queue) == ["a", "b"])
    #expect(queue.isEmpty)
  }

  private func all(_ queue: inout TurnQueue<String>) -> [String] {
    var elements: [String] = []
    while let element = queue.next() { elements.append(element) }
    return elements
  }

  @Test func theElementsOfOneUserKeepTheirOrder() {
    var queue = TurnQueue<String>()
    for text in ["a1", "a2", "a3"] { queue.append(text, by: user(1)) }
    #expect(all(&queue) == ["a1", "a2", "a3"])
    #expect(queue.next() == nil)
  }

  @Test func usersTakeTurnsHoweverManyElementsOneHas() {
    var queue = TurnQueue<String>()
    for number in 0..<1_000 { queue.append("a\(number)", by: user(1)) }
    queue.append("b0", by: user(2))
    #expect(queue.next() == "a0" && queue.next() == "b0" && queue.next() == "a1")
    queue.append("c0", by: user(3))
    queue.append("b1", by: user(2))
    #expect(queue.next() == "a2" && queue.next() == "c0" && queue.next() == "b1" && queue.next() == "a3")
    #expect(all(&queue).count == 996)
  }

  @Test func aUserWhoseElementsWereRemovedHasOneTurnWhenItAddsMore() {
    var queue = TurnQueue<String>()
    queue.append("a0", by: user(1))
    queue.append("b0", by: user(2))
    queue.removeAll(of: user(1)) { _ in true }
    queue.removeAll(of: user(3)) { _ in true }
    for text in ["a1", "a2"] { queue.append(text, by: user(1)) }
    queue.append("b1", by: user(2))
    #expect(all(&queue) == ["a1", "b0", "a2", "b1"])
    queue.append("a3", by: user(1))
    queue.removeAll(of: user(1)) { $0 == "a3" }
    #expect(queue.next() == nil)
    queue.append("a4", by: user(1))
    #expect(all(&queue) == ["a4"])
  }
}
