import ByteStreams
import TestSupport
import Testing

@testable import API

/// The results of a batch, which are kept as runs.
@Suite struct BatchResultsTests {
  private typealias Item = SendReceipt.BatchItem

  private func accepted(_ sequence: UInt64, _ nextAttempt: MonotonicTime? = nil) -> Item {
    .accepted(SendReceipt.Accepted(sequence: sequence, nextAttempt: nextAttempt))
  }

  @Test func consecutiveEqualResultsAreOneRun() {
    #expect(BatchResults((1...1_000).map { accepted($0) }).runs.count == 1)
    let others = Array(repeating: Item.refused(.queueFull, detail: nil), count: 999)
    let refused = [.refused(.queueFull, detail: "full")] + others
    #expect(BatchResults(refused).runs.count == 1)
  }

  @Test(arguments: 0..<30)
  func theItemsAreThoseItWasMadeOf(seed: UInt64) {
    var random = SeededGenerator(seed: seed)
    for _ in 0..<100 {
      var sequence: UInt64 = 0
      let items = (0..<Int.random(in: 0...12, using: &random)).map { _ -> Item in
        if Int.random(in: 0..<3, using: &random) > 0 {
          sequence += .random(in: 1...10, using: &random) > 2 ? 1 : 2
          return accepted(sequence, Int.random(in: 0..<8, using: &random) == 0 ? .zero + .seconds(1) : nil)
        }
        return .refused(
          Bool.random(using: &random) ? .queueFull : .sessionClosed,
          detail: Int.random(in: 0..<4, using: &random) == 0 ? "detail" : nil)
      }
      let results = BatchResults(items)
      var expanded: [String] = []
      results.forEach { expanded.append("\($0)") }
      #expect(expanded == items.map { "\($0)" })
      #expect(results.runs.count <= items.count)

      // Each accepted message is visited once, however often the wait is interrupted.
      let sequences = items.compactMap { if case .accepted(let message) = $0 { message.sequence } else { nil } }
      var (position, visited) = (BatchResults.Position(), [UInt64]())
      for done in 0...sequences.count {
        let isComplete = results.advance(&position) { next in
          guard sequences.prefix(done).contains(next) else { return false }
          visited.append(next)
          return true
        }
        #expect(isComplete == (done == sequences.count))
      }
      #expect(visited == sequences)
      #expect(results.hasRefusals == (sequences.count < items.count))
    }
  }
}
