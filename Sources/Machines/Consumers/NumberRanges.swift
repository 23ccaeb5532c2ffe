/// A set of numbers, stored as ranges in order. Adjacent ranges are merged.
struct NumberRanges: Hashable, Sendable {
  private(set) var ranges: [ClosedRange<UInt64>] = []

  func contains(_ number: UInt64) -> Bool {
    let index = firstIndex(endingAtOrAfter: number)
    return index < ranges.count && ranges[index].contains(number)
  }

  mutating func insert(_ added: ClosedRange<UInt64>) {
    // Adjacent ranges are merged, too.
    let start = firstIndex(endingAtOrAfter: max(added.lowerBound, 1) - 1)
    var end = start
    var (lower, upper) = (added.lowerBound, added.upperBound)
    while end < ranges.count, ranges[end].lowerBound <= upper || ranges[end].lowerBound - upper == 1 {
      lower = min(lower, ranges[end].lowerBound)
      upper = max(upper, ranges[end].upperBound)
      end += 1
    }
    ranges.replaceSubrange(start..<end, with: CollectionOfOne(lower...upper))
  }

  /// Removes all numbers up to `number`.
  mutating func removeAll(through number: UInt64) {
    let count = firstIndex(endingAtOrAfter: number)
    ranges.removeFirst(count)
    guard let first = ranges.first, first.lowerBound <= number else { return }
    if first.upperBound == number { ranges.removeFirst() } else { ranges[0] = number + 1...first.upperBound }
  }

  private func firstIndex(endingAtOrAfter number: UInt64) -> Int {
    var (low, high) = (0, ranges.count)
    while low < high {
      let middle = low + (high - low) / 2
      if ranges[middle].upperBound < number { low = middle + 1 } else { high = middle }
    }
    return low
  }
}
