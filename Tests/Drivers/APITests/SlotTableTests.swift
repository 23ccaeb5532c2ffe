import TestSupport
import Testing

@testable import API

@Suite struct SlotTableTests {
  @Test func findsEachValueUnderItsSlotThroughRandomChanges() {
    var generator = SeededGenerator(seed: 3)
    var table = SlotTable<Int>()
    var model: [Int: Int] = [:]
    for step in 0..<20_000 {
      if UInt8.random(in: 0..<5, using: &generator) < 3 {
        let slot = table.insert(step)
        #expect(model[slot] == nil)
        model[slot] = step
      } else if let (slot, value) = model.randomElement(using: &generator) {
        #expect(table[slot] == value)
        #expect(table.remove(slot) == value)
        #expect(table[slot] == nil && table.remove(slot) == nil)
        model[slot] = nil
      }
      #expect(table.count == model.count)
    }
    #expect(model.allSatisfy { table[$0] == $1 })
  }
}
