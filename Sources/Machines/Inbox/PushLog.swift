import ByteStreams
import JournalCoding

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

/// Messages that a reader has not received and will not receive. A read always reports them.
package struct Gap: Hashable, Sendable {
  package enum Reason: Hashable, Sendable {
    /// The cursor is from another epoch of this log.
    case restart
    /// Messages were dropped to stay within `Retention` before the reader requested them.
    case retention
    /// The upstream was disconnected. It may have sent pushes during that time.
    case upstream
    /// The store may have lost messages, as in a power failure. Some readers may have received them.
    case store
  }

  /// Number of dropped messages; nil if unknown. If `upstream` is among the reasons, further messages may be missing.
  package let missed: UInt64?
  /// At least one, without duplicates, in the order of the cases above.
  package let reasons: [Reason]

  package init(missed: UInt64?, reasons: [Reason]) {
    self.missed = missed
    self.reasons = reasons
  }
}

/// The reasons for which messages may be missing directly before a message of a log, or before a message that a reader
/// gets. The raw values are stored.
package struct GapMarks: OptionSet, Hashable, Sendable {
  package let rawValue: UInt8

  package init(rawValue: UInt8) { self.rawValue = rawValue }

  package static let upstream = GapMarks(rawValue: 1)
  package static let store = GapMarks(rawValue: 2)
  /// Only for a reader, not in a log.
  package static let retention = GapMarks(rawValue: 4)
  /// Only for a reader, not in a log.
  package static let restart = GapMarks(rawValue: 8)

  /// In the order of the reasons of a gap.
  private static let all: [(GapMarks, Gap.Reason)] = [
    (.restart, .restart), (.retention, .retention), (.upstream, .upstream), (.store, .store),
  ]

  package init(_ reasons: [Gap.Reason]) {
    self = Self.all.reduce(into: []) { if reasons.contains($1.1) { $0.insert($1.0) } }
  }

  package var reasons: [Gap.Reason] { Self.all.filter { contains($0.0) }.map(\.1) }

  /// These marks without the reasons that a log cannot have. A stored value may be damaged and have such reasons.
  var ofLog: GapMarks { intersection([.upstream, .store]) }
}

/// The result of one read. The gap, if any, is before the first message.
package struct ReadResult: Sendable {
  package let messages: [RetainedMessage]
  /// Where the next read starts.
  package let cursor: Cursor
  /// Whether there are more messages or gaps to read now.
  package let more: Bool
  package let gap: Gap?

  init(messages: [RetainedMessage], cursor: Cursor, more: Bool, gap: Gap?) {
    self.messages = messages
    self.cursor = cursor
    self.more = more
    self.gap = gap
  }

  /// An empty result at this position.
  package init(nothingAt cursor: Cursor) { self.init(messages: [], cursor: cursor, more: false, gap: nil) }

  /// Whether there is a message or a gap to return.
  package var hasContent: Bool { !messages.isEmpty || gap != nil }
}

/// The cursor is beyond the end of the log of its epoch.
package struct CursorAheadError: Error, Hashable, Sendable {
  package let last: Cursor
}

/// The pushes of one session, numbered from 1 in the order of arrival. The latest of them are retained.
///
/// Messages are numbered whether or not any client reads. A gap in the upstream's messages (`recordUpstreamGap`)
/// belongs to the message after it, and has a position of its own (see `Cursor`). Therefore each reader passes the gap
/// exactly once, and the gap counts towards no limit. The number of messages between two positions is the difference of
/// their numbers. However many messages were trimmed, only a few values are kept about them. Messages are stored in a
/// ring and found by number. The cost of a read is proportional to its result.
///
/// In a stored log, readers see a message when it is revealed. A message is not dropped before it is revealed.
package struct PushLog {
  package let epoch: Epoch
  package private(set) var retention: Retention

  struct Entry {
    let message: RetainedMessage
    let gap: GapMarks
  }

  /// The present term. Terms distinguish the new numbers from equal numbers that an earlier process may have used and
  /// lost. 0 if the log is not stored.
  package internal(set) var term: UInt64
  /// The terms with the numbers of their first messages, oldest first.
  var terms: [Term]
  /// Whether this is a copy of the stored part of another gateway's log. The copy may lack the last messages, so a
  /// cursor beyond its end is valid. Its terms may change, even while readers wait.
  var isCopy = false
  /// Message n is at index n - 1.
  var ring: RingDeque<Entry?>
  /// Number of the oldest message retained.
  var first: UInt64 { UInt64(ring.front) + 1 }
  var next: UInt64 { UInt64(ring.end) + 1 }
  /// The gap that follows the newest message.
  var endGap: GapMarks = []
  /// The position after the newest message or gap that readers see.
  var visible: UInt64 = 0
  private var visibleSequence: UInt64 { visible >> 1 }
  package internal(set) var retainedBytes = 0

  /// The position after the newest gap that was trimmed with the message after it, and the reasons of this gap.
  var newestTrimmedGap: UInt64 = 0
  var newestTrimmedMarks: GapMarks = []
  var newestTrimmedArrival: MonotonicTime?
  /// When message 1 arrived.
  var firstArrival: MonotonicTime?

  package init(epoch: Epoch, retention: Retention) {
    self.epoch = epoch
    self.retention = retention
    term = 0
    terms = []
    ring = RingDeque(filler: nil, minimumCapacity: 64)
  }

  /// Restores a stored log. Readers see all of it. A message that cannot be read becomes a gap, together with all
  /// messages before it.
  ///
  /// - Parameter terms: the last term begins now.
  package init(
    restoring stored: StoredLog, epoch: Epoch, terms: [Term], retention: Retention, at clock: JournalClock
  ) {
    self.init(epoch: epoch, retention: retention)
    use(terms)
    restart(at: stored.firstRetained)
    recall(stored.retention, at: clock)
    for change in stored.changes {
      switch change {
      case .push(let push):
        if let message = RetainedMessage(push, at: clock) {
          ring.append(Entry(message: message, gap: endGap))
          retainedBytes += message.cost
          endGap = []
        } else {
          forget(through: push.number)
        }
      case .gap(let marks): endGap.formUnion(marks.ofLog)
      case .trimmed, .retained: break
      }
    }
    visible = end
  }

  /// The position before the first message.
  package var start: Cursor { cursor(at: 0) }
  /// The position after the newest message and gap that readers see.
  package var last: Cursor { cursor(at: visible) }
  /// The position after the newest message and gap, even if readers do not see them yet.
  var end: UInt64 { (next - 1) << 1 | (endGap.isEmpty ? 0 : 1) }
  package var retainedCount: Int { ring.count }
  /// The id for rendering the next message.
  package var nextID: Cursor { cursor(after: next) }

  func cursor(at position: UInt64) -> Cursor { Cursor(epoch: epoch, term: term, position: position) }
  func cursor(after sequence: UInt64) -> Cursor { cursor(at: sequence << 1) }

  /// Appends a message that was rendered with `nextID`. Trimmed messages are added to `dropped`, so that the caller can
  /// free their memory after releasing its lock.
  ///
  /// - Parameter isHidden: whether readers see the message only after `reveal`.
  package mutating func append(
    _ message: RetainedMessage, isHidden: Bool = false, dropping dropped: inout [RetainedMessage]
  ) {
    precondition(message.sequence == next, "a message was rendered with another sequence number")
    if next == 1 { firstArrival = message.arrival }
    ring.append(Entry(message: message, gap: endGap))
    endGap = []
    if !isHidden { visible = end }
    retainedBytes += message.cost
    expire(now: message.arrival, dropping: &dropped)
  }

  /// Records that messages may be missing after the newest message. Two gaps in a row count as one.
  ///
  /// - Parameter isHidden: as in `append`.
  package mutating func recordGap(_ marks: GapMarks = .upstream, isHidden: Bool = false) {
    endGap.formUnion(marks)
    if !isHidden { visible = end }
  }

  /// Records that the upstream was disconnected after the newest message.
  package mutating func recordUpstreamGap() { recordGap() }

  /// Shows readers the log up to `position`, which is stored; the whole log if `position` is nil. Returns whether
  /// readers see anything new.
  package mutating func reveal(through position: UInt64?) -> Bool {
    let shown = min(position ?? end, end)
    guard shown > visible else { return false }
    visible = shown
    return true
  }

  /// Applies other limits. Messages above the limits are dropped. A reader that has not received the dropped messages
  /// gets a gap.
  ///
  /// - Parameter most: `dropped` has at most this number of messages afterwards. `expire` drops the others.
  package mutating func change(
    _ retention: Retention, now: MonotonicTime, dropping dropped: inout [RetainedMessage], atMost most: Int = .max
  ) {
    self.retention = retention
    expire(now: now, dropping: &dropped, atMost: most)
  }

  /// Drops messages above the limits. Must be called even while no messages arrive, since messages become too old.
  ///
  /// - Parameter most: `dropped` has at most this number of messages afterwards. Another call drops the others.
  package mutating func expire(
    now: MonotonicTime, dropping dropped: inout [RetainedMessage], atMost most: Int = .max
  ) {
    while first <= visibleSequence, dropped.count < most {
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
    while retainedBytes > bytes, retainedCount > (keepsNewest ? 1 : 0), first <= visibleSequence, dropped.count < most {
      dropFirst(&dropped)
    }
  }

  /// Drops every message. Positions stay valid.
  package mutating func removeAll(dropping dropped: inout [RetainedMessage], atMost most: Int = .max) {
    while first < next, dropped.count < most { dropFirst(&dropped) }
  }

  mutating func dropFirst(_ dropped: inout [RetainedMessage]) {
    let entry = entry(first)
    retainedBytes -= entry.message.cost
    if !entry.gap.isEmpty {
      newestTrimmedGap = (first - 1) << 1 | 1
      newestTrimmedMarks = entry.gap
    }
    newestTrimmedArrival = entry.message.arrival
    dropped.append(entry.message)
    ring.removeFirst()
  }

  /// The number of the oldest retained message, or of the next message if none is retained.
  package var firstRetained: UInt64 { first }

  /// Returns nil if the message is not retained, or does not exist yet.
  package func message(_ sequence: UInt64) -> RetainedMessage? {
    sequence >= first && sequence <= visibleSequence ? entry(sequence).message : nil
  }

  private func entry(_ sequence: UInt64) -> Entry {
    guard let entry = ring[Int(sequence - 1)] else { preconditionFailure("the log lost message \(sequence)") }
    return entry
  }

  /// Converts a starting point to a position. If the position is before the oldest retained message, the read reports a
  /// gap. So `earliest` is the start of the log, not its oldest retained message.
  package func resolve(_ start: StartingPoint, now: MonotonicTime) throws(CursorAheadError) -> ReadStart {
    switch start {
    case .earliest: return ReadStart(self.start)
    case .latest: return ReadStart(last)
    case .last(let count):
      guard count > 0 else { return ReadStart(last) }
      let sequence = visibleSequence - min(count, visibleSequence)
      // The gap before the oldest requested message was not requested, so the position is after it.
      return ReadStart(cursor(at: sequence << 1 | (sequence > 0 ? 1 : 0)))
    case .since(let span):
      let time = now - span
      guard let newestTrimmedArrival, time <= newestTrimmedArrival else {
        return ReadStart(cursor(after: min(firstSequence(notBefore: time) - 1, visibleSequence)))
      }
      // For trimmed messages, only the first and the newest arrival are known.
      if let firstArrival, time <= firstArrival { return ReadStart(self.start) }
      return ReadStart(cursor(after: first - 1), gap: .retention)
    case .cursor(let cursor):
      guard let start = readStart(at: cursor) else { throw CursorAheadError(last: last) }
      return start
    case .validator(let cursor):
      guard let cursor, let start = readStart(at: cursor) else { return ReadStart(last, gap: .restart) }
      return start
    }
  }

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

  /// Maximum number of comparisons of a message with a pattern in one read, since a reader has the lock during the
  /// read. A read that reaches the limit ends there and reports that there is more.
  package static var searchLimit: Int { 4_096 }

  /// Whether a read from `start` would return a message or a gap.
  package func hasNewData(after start: ReadStart) -> Bool {
    start.precedes(last)
  }

  /// Whether a read from `start` would return a message that matches `filter`, or a gap, or would reach the limit of a
  /// search. Moves `start` past the messages that do not match, so that each message is examined once, however often
  /// this is called.
  package func hasNewData(after start: inout ReadStart, matching filter: TopicFilter) -> Bool {
    guard start.gap == nil, start.cursor.epoch == epoch, start.cursor.term == term,
      start.cursor.position >= oldest.position
    else { return true }
    var position = start.cursor
    var comparisons = 0
    defer { start = ReadStart(position) }
    while position.sequence < visibleSequence {
      let entry = entry(position.sequence + 1)
      if !entry.gap.isEmpty, !position.isAfterGap { return true }
      if comparisons >= Self.searchLimit || filter.matches(entry.message) { return true }
      comparisons += max(1, filter.count)
      position = cursor(after: position.sequence + 1)
    }
    return position.position < visible
  }

  /// The position before the oldest retained message.
  private var oldest: Cursor { cursor(after: first - 1) }

  /// The gap after the newest message that readers see.
  private var visibleEndGap: GapMarks { visibleSequence + 1 == next ? endGap : entry(visibleSequence + 1).gap }

  /// Returns the messages after `start`: at most `limit` messages and `maxBytes` rendered bytes, but at least one
  /// message if there is any. With a filter, the cursor also passes the messages that do not match, and the number in a
  /// gap includes them, too.
  package func read(
    after start: ReadStart, limit: Int, maxBytes: Int, matching filter: TopicFilter? = nil
  ) -> ReadResult {
    let start = isCopy ? present(start) : start
    var position = start.cursor
    var missed: UInt64?
    let isOtherEpoch = position.epoch != epoch
    if isOtherEpoch { position = self.start }
    var gaps: GapMarks = start.gap == .store ? .store : []
    if isOtherEpoch || start.gap == .restart { gaps.insert(.restart) }
    if position.position < oldest.position {
      gaps.insert(.retention)
      if !isOtherEpoch { missed = first - 1 - position.sequence }
      if newestTrimmedGap > position.position { gaps.formUnion(newestTrimmedMarks) }
      position = oldest
    } else if start.gap == .retention {
      gaps.insert(.retention)
    }
    var messages: [RetainedMessage] = []
    var bytes = 0
    var comparisons = 0
    while position.sequence < visibleSequence, comparisons < Self.searchLimit {
      let entry = entry(position.sequence + 1)
      if !entry.gap.isEmpty, !position.isAfterGap {
        // A gap is reported before the messages after it. If messages precede the gap, this read ends before it, and
        // the next read begins with it.
        guard messages.isEmpty else { break }
        gaps.formUnion(entry.gap)
      }
      if let filter, !filter.matches(entry.message) {
        comparisons += max(1, filter.count)
      } else {
        let newTotal = bytes + entry.message.rendered.count
        guard messages.isEmpty || (messages.count < limit && newTotal <= maxBytes) else { break }
        messages.append(entry.message)
        bytes = newTotal
      }
      position = cursor(after: position.sequence + 1)
    }
    if messages.isEmpty, position.sequence == visibleSequence, position.position < visible {
      gaps.formUnion(visibleEndGap)
      position = last
    }
    return ReadResult(
      messages: messages, cursor: position, more: position.position < visible,
      gap: gaps.isEmpty ? nil : Gap(missed: missed, reasons: gaps.reasons))
  }
}
