import ByteStreams

/// A term of a stored log. Its messages have the numbers from `firstMessage` up to the first message of the next term.
package struct Term: Hashable, Sendable {
  /// The number of the term, larger than the number of the previous term; at most 63 bits. It consists of a counter
  /// above 32 random bits. The random bits distinguish terms that begin after the same term: at two gateways that share
  /// the log, or in a file and its copy. Files of earlier versions have only the counter.
  package let term: UInt64
  package let firstMessage: UInt64

  package init(_ term: UInt64, firstMessage: UInt64) {
    self.term = min(term, UInt64(Int64.max))
    self.firstMessage = firstMessage
  }

  var counter: UInt64 { term >> 32 }
  /// How many terms a lost branch of the log may have. A store that has detected a loss advances the counter of its
  /// terms by twice this number.
  private static var branchTerms: Int64 { 512 }

  var hasRandomBits: Bool { Self.hasRandomBits(term) }
  package static func hasRandomBits(_ term: UInt64) -> Bool { term >> 32 > 0 }

  /// Whether the log once had the term `older` and has forgotten it. If not, `older` is in a branch that was lost. Use
  /// this only on the oldest term that the log still has.
  package func hasFollowed(_ older: UInt64) -> Bool {
    1...Self.branchTerms ~= Int64(counter) - Int64(older >> 32)
  }
}
