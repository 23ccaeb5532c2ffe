import ByteStreams

/// A run of a stored log: its numbers are those from `firstMessage` to the next term.
package struct Term: Hashable, Sendable {
  /// Larger than that of the term before; at most 63 bits. A counter above 32 random bits, since several terms may begin after the same one: of two gateways
  /// that share the log, or of a file and its copy. Files of earlier versions have the counter alone.
  package let term: UInt64
  package let firstMessage: UInt64

  package init(_ term: UInt64, firstMessage: UInt64) {
    self.term = min(term, UInt64(Int64.max))
    self.firstMessage = firstMessage
  }

  var counter: UInt64 { term >> 32 }
  /// Terms that a branch of a log may have, which the store has lost. If it knows of that, the counter of its next term is twice as far away.
  private static var branchTerms: Int64 { 512 }

  var hasRandomBits: Bool { Self.hasRandomBits(term) }
  package static func hasRandomBits(_ term: UInt64) -> Bool { term >> 32 > 0 }

  /// Whether `older` is of this log, which keeps the latest terms, and this one is the first that it has. If not, it is of a branch that was lost.
  package func hasFollowed(_ older: UInt64) -> Bool {
    1...Self.branchTerms ~= Int64(counter) - Int64(older >> 32)
  }
}
