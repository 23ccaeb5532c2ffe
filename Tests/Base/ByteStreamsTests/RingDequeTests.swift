import ByteStreams
import TestSupport
import Testing

@Suite struct RingDequeTests {
  /// Compares the ring with an array that keeps everything: index n has the n-th element that was appended.
  @Test(arguments: 1...20) func keepsTheOrderOfElements(seed: UInt64) {
    var generator = SeededGenerator(seed: seed)
    var ring = RingDeque<Int?>(filler: nil, minimumCapacity: 2)
    var history: [Int] = []
    var front = 0
    for number in 0..<2_000 {
      switch Int.random(in: 0..<5, using: &generator) {
      case 0 where front < history.count:
        ring.removeFirst()
        front += 1
      case 1 where front < history.count:
        ring.removeLast()
        history.removeLast()
      case 2 where front < history.count:
        let place = Int.random(in: front..<history.count, using: &generator)
        ring[place] = -number
        history[place] = -number
      default:
        ring.append(number)
        history.append(number)
      }
      let isEqual = ring.front == front && ring.end == history.count && ring.count == history.count - front
      guard isEqual, (front..<history.count).allSatisfy({ ring[$0] == history[$0] }) else {
        Issue.record("after \(number): \(ring) is not \(history[front...])")
        return
      }
    }
  }

  private final class Thing: Sendable {}

  @Test func keepsNoReferenceToARemovedElement() {
    var ring = RingDeque<Thing?>(filler: nil)
    var kept: [() -> Bool] = []
    for _ in 0..<3 {
      let thing = Thing()
      kept.append({ [weak thing] in thing != nil })
      ring.append(thing)
    }
    #expect(kept.map { $0() } == [true, true, true])
    ring.removeFirst()
    ring.removeLast()
    #expect(kept.map { $0() } == [false, true, false])
    ring.removeAll()
    #expect(kept.map { $0() } == [false, false, false])
    #expect(ring.isEmpty && ring.front == 2)
  }
}
