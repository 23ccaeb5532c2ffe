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
    /// The cursor is from another life of this log.
    case restart
    /// They were dropped to keep within `Retention` before the reader came.
    case retention
    /// The upstream was away; what it would have pushed meanwhile is not known.
    case upstream
  }

  /// How many were dropped; nil where nobody can know. With `upstream` among the reasons more may be missing.
  package let missed: UInt64?
  /// At least one, each once, in the order of the cases above.
  package let reasons: [Reason]
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
/// Numbers are given whether or not anybody reads. A hole in what the upstream sent (`noteUpstreamGap`) is a property of the
/// message behind it and has a position of its own (see `Cursor`): so each reader passes it exactly once, it counts for no limit,
/// and how many messages lie between two positions is the difference of their numbers. Of what was trimmed, three numbers are
/// kept, however much it was. Messages are stored in a ring, found by number; reading costs what it returns.
package struct PushLog {
  package let epoch: Epoch
  package let retention: Retention

  private struct Entry {
    let message: RetainedMessage
    let followsGap: Bool
  }

  /// Number n has place n - 1.
  private var ring = RingDeque<Entry?>(filler: nil, leastCapacity: 64)
  /// Number of the oldest message retained.
  private var first: UInt64 { UInt64(ring.front) + 1 }
  private var next: UInt64 { UInt64(ring.end) + 1 }
  /// Whether an upstream gap lies behind the newest message.
  private var endsWithGap = false
  package private(set) var retainedBytes = 0

  /// Position behind the newest upstream gap that was trimmed, with the message behind it.
  private var newestTrimmedGap: UInt64 = 0
  private var newestTrimmedArrival: MonotonicTime?
  /// When message 1 arrived.
  private var firstArrival: MonotonicTime?

  package init(epoch: Epoch, retention: Retention) {
    self.epoch = epoch
    self.retention = retention
  }

  /// Before everything that ever arrived.
  package var start: Cursor { Cursor(epoch: epoch, position: 0) }
  /// Behind everything.
  package var last: Cursor { Cursor(epoch: epoch, sequence: next - 1, isBehindGap: endsWithGap) }
  package var retainedCount: Int { ring.count }
  /// The identity that the next message must be rendered with.
  package var nextID: Cursor { Cursor(epoch: epoch, sequence: next) }

  /// Appends a message that was rendered with `nextID`. What is trimmed for it is added to `dropped`, so that its memory can be
  /// freed after the caller's lock.
  package mutating func append(_ message: RetainedMessage, dropping dropped: inout [RetainedMessage]) {
    precondition(message.sequence == next, "a message was rendered for another place")
    if next == 1 { firstArrival = message.arrival }
    ring.append(Entry(message: message, followsGap: endsWithGap))
    endsWithGap = false
    retainedBytes += message.cost
    expire(now: message.arrival, dropping: &dropped)
  }

  /// Records that the upstream was away here. Two in a row are one.
  package mutating func noteUpstreamGap() { endsWithGap = true }

  /// Drops what exceeds the limits, which after a while without messages is what has become too old.
  package mutating func expire(now: MonotonicTime, dropping dropped: inout [RetainedMessage]) {
    while first < next {
      let entry = entry(first)
      let isTooOld = now - entry.message.arrival > retention.age
      // The newest message stays, whatever its size: a reader must be able to get it.
      let isTooMuch = (retainedCount > retention.count || retainedBytes > retention.bytes) && retainedCount > 1
      guard isTooOld || isTooMuch else { return }
      retainedBytes -= entry.message.cost
      if entry.followsGap {
        newestTrimmedGap = Cursor(epoch: epoch, sequence: first - 1, isBehindGap: true).position
      }
      newestTrimmedArrival = entry.message.arrival
      dropped.append(entry.message)
      ring.removeFirst()
    }
  }

  private func entry(_ sequence: UInt64) -> Entry {
    guard let entry = ring[Int(sequence - 1)] else { preconditionFailure("the log lost message \(sequence)") }
    return entry
  }

  /// Turns a wish into a position. One that reaches behind what is retained begins there all the same, and the read reports
  /// what is missing: so `earliest` is the start of the log, and not its oldest message.
  package func resolve(_ start: StartingPoint, now: MonotonicTime) throws(CursorAheadError) -> ReadStart {
    switch start {
    case .earliest: return ReadStart(self.start)
    case .latest: return ReadStart(last)
    case .last(let count):
      guard count > 0 else { return ReadStart(last) }
      let sequence = next - 1 - min(count, next - 1)
      // A gap before the oldest message asked for is no part of what was asked for.
      return ReadStart(Cursor(epoch: epoch, sequence: sequence, isBehindGap: sequence > 0))
    case .since(let span):
      let time = now - span
      guard let newestTrimmedArrival, time <= newestTrimmedArrival else {
        return ReadStart(Cursor(epoch: epoch, sequence: firstSequence(notBefore: time) - 1))
      }
      // Arrivals of trimmed messages are not kept, except that of the first.
      if let firstArrival, time <= firstArrival { return ReadStart(self.start) }
      return ReadStart(Cursor(epoch: epoch, sequence: first - 1), exceedsRetention: true)
    case .cursor(let cursor):
      guard cursor.epoch != epoch || cursor.position <= last.position else { throw CursorAheadError(last: last) }
      return ReadStart(cursor)
    }
  }

  /// Number of the first retained message that arrived at `time` or later, by halving.
  private func firstSequence(notBefore time: MonotonicTime) -> UInt64 {
    var low = first
    var high = next
    while low < high {
      let middle = low + (high - low) / 2
      if entry(middle).message.arrival < time { low = middle + 1 } else { high = middle }
    }
    return low
  }

  /// Whether a read from `start` has something to report.
  package func hasNews(after start: ReadStart) -> Bool {
    start.exceedsRetention || start.cursor.epoch != epoch || start.cursor.position < last.position
  }

  /// What lies after `start`: at most `limit` messages and `maxBytes` of rendered bytes, but at least one if there is one.
  package func read(after start: ReadStart, limit: Int, maxBytes: Int) -> ReadResult {
    var position = start.cursor
    var reasons: [Gap.Reason] = []
    var missed: UInt64?
    let isForeign = position.epoch != epoch
    if isForeign {
      reasons.append(.restart)
      position = self.start
    }
    var crossesGap = false
    if position.position < Cursor(epoch: epoch, sequence: first - 1).position {
      reasons.append(.retention)
      if !isForeign { missed = first - 1 - position.sequence }
      crossesGap = newestTrimmedGap > position.position
      position = Cursor(epoch: epoch, sequence: first - 1)
    } else if start.exceedsRetention {
      reasons.append(.retention)
    }
    var messages: [RetainedMessage] = []
    var bytes = 0
    while position.sequence + 1 < next {
      let entry = entry(position.sequence + 1)
      if entry.followsGap, !position.isBehindGap {
        // A gap is told before the messages after it; with others before it, the next read begins with it.
        guard messages.isEmpty else { break }
        crossesGap = true
      }
      let wouldBe = bytes + entry.message.rendered.count
      guard messages.isEmpty || (messages.count < limit && wouldBe <= maxBytes) else { break }
      messages.append(entry.message)
      bytes = wouldBe
      position = Cursor(epoch: epoch, sequence: position.sequence + 1)
    }
    if messages.isEmpty, position.position < last.position {
      crossesGap = true
      position = last
    }
    if crossesGap { reasons.append(.upstream) }
    return ReadResult(
      messages: messages, cursor: position, more: position.position < last.position,
      gap: reasons.isEmpty ? nil : Gap(missed: missed, reasons: reasons))
  }
}
