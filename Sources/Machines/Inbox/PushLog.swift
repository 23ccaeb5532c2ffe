import ByteStreams

/// How many pushes are kept for later reads. The limit that is reached first applies.
package struct Retention: Hashable, Sendable {
  /// Messages.
  package var count: Int
  /// Rendered bytes, plus `RetainedMessage.overhead` for each message.
  package var bytes: Int
  /// Time since arrival.
  package var age: TimeSpan

  package init(count: Int = 10_000, bytes: Int = 64 << 20, age: TimeSpan = .hours(1)) {
    self.count = count
    self.bytes = bytes
    self.age = age
  }
}

/// Messages that a reader has not received and will not. A read always reports them.
package struct Gap: Hashable, Sendable {
  package enum Reason: Hashable, Sendable {
    /// The cursor is from another epoch of this log.
    case restart
    /// Messages were dropped to stay within `Retention` before the reader requested them.
    case retention
    /// The upstream was disconnected. What it would have pushed meanwhile is not known.
    case upstream
  }

  /// Number of dropped messages; nil if unknown. With `upstream` among the reasons, more may be missing.
  package let missed: UInt64?
  /// At least one, without duplicates, in the order of the cases above.
  package let reasons: [Reason]

  package init(missed: UInt64?, reasons: [Reason]) {
    self.missed = missed
    self.reasons = reasons
  }
}

/// The result of one read. The gap, if any, is before the first message.
package struct ReadResult: Sendable {
  package let messages: [RetainedMessage]
  /// Where the next read starts.
  package let cursor: Cursor
  /// Whether there are more messages or gaps to read now.
  package let more: Bool
  package let gap: Gap?

  /// Whether there is a message or a gap to return.
  package var hasContent: Bool { !messages.isEmpty || gap != nil }
}

/// The cursor is beyond the end of the log of its epoch.
package struct CursorAheadError: Error, Hashable, Sendable {
  package let last: Cursor
}

/// The pushes of one session, numbered from 1 in the order of arrival. The latest of them are retained.
///
/// Messages are numbered whether or not any client reads. A gap in the upstream's messages (`recordUpstreamGap`) belongs to the
/// message after it, and has a position of its own (see `Cursor`). Each reader therefore passes it exactly once, and it counts
/// towards no limit. The number of messages between two positions is the difference of their numbers. However many messages were
/// trimmed, only three values are kept for them. Messages are stored in a ring and found by number; a read costs what it returns.
package struct PushLog {
  package let epoch: Epoch
  package private(set) var retention: Retention

  private struct Entry {
    let message: RetainedMessage
    let followsGap: Bool
  }

  /// Message n is at index n - 1.
  private var ring = RingDeque<Entry?>(filler: nil, minimumCapacity: 64)
  /// Number of the oldest message retained.
  private var first: UInt64 { UInt64(ring.front) + 1 }
  private var next: UInt64 { UInt64(ring.end) + 1 }
  /// Whether an upstream gap follows the newest message.
  private var endsWithGap = false
  package private(set) var retainedBytes = 0

  /// Position after the newest upstream gap that was trimmed, together with the message after it.
  private var newestTrimmedGap: UInt64 = 0
  private var newestTrimmedArrival: MonotonicTime?
  /// When message 1 arrived.
  private var firstArrival: MonotonicTime?

  package init(epoch: Epoch, retention: Retention) {
    self.epoch = epoch
    self.retention = retention
  }

  /// The position before the first message.
  package var start: Cursor { Cursor(epoch: epoch, position: 0) }
  /// The position after the newest message and gap.
  package var last: Cursor { Cursor(epoch: epoch, sequence: next - 1, isAfterGap: endsWithGap) }
  package var retainedCount: Int { ring.count }
  /// The id with which the next message must be rendered.
  package var nextID: Cursor { Cursor(epoch: epoch, sequence: next) }

  /// Appends a message that was rendered with `nextID`. Trimmed messages are added to `dropped`, so that the caller can free
  /// their memory after releasing its lock.
  package mutating func append(_ message: RetainedMessage, dropping dropped: inout [RetainedMessage]) {
    precondition(message.sequence == next, "a message was rendered with another sequence number")
    if next == 1 { firstArrival = message.arrival }
    ring.append(Entry(message: message, followsGap: endsWithGap))
    endsWithGap = false
    retainedBytes += message.cost
    expire(now: message.arrival, dropping: &dropped)
  }

  /// Records that the upstream was disconnected here. Two gaps in a row count as one.
  package mutating func recordUpstreamGap() { endsWithGap = true }

  /// Applies other limits. What exceeds them is dropped, and is a gap for readers that have not read it.
  ///
  /// - Parameter most: `dropped` has at most this number of messages afterwards. `expire` drops the others.
  package mutating func change(
    _ retention: Retention, now: MonotonicTime, dropping dropped: inout [RetainedMessage], atMost most: Int = .max
  ) {
    self.retention = retention
    expire(now: now, dropping: &dropped, atMost: most)
  }

  /// Drops what exceeds the limits. To be called also while no messages arrive, for those that become too old.
  ///
  /// - Parameter most: `dropped` has at most this number of messages afterwards. Another call drops the others.
  package mutating func expire(
    now: MonotonicTime, dropping dropped: inout [RetainedMessage], atMost most: Int = .max
  ) {
    while first < next, dropped.count < most {
      let entry = entry(first)
      let isTooOld = now - entry.message.arrival > retention.age
      // The newest message stays, whatever its size, so that a reader can get it. Only age removes it.
      let isTooMuch = (retainedCount > retention.count || retainedBytes > retention.bytes) && retainedCount > 1
      guard isTooOld || isTooMuch else { return }
      dropFirst(&dropped)
    }
  }

  /// Drops the oldest messages until at most `bytes` are retained, as if `Retention` were that small.
  ///
  /// - Parameter keepsNewest: whether the newest message stays, whatever its size.
  package mutating func trim(
    toBytes bytes: Int, keepsNewest: Bool, dropping dropped: inout [RetainedMessage], atMost most: Int = .max
  ) {
    while retainedBytes > bytes, retainedCount > (keepsNewest ? 1 : 0), dropped.count < most { dropFirst(&dropped) }
  }

  /// Drops every message. Positions stay valid.
  package mutating func removeAll(dropping dropped: inout [RetainedMessage], atMost most: Int = .max) {
    while first < next, dropped.count < most { dropFirst(&dropped) }
  }

  private mutating func dropFirst(_ dropped: inout [RetainedMessage]) {
    let entry = entry(first)
    retainedBytes -= entry.message.cost
    if entry.followsGap {
      newestTrimmedGap = Cursor(epoch: epoch, sequence: first - 1, isAfterGap: true).position
    }
    newestTrimmedArrival = entry.message.arrival
    dropped.append(entry.message)
    ring.removeFirst()
  }

  /// The number of the oldest message retained, or of the next one if none is.
  package var firstRetained: UInt64 { first }

  /// Returns nil if the message is not retained, or does not exist yet.
  package func message(_ sequence: UInt64) -> RetainedMessage? {
    sequence >= first && sequence < next ? entry(sequence).message : nil
  }

  private func entry(_ sequence: UInt64) -> Entry {
    guard let entry = ring[Int(sequence - 1)] else { preconditionFailure("the log lost message \(sequence)") }
    return entry
  }

  /// Converts a starting point to a position. A position before the oldest retained message is allowed: the read reports what is
  /// missing. `earliest` is therefore the start of the log, and not its oldest message.
  package func resolve(_ start: StartingPoint, now: MonotonicTime) throws(CursorAheadError) -> ReadStart {
    switch start {
    case .earliest: return ReadStart(self.start)
    case .latest: return ReadStart(last)
    case .last(let count):
      guard count > 0 else { return ReadStart(last) }
      let sequence = next - 1 - min(count, next - 1)
      // A gap before the oldest requested message is not part of the request.
      return ReadStart(Cursor(epoch: epoch, sequence: sequence, isAfterGap: sequence > 0))
    case .since(let span):
      let time = now - span
      guard let newestTrimmedArrival, time <= newestTrimmedArrival else {
        return ReadStart(Cursor(epoch: epoch, sequence: firstSequence(notBefore: time) - 1))
      }
      // Of trimmed messages, only the arrivals of the first and the newest are known.
      if let firstArrival, time <= firstArrival { return ReadStart(self.start) }
      return ReadStart(Cursor(epoch: epoch, sequence: first - 1), gap: .retention)
    case .cursor(let cursor):
      guard accepts(cursor) else { throw CursorAheadError(last: last) }
      return ReadStart(cursor)
    case .validator(let cursor):
      guard let cursor, accepts(cursor) else { return ReadStart(last, gap: .restart) }
      return ReadStart(cursor)
    }
  }

  /// Whether a read can start at `cursor`: it is not ahead of this log. One of another epoch starts at the beginning.
  private func accepts(_ cursor: Cursor) -> Bool { cursor.epoch != epoch || cursor.position <= last.position }

  /// Number of the first retained message that arrived at `time` or later, by binary search.
  private func firstSequence(notBefore time: MonotonicTime) -> UInt64 {
    var low = first
    var high = next
    while low < high {
      let middle = low + (high - low) / 2
      if entry(middle).message.arrival < time { low = middle + 1 } else { high = middle }
    }
    return low
  }

  /// Maximum number of comparisons of a message with a pattern in one read, since readers hold a lock meanwhile. A read that reaches the
  /// limit ends there and says that there is more.
  package static var searchLimit: Int { 4_096 }

  /// Whether a read from `start` would return a message or a gap.
  package func hasNewData(after start: ReadStart) -> Bool {
    start.precedes(last)
  }

  /// Whether a read from `start` would return a message that matches `filter`, or a gap, or would reach the limit of a search.
  /// Moves `start` past the messages that do not match, so that each is examined once, however often this is called.
  package func hasNewData(after start: inout ReadStart, matching filter: TopicFilter) -> Bool {
    guard start.gap == nil, start.cursor.epoch == epoch, start.cursor.position >= oldest.position else { return true }
    var position = start.cursor
    var comparisons = 0
    defer { start = ReadStart(position) }
    while position.sequence + 1 < next {
      let entry = entry(position.sequence + 1)
      if entry.followsGap, !position.isAfterGap { return true }
      if comparisons >= Self.searchLimit || filter.matches(entry.message) { return true }
      comparisons += max(1, filter.count)
      position = Cursor(epoch: epoch, sequence: position.sequence + 1)
    }
    return position.position < last.position
  }

  /// The position before the oldest retained message.
  private var oldest: Cursor { Cursor(epoch: epoch, sequence: first - 1) }

  /// Returns what follows `start`: at most `limit` messages and `maxBytes` rendered bytes, but at least one message if there is
  /// one. With a filter, the cursor also passes the messages that do not match, and gaps count all messages.
  package func read(
    after start: ReadStart, limit: Int, maxBytes: Int, matching filter: TopicFilter? = nil
  ) -> ReadResult {
    var position = start.cursor
    var reasons: [Gap.Reason] = []
    var missed: UInt64?
    let isOtherEpoch = position.epoch != epoch
    if isOtherEpoch { position = self.start }
    if isOtherEpoch || start.gap == .restart { reasons.append(.restart) }
    var crossesGap = false
    if position.position < oldest.position {
      reasons.append(.retention)
      if !isOtherEpoch { missed = first - 1 - position.sequence }
      crossesGap = newestTrimmedGap > position.position
      position = oldest
    } else if start.gap == .retention {
      reasons.append(.retention)
    }
    var messages: [RetainedMessage] = []
    var bytes = 0
    var comparisons = 0
    while position.sequence + 1 < next, comparisons < Self.searchLimit {
      let entry = entry(position.sequence + 1)
      if entry.followsGap, !position.isAfterGap {
        // A gap is reported before the messages after it. If messages precede it, the next read begins with it.
        guard messages.isEmpty else { break }
        crossesGap = true
      }
      if let filter, !filter.matches(entry.message) {
        comparisons += max(1, filter.count)
      } else {
        let newTotal = bytes + entry.message.rendered.count
        guard messages.isEmpty || (messages.count < limit && newTotal <= maxBytes) else { break }
        messages.append(entry.message)
        bytes = newTotal
      }
      position = Cursor(epoch: epoch, sequence: position.sequence + 1)
    }
    if messages.isEmpty, position.sequence + 1 == next, position.position < last.position {
      crossesGap = true
      position = last
    }
    if crossesGap { reasons.append(.upstream) }
    return ReadResult(
      messages: messages, cursor: position, more: position.position < last.position,
      gap: reasons.isEmpty ? nil : Gap(missed: missed, reasons: reasons))
  }
}
