import TestSupport
import Testing

@testable import Consumers

@Suite struct NumberRangesTests {
  @Test(arguments: 0..<10 as Range<UInt64>)
  func rangesBehaveLikeASetOfNumbers(seed: UInt64) {
    var random = SeededGenerator(seed: seed)
    var ranges = NumberRanges()
    var model: Set<UInt64> = []
    for _ in 0..<300 {
      let first = UInt64.random(in: 0...80, using: &random)
      let last = first + UInt64.random(in: 0...5, using: &random)
      ranges.insert(first...last)
      model.formUnion(first...last)
      if Int.random(in: 0..<10, using: &random) == 0 {
        let number = UInt64.random(in: 0...30, using: &random)
        ranges.removeAll(through: number)
        model = model.filter { $0 > number }
      }
      #expect((0...90).filter { ranges.contains($0) } == model.sorted())
      for (left, right) in zip(ranges.ranges, ranges.ranges.dropFirst()) {
        #expect(left.upperBound + 1 < right.lowerBound, "the fewest ranges, in order")
      }
    }
  }
}
