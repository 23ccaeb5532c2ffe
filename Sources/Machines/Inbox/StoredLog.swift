import ByteStreams
import JournalCoding

/// A push as it is stored. The time is a wall-clock time, in milliseconds of UNIX time.
package struct StoredPush: Equatable, Sendable {
  package let number: UInt64
  package let time: Int64
  /// See `RetainedMessage.layout`.
  package let layout: UInt64
  package let rendered: ByteString

  package init(number: UInt64, time: Int64, layout: UInt64, rendered: ByteString) {
    self.number = number
    self.time = time
    self.layout = layout
    self.rendered = rendered
  }

  package static func == (left: StoredPush, right: StoredPush) -> Bool {
    left.number == right.number && left.time == right.time && left.layout == right.layout
      && left.rendered.bytes.equals(right.rendered.bytes)
  }
}

extension RetainedMessage {
  /// Returns nil if the stored message is damaged.
  package init?(_ stored: StoredPush, at clock: JournalClock) {
    self.init(stored.number, arrival: clock.time(of: stored.time), layout: stored.layout, rendered: stored.rendered)
  }

  package func stored(at clock: JournalClock) -> StoredPush { stored(time: clock.wallClock(of: arrival)) }

  package func stored(time: Int64) -> StoredPush {
    StoredPush(number: sequence, time: time, layout: layout, rendered: rendered)
  }
}

/// Pushes may be missing after push `after`.
package struct StoredGap: Hashable, Sendable {
  package let after: UInt64
  package fileprivate(set) var marks: GapMarks

  package init(after: UInt64, marks: GapMarks) {
    self.after = after
    self.marks = marks
  }
}

/// The facts that are kept about the pushes that retention has dropped.
package struct StoredRetention: Hashable, Sendable {
  /// The number of the oldest push that is kept.
  package let first: UInt64
  /// When push 1 arrived.
  package let firstArrival: Int64?
  /// When the newest dropped push arrived.
  package let newestTrimmedArrival: Int64?
  /// The newest gap that was dropped together with the push after it.
  package let newestTrimmedGap: StoredGap?

  package init(first: UInt64, firstArrival: Int64?, newestTrimmedArrival: Int64?, newestTrimmedGap: StoredGap?) {
    self.first = first
    self.firstArrival = firstArrival
    self.newestTrimmedArrival = newestTrimmedArrival
    self.newestTrimmedGap = newestTrimmedGap
  }
}

/// A change of a log that is to survive the process.
package enum LogChange: Equatable, Sendable {
  /// A push arrived. Its number follows the number of the previous push.
  case push(StoredPush)
  /// Pushes may be missing after the latest push. Consecutive gaps without a push in between become one gap, which has
  /// the reasons of all of them.
  case gap(GapMarks)
  /// Retention has dropped all pushes before this number.
  case trimmed(before: UInt64)
  /// Like `trimmed`, with the facts about the dropped pushes. The store writes this change when it deletes the pushes.
  case retained(StoredRetention)

  /// The size of the push that the change contains, in bytes; 0 without a push.
  package var size: Int { if case .push(let push) = self { push.rendered.count } else { 0 } }
}

/// A log as it is stored.
package struct StoredLog: Equatable, Sendable {
  /// The retained pushes. Their numbers end before `nextPush`.
  package private(set) var pushes = RingDeque(
    filler: StoredPush(number: 0, time: 0, layout: 0, rendered: ByteString([])))
  package private(set) var nextPush: UInt64 = 1
  /// The gaps before and after the retained pushes, in order, and the newest gap that was dropped.
  package private(set) var gaps: [StoredGap] = []
  private var firstArrival: Int64?
  private var newestTrimmedArrival: Int64?

  package init() {}

  /// The number of the oldest retained push, or of the next push if none is retained.
  package var firstRetained: UInt64 { nextPush - UInt64(pushes.count) }
  /// The position after the last push and gap, as `Cursor.position`.
  package var lastPosition: UInt64 { (nextPush - 1) << 1 | (gaps.last?.after == nextPush - 1 ? 1 : 0) }
  /// The arrival of the newest push whose arrival is known.
  package var newestTime: Int64? { pushes.isEmpty ? newestTrimmedArrival : pushes[pushes.end - 1].time }

  // MARK: Changes

  /// Applies a change. Returns false, and changes nothing, if the change cannot follow the earlier changes.
  package mutating func apply(_ change: LogChange) -> Bool {
    switch change {
    case .push(let push):
      guard push.number == nextPush else { return false }
      if push.number == 1 { firstArrival = push.time }
      pushes.append(push)
      nextPush += 1
    case .gap(let marks):
      if let last = gaps.last, last.after == nextPush - 1 {
        gaps[gaps.count - 1].marks.formUnion(marks)
      } else {
        gaps.append(StoredGap(after: nextPush - 1, marks: marks))
      }
    case .trimmed(let number): trim(before: number)
    case .retained(let retention): retain(retention)
    }
    return true
  }

  /// Begins a term, whose first push has this number. Pushes of the term may have been applied before; `nextPush` then
  /// stays the same. Returns false, and changes nothing, if pushes are retained and `number` is above `nextPush`: the
  /// pushes between them would be missing.
  package mutating func beginTerm(at number: UInt64) -> Bool {
    guard number <= nextPush || pushes.isEmpty else { return false }
    nextPush = max(nextPush, number)
    return true
  }

  private mutating func trim(before number: UInt64) {
    while !pushes.isEmpty, firstRetained < number {
      newestTrimmedArrival = pushes[pushes.front].time
      pushes.removeFirst()
    }
    trimGaps()
  }

  private mutating func retain(_ retention: StoredRetention) {
    guard retention.first >= firstRetained else { return }
    trim(before: retention.first)
    // All pushes before `retention.first` were deleted.
    if pushes.isEmpty { nextPush = max(nextPush, retention.first) }
    firstArrival = retention.firstArrival
    newestTrimmedArrival = retention.newestTrimmedArrival
    if let gap = retention.newestTrimmedGap {
      gaps.removeAll { $0.after <= gap.after }
      gaps.insert(gap, at: 0)
    }
    trimGaps()
  }

  /// Drops the gaps before dropped pushes, since a gap belongs to the push after it. The newest of these gaps is kept,
  /// because readers may need it.
  private mutating func trimGaps() {
    let first = firstRetained
    let dropped = gaps.prefix { $0.after + 1 < first }.count
    if dropped > 1 { gaps.removeFirst(dropped - 1) }
  }

  // MARK: As changes

  /// The facts about the pushes that were dropped.
  package var retention: StoredRetention {
    let dropped = gaps.first.flatMap { $0.after + 1 < firstRetained ? $0 : nil }
    return StoredRetention(
      first: firstRetained, firstArrival: firstArrival, newestTrimmedArrival: newestTrimmedArrival,
      newestTrimmedGap: dropped)
  }

  /// The retained pushes and the gaps before and after them, in order. Applied to an empty log after `retention`, they
  /// result in this log.
  package var changes: [LogChange] {
    var result: [LogChange] = []
    result.reserveCapacity(pushes.count + gaps.count)
    var gaps = gaps.drop { $0.after + 1 < firstRetained }
    for index in pushes.front..<pushes.end {
      let push = pushes[index]
      while let gap = gaps.first, gap.after < push.number {
        result.append(.gap(gap.marks))
        gaps.removeFirst()
      }
      result.append(.push(push))
    }
    return result + gaps.map { .gap($0.marks) }
  }

  package static func == (left: StoredLog, right: StoredLog) -> Bool {
    left.nextPush == right.nextPush && left.gaps == right.gaps && left.firstArrival == right.firstArrival
      && left.newestTrimmedArrival == right.newestTrimmedArrival && left.pushes.count == right.pushes.count
      && (0..<left.pushes.count).allSatisfy {
        left.pushes[left.pushes.front + $0] == right.pushes[right.pushes.front + $0]
      }
  }
}

// MARK: Bytes

extension LogChange {
  package func write(_ coder: inout JournalCoder) {
    switch self {
    case .push(let push):
      _ = coder.byte(2)
      _ = StoredPush(push, &coder)
    case .gap(let marks):
      _ = coder.byte(3)
      _ = GapMarks(marks, &coder)
    case .trimmed(let number):
      _ = coder.byte(4)
      _ = coder.count(number)
    case .retained(let retention):
      _ = coder.byte(5)
      _ = StoredRetention(retention, &coder)
    }
  }

  /// Returns nil if the tag is not a tag of these changes.
  package init?(tag: UInt8, _ coder: inout JournalCoder) {
    switch tag {
    case 2: self = .push(StoredPush(nil, &coder))
    case 3: self = .gap(GapMarks(nil, &coder))
    case 4: self = .trimmed(before: coder.count(nil))
    case 5: self = .retained(StoredRetention(nil, &coder))
    default: return nil
    }
  }
}

extension StoredPush: JournalRecord {
  package init(_ push: Self?, _ coder: inout JournalCoder) {
    number = coder.number(push?.number)
    time = coder.signed(push?.time)
    layout = coder.varint(push?.layout)
    rendered = coder.byteString(push?.rendered)
  }
}

extension GapMarks: JournalRecord {
  package init(_ marks: Self?, _ coder: inout JournalCoder) { self.init(rawValue: coder.byte(marks?.rawValue)) }
}

extension StoredGap: JournalRecord {
  package init(_ gap: Self?, _ coder: inout JournalCoder) {
    after = coder.count(gap?.after)
    marks = GapMarks(gap?.marks, &coder)
  }
}

extension StoredRetention: JournalRecord {
  package init(_ retention: Self?, _ coder: inout JournalCoder) {
    first = coder.number(retention?.first)
    firstArrival = coder.optional(retention?.firstArrival) { $0.signed($1) }
    newestTrimmedArrival = coder.optional(retention?.newestTrimmedArrival) { $0.signed($1) }
    newestTrimmedGap = coder.optional(retention?.newestTrimmedGap) { StoredGap($1, &$0) }
  }
}
