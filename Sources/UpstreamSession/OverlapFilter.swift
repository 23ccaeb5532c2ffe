import ByteStreams

/// Passes on once what two connections to one upstream both bring, while the newer takes over from the older.
///
/// Each connection brings a stretch of one stream of pushes, in its order, and perhaps some of its own between. What one has
/// brought first is remembered, by digest, until the other brings it too; a match says where the other stands, so that
/// whatever lies before it is forgotten: it was for one connection only.
///
/// Where equal messages follow each other, which of them is which cannot be known; each is then passed on as often as the
/// connection brought it that brought more. In doubt a push is passed on twice, never lost.
package struct OverlapFilter: Sendable {
  /// Messages remembered of one connection. Beyond it the oldest is forgotten, and may be passed on twice.
  package static let limit = 65_536

  private struct Side: Sendable {
    let generation: Generation
    /// What it brought and the other has not, oldest first.
    var ahead = RingDeque(filler: 0 as UInt64)
    /// How often each digest stands in `ahead`.
    var counts: [UInt64: Int] = [:]
    var hasEnded = false

    mutating func remember(_ digest: UInt64) {
      if ahead.count >= OverlapFilter.limit { forgetFirst() }
      ahead.append(digest)
      counts[digest, default: 0] += 1
    }

    /// Forgets everything up to and with the first message of this digest; false where there is none.
    mutating func forget(through digest: UInt64) -> Bool {
      guard counts[digest] != nil else { return false }
      while forgetFirst() != digest {}
      return true
    }

    mutating func forgetAll() {
      ahead.removeAll()
      counts.removeAll()
    }

    @discardableResult
    private mutating func forgetFirst() -> UInt64 {
      let first = ahead[ahead.front]
      ahead.removeFirst()
      if let count = counts[first] { counts[first] = count > 1 ? count - 1 : nil }
      return first
    }
  }

  private var older: Side
  private var newer: Side

  package init(older: Generation, newer: Generation) {
    self.older = Side(generation: older)
    self.newer = Side(generation: newer)
  }

  /// A digest for `passes`, different in every process. Two messages share one with a chance of 2⁻⁶⁴.
  package static func digest(of payload: Span<UInt8>, isText: Bool) -> UInt64 {
    var hasher = Hasher()
    hasher.combine(isText)
    unsafe payload.withUnsafeBytes { unsafe hasher.combine(bytes: $0) }
    return UInt64(truncatingIfNeeded: hasher.finalize())
  }

  /// Whether this message, brought by the connection of this generation, is news.
  package mutating func passes(_ digest: UInt64, from generation: Generation) -> Bool {
    switch generation {
    case older.generation: Self.passes(digest, from: &older, beside: &newer)
    case newer.generation: Self.passes(digest, from: &newer, beside: &older)
    default: true
    }
  }

  private static func passes(_ digest: UInt64, from side: inout Side, beside other: inout Side) -> Bool {
    if other.forget(through: digest) {
      // What this side brought before, the other has passed by.
      side.forgetAll()
      return false
    }
    if other.hasEnded {
      // It is past all that the other ever brought.
      other.forgetAll()
    } else {
      side.remember(digest)
    }
    return true
  }

  /// The connection of this generation brings nothing more. Answers the one that is left, if this was one of the two and the
  /// other goes on.
  package mutating func ended(_ generation: Generation) -> Generation? {
    if generation == older.generation { older.hasEnded = true }
    if generation == newer.generation { newer.hasEnded = true }
    switch (older.hasEnded, newer.hasEnded) {
    case (true, false): return generation == older.generation ? newer.generation : nil
    case (false, true): return generation == newer.generation ? older.generation : nil
    case (true, true), (false, false): return nil
    }
  }

  /// Nothing can come twice any more.
  package var isOver: Bool {
    if older.hasEnded, newer.hasEnded { return true }
    if older.hasEnded { return older.ahead.isEmpty }
    if newer.hasEnded { return newer.ahead.isEmpty }
    return false
  }
}
