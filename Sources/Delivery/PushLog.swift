import ByteStreams

/// How much of what the upstream pushed is kept for readers that come later. Whatever bound is reached first counts.
package struct Retention: Hashable, Sendable {
  /// Messages.
  package var count: Int
  /// Bytes, as rendered, with `RetainedMessage.overhead` each.
  package var bytes: Int
  /// Time since arrival.
  package var age: TimeSpan

  package init(count: Int = 10_000, bytes: Int = 64 << 20, age: TimeSpan = .hours(1)) {
    self.count = count
    self.bytes = bytes
    self.age = age
  }
}

/// Messages that a reader should have had and will not get. Always told, never silent.
package struct Gap: Hashable, Sendable {
  package enum Reason: Hashable, Sendable {
    /// They were dropped to keep within `Retention` before the reader came.
    case retention
    /// The cursor is from another life of this log.
    case restart
    /// The upstream was away; what it would have pushed meanwhile is not known.
    case upstream
  }

  /// How many; nil where nobody can know.
  package let missed: UInt64?
  package let reason: Reason
}

/// What one read brought. The gap, if any, lies before the first message.
package struct ReadResult: Sendable {
  package let messages: [RetainedMessage]
  /// Where the next read goes on.
  package let cursor: Cursor
  /// Whether there is more to read already.
  package let more: Bool
  package let gap: Gap?

  /// Whether a reader has something to be told.
  package var isNews: Bool { !messages.isEmpty || gap != nil }
}

/// A cursor that points past the end of the log it names.
package struct CursorAheadError: Error, Hashable, Sendable {
  package let last: Cursor
}

/// The pushes of one session, numbered from 1 in the order of their arrival, the latest of them retained.
///
/// Numbers are given whether or not anybody reads. A hole in what the upstream sent (`noteUpstreamGap`) takes a number of
/// its own: so each reader passes it exactly once. Entries stand in a ring, found by number; reading costs what it returns.
package struct PushLog {
  package let epoch: Epoch
  package let retention: Retention

  private enum Entry {
    case message(RetainedMessage)
    case upstreamGap
  }

  /// A ring whose size is a power of two; number n stands at n mod size.
  private var ring: [Entry?] = Array(repeating: nil, count: 64)
  /// Number of the oldest entry retained.
  private var first: UInt64 = 1
  private var next: UInt64 = 1
  /// Numbers of trimmed upstream gaps, oldest first, so that they are not counted as lost messages.
  private var trimmedGaps: [UInt64] = []
  private static let trimmedGapsKept = 1024
  package private(set) var retainedBytes = 0

  package init(epoch: Epoch, retention: Retention) {
    self.epoch = epoch
    self.retention = retention
  }

  /// Where a reader that has everything stands.
  package var last: Cursor { Cursor(epoch: epoch, sequence: next - 1) }
  /// Where a reader that wants everything retained starts.
  package var earliest: Cursor { Cursor(epoch: epoch, sequence: first - 1) }
  package var retainedCount: Int { Int(next - first) }
  /// The identity that the next message must be rendered with.
  package var nextID: Cursor { Cursor(epoch: epoch, sequence: next) }

  /// Appends a message that was rendered with `nextID`.
  package mutating func append(_ message: RetainedMessage) {
    precondition(message.sequence == next, "a message was rendered for another place")
    push(.message(message))
    retainedBytes += message.cost
    trim(now: message.time)
  }

  /// Records that the upstream was away here. Two in a row are one.
  package mutating func noteUpstreamGap() {
    if next > first, case .upstreamGap? = ring[slot(next - 1)] { return }
    push(.upstreamGap)
    trim(now: nil)
  }

  /// Drops what has become too old; for times when nothing arrives. `now` in milliseconds of UNIX time.
  package mutating func expire(now: Int64) { trim(now: now) }

  private func slot(_ sequence: UInt64) -> Int { Int(truncatingIfNeeded: sequence) & (ring.count - 1) }

  private mutating func push(_ entry: Entry) {
    if retainedCount == ring.count { grow() }
    ring[slot(next)] = entry
    next += 1
  }

  private mutating func grow() {
    var wider = [Entry?](repeating: nil, count: ring.count * 2)
    for sequence in first..<next { wider[Int(truncatingIfNeeded: sequence) & (wider.count - 1)] = ring[slot(sequence)] }
    ring = wider
  }

  private mutating func trim(now: Int64?) {
    let oldestAllowed = now.map { $0 - retention.age.nanoseconds / 1_000_000 }
    while first < next {
      let position = slot(first)
      guard let entry = ring[position] else { preconditionFailure("the log lost entry \(first)") }
      switch entry {
      case .message(let message):
        let isTooOld = oldestAllowed.map { message.time < $0 } ?? false
        // The newest message stays, whatever its size: a reader must be able to get it.
        let isTooMuch = (retainedCount > retention.count || retainedBytes > retention.bytes) && retainedCount > 1
        guard isTooOld || isTooMuch else { return }
        retainedBytes -= message.cost
      case .upstreamGap:
        // A gap leaves with the messages before it; alone at the front it is kept for those who come from before it.
        guard retainedCount > retention.count else { return }
        if trimmedGaps.count == Self.trimmedGapsKept { trimmedGaps.removeFirst(Self.trimmedGapsKept / 2) }
        trimmedGaps.append(first)
      }
      ring[position] = nil
      first += 1
    }
  }

  /// Turns a wish into a place. A cursor of another epoch becomes the earliest, with `restart` told by the read.
  package func resolve(_ start: StartingPoint, now: Int64) throws(CursorAheadError) -> Cursor {
    switch start {
    case .earliest: return earliest
    case .latest: return last
    case .last(let count):
      return Cursor(epoch: epoch, sequence: next - 1 - min(count, UInt64(retainedCount)))
    case .since(let span):
      return Cursor(epoch: epoch, sequence: firstSequence(notBefore: now - span.nanoseconds / 1_000_000) - 1)
    case .cursor(let cursor):
      guard cursor.epoch != epoch || cursor.sequence < next else { throw CursorAheadError(last: last) }
      return cursor
    }
  }

  /// Number of the first retained message that arrived at `time` or later, by halving; gaps count with what follows.
  private func firstSequence(notBefore time: Int64) -> UInt64 {
    var low = first
    var high = next
    while low < high {
      var middle = low + (high - low) / 2
      let probe = middle
      var arrival: Int64?
      while middle < high {
        if case .message(let message)? = ring[slot(middle)] {
          arrival = message.time
          break
        }
        middle += 1
      }
      if let arrival, arrival < time { low = middle + 1 } else { high = probe }
    }
    return low
  }

  /// Whether a read from `cursor` has something to tell.
  package func hasNews(after cursor: Cursor) -> Bool { cursor.epoch != epoch || cursor.sequence < next - 1 }

  /// What lies after `cursor`: at most `limit` messages and `maxBytes` of rendered bytes, but at least one if there is one.
  package func read(after cursor: Cursor, limit: Int, maxBytes: Int) -> ReadResult {
    var position = cursor.sequence + 1
    var gap: Gap?
    if cursor.epoch != epoch {
      gap = Gap(missed: nil, reason: .restart)
      position = first
    } else if position < first {
      let gaps = trimmedGaps.lazy.filter { $0 >= position }.count
      let missed = first - position - UInt64(gaps)
      gap = missed > 0 ? Gap(missed: missed, reason: .retention) : Gap(missed: nil, reason: .upstream)
      position = first
    }
    var messages: [RetainedMessage] = []
    var bytes = 0
    reading: while position < next {
      switch ring[slot(position)] {
      case .message(let message)?:
        let wouldBe = bytes + message.rendered.count
        guard messages.isEmpty || (messages.count < limit && wouldBe <= maxBytes) else { break reading }
        messages.append(message)
        bytes = wouldBe
      case .upstreamGap?:
        // A gap is told before the messages after it; with others before it, the next read begins with it.
        guard messages.isEmpty else { break reading }
        if gap == nil { gap = Gap(missed: nil, reason: .upstream) }
      case nil:
        preconditionFailure("the log lost entry \(position)")
      }
      position += 1
    }
    return ReadResult(
      messages: messages, cursor: Cursor(epoch: epoch, sequence: position - 1), more: position < next, gap: gap)
  }
}
