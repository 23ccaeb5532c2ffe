import TestSupport
import Testing

@testable import HTTPServer

@Suite struct ArrivalListTests {
  @Test func keepsOrderThroughRandomRemovals() {
    var generator = SeededGenerator(seed: 5)
    var list = ArrivalList<Int>()
    var model: [(Int, ArrivalList<Int>.Handle)] = []
    for step in 0..<10_000 {
      switch UInt8.random(in: 0..<4, using: &generator) {
      case 0, 1: model.append((step, list.append(step)))
      case 2 where !model.isEmpty:
        let victim = model.remove(at: Int.random(in: 0..<model.count, using: &generator))
        let removed = list.remove(victim.1)
        #expect(removed == victim.0)
      default:
        let taken = list.popFirst()
        #expect(taken == (model.isEmpty ? nil : model.removeFirst().0))
      }
      let count = list.count
      #expect(count == model.count)
    }
  }

  @Test func anOldHandleNeverRemovesALaterElement() {
    var list = ArrivalList<Int>()
    let old = list.append(1)
    _ = list.popFirst()
    _ = list.append(2)
    let removed = list.remove(old)
    #expect(removed == nil)
    let first = list.first
    #expect(first == 2)
  }

  @Test func theFirstElementMovesToTheEndAndKeepsItsHandle() {
    var list = ArrivalList<Int>()
    let handles = [1, 2, 3].map { list.append($0) }
    list.moveFirstToEnd { $0 += 10 }
    #expect(list.first == 2 && list.count == 3)
    #expect(list.remove(handles[1]) == 2)
    #expect(list.popFirst() == 3)
    list.moveFirstToEnd { $0 += 10 }
    #expect(list.remove(handles[0]) == 21 && list.isEmpty)
  }
}
