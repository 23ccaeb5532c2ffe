import ByteStreams
import TestSupport
import Testing

@testable import API

/// The results of a batch, which are stored as runs.
@Suite struct BatchResultsTests {
  /// The result does not depend on how many times the wait is interrupted.
  @Test(arguments: 0..<30)
  func eachAcceptedMessageIsVisitedOnce(seed: UInt64) {
    var random = SeededGenerator(seed: seed)
    for _ in 0..<100 {
      var sequences: [UInt64] = []
      var hasRefusals = false
      let runs = (0..<Int.random(in: 0...6, using: &random)).map { _ -> BatchResults.Run in
        let count = Int.random(in: 1...4, using: &random)
        guard Bool.random(using: &random) else {
          hasRefusals = true
          return .refused(.queueFull, detail: nil, count: count)
        }
        let first = (sequences.last ?? 0) + .random(in: 1...3, using: &random)
        sequences += (0..<UInt64(count)).map { first + $0 }
        return .accepted(SendReceipt.Accepted(sequence: first), count: count)
      }
      let results = BatchResults(runs)
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
      #expect(results.hasRefusals == hasRefusals)
    }
  }
}
