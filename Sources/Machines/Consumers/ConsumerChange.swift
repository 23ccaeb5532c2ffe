import ByteStreams
import Inbox
import JournalCoding

/// A change of a consumer, as stored in the journal.
package enum ConsumerChange: Equatable, Sendable {
  /// The consumer was created, or its settings were changed. `position`: where a new consumer starts. It is ignored if
  /// the consumer exists.
  case put(ConsumerSettings, position: UInt64)
  /// The position of the consumer, and the gap that it reports next.
  case moved(ConsumerProgress)
  /// A push was leased to a worker, or its lease was extended.
  case leased(Lease, end: JournalDeadline)
  /// A lease of a push ended without an acknowledgement. `attempts`: the number of deliveries; 0 if the push counts as
  /// never delivered. `end`: when the push can be delivered again.
  case released(number: UInt64, attempts: UInt32, end: JournalDeadline)
  /// These pushes are not to be delivered again: they were acknowledged, do not match the topics, or are part of a gap.
  case settled(first: UInt64, last: UInt64)
  /// A push became a dead letter, and is settled.
  case buried(StoredDeadLetter)
  /// The dead letter with this number was dropped to stay within the limits.
  case deadDropped(number: UInt64)
  /// A client removed all dead letters.
  case deadRemoved
  /// All dead letters are delivered again.
  case deadRetried
  /// Only the time without use has changed. The value is in milliseconds.
  case unused(Int64)
  case removed

  /// The size of the push or topics that the change contains, in bytes; 0 if it contains neither.
  package var size: Int {
    switch self {
    case .buried(let letter): letter.push.rendered.count
    case .put(let settings, _): settings.topics.reduce(0) { $0 + $1.utf8.count }
    default: 0
    }
  }
}

/// The position of a consumer, and the gap that its next response reports. Positions are values of `Cursor.position`.
package struct ConsumerProgress: Hashable, Sendable {
  /// Every push up to this position is settled.
  package var position: UInt64
  /// Every push up to this position was examined, which means that it was read for this consumer. The examined pushes
  /// that are not settled are leased or still to be delivered.
  package var frontier: UInt64
  package var missed: UInt64 = 0
  /// Number of all pushes that retention has removed before they were settled.
  package var missedTotal: UInt64 = 0
  package var reasons: GapMarks = []
  /// Number of dead letters that were dropped to stay within the limits.
  package var droppedDead: UInt64 = 0
  /// How long the consumer has been unused, in milliseconds. It does not include time in which no process had the
  /// session.
  package var unused: Int64 = 0

  package init(position: UInt64, frontier: UInt64) {
    self.position = position
    self.frontier = frontier
  }
}

package struct StoredDeadLetter: Equatable, Sendable {
  /// Retention may have removed the push itself.
  package let push: StoredPush
  package let reason: DeadLetter.Reason
  package let deliveries: UInt32

  package init(push: StoredPush, reason: DeadLetter.Reason, deliveries: UInt32) {
    self.push = push
    self.reason = reason
    self.deliveries = deliveries
  }
}

// MARK: Bytes

extension ConsumerChange {
  package func write(_ coder: inout JournalCoder) {
    switch self {
    case .put(let settings, let position):
      _ = coder.byte(1)
      _ = coder.position(position)
      _ = ConsumerSettings(settings, &coder)
    case .moved(let progress):
      _ = coder.byte(2)
      _ = ConsumerProgress(progress, &coder)
    case .leased(let lease, let end):
      _ = coder.byte(3)
      _ = Lease(lease, &coder)
      _ = JournalDeadline(end, &coder)
    case .released(let number, let attempts, let end):
      _ = coder.byte(4)
      _ = coder.number(number)
      _ = coder.attempts(attempts)
      _ = JournalDeadline(end, &coder)
    case .settled(let first, let last):
      _ = coder.byte(5)
      _ = coder.number(first)
      _ = coder.number(last)
    case .buried(let letter):
      _ = coder.byte(6)
      _ = StoredDeadLetter(letter, &coder)
    case .deadDropped(let number):
      _ = coder.byte(7)
      _ = coder.number(number)
    case .deadRemoved: _ = coder.byte(8)
    case .deadRetried: _ = coder.byte(9)
    case .unused(let time):
      _ = coder.byte(10)
      _ = coder.unused(time)
    case .removed: _ = coder.byte(11)
    }
  }

  /// Returns nil if the tag is unknown.
  package init?(_ coder: inout JournalCoder) {
    switch coder.byte(nil) {
    case 1:
      let position = coder.position(nil)
      self = .put(ConsumerSettings(nil, &coder), position: position)
    case 2: self = .moved(ConsumerProgress(nil, &coder))
    case 3: self = .leased(Lease(nil, &coder), end: JournalDeadline(nil, &coder))
    case 4:
      self = .released(number: coder.number(nil), attempts: coder.attempts(nil), end: JournalDeadline(nil, &coder))
    case 5:
      let (first, last) = (coder.number(nil), coder.number(nil))
      coder.require(first <= last)
      self = .settled(first: first, last: last)
    case 6: self = .buried(StoredDeadLetter(nil, &coder))
    case 7: self = .deadDropped(number: coder.number(nil))
    case 8: self = .deadRemoved
    case 9: self = .deadRetried
    case 10: self = .unused(coder.unused(nil))
    case 11: self = .removed
    default: return nil
    }
  }
}

extension ConsumerSettings: JournalRecord {
  /// A value that this version does not understand is left out.
  package init(_ settings: Self?, _ coder: inout JournalCoder) {
    self.init()
    isWorkSharing = coder.flag(settings?.isWorkSharing)
    visibility = TimeSpan(nanoseconds: coder.signed(settings?.visibility.nanoseconds))
    maximumDeliveries = coder.attempts(settings?.maximumDeliveries)
    order = coder.optional(settings?.order?.text) { $0.text($1) }.flatMap { ConsumerOrder($0) }
    idle = TimeSpan(nanoseconds: coder.signed(settings?.idle.nanoseconds))
    let topics = settings?.topics
    let count = coder.varint(topics.map { UInt64($0.count) })
    coder.require(count <= UInt64(coder.rest))
    guard !coder.isDamaged else { return }
    for index in 0..<Int(count) { _ = add(topic: Array(coder.text(topics?[index]).utf8)) }
  }
}

extension ConsumerProgress: JournalRecord {
  package init(_ progress: Self?, _ coder: inout JournalCoder) {
    position = coder.position(progress?.position)
    frontier = coder.position(progress?.frontier)
    missed = coder.count(progress?.missed)
    missedTotal = coder.count(progress?.missedTotal)
    reasons = GapMarks(progress?.reasons, &coder)
    droppedDead = coder.count(progress?.droppedDead)
    unused = coder.unused(progress?.unused)
  }
}

extension Lease: JournalRecord {
  package init(_ lease: Self?, _ coder: inout JournalCoder) {
    self.init(
      number: coder.number(lease?.number), attempt: coder.attempts(lease?.attempt), bits: coder.fixed(lease?.bits))
  }
}

extension StoredDeadLetter: JournalRecord {
  package init(_ letter: Self?, _ coder: inout JournalCoder) {
    push = StoredPush(letter?.push, &coder)
    reason = coder.flag(letter?.reason == .rejected) ? .rejected : .deliveries
    deliveries = coder.attempts(letter?.deliveries)
  }
}

extension JournalCoder {
  /// Reads or writes a number of deliveries.
  fileprivate mutating func attempts(_ value: UInt32?) -> UInt32 {
    UInt32(varint(value.map { UInt64($0) }, through: Self.maximumAttempts))
  }

  private static var maximumAttempts: UInt64 { 1 << 20 }

  /// Reads or writes the time for which a consumer was unused, in milliseconds.
  ///
  /// Earlier versions stored the wall-clock time of the last use. Such a value is below `unusedOffset` and is read as
  /// zero, since a step of the wall clock would falsify the time since that use. An earlier version reads a value with
  /// the offset as a time in the future, so for that version the consumer has just been used.
  fileprivate mutating func unused(_ value: Int64?) -> Int64 {
    let stored = signed(value.map { Self.unusedOffset + min(max(0, $0), Self.unusedOffset) })
    return max(0, stored - min(stored, Self.unusedOffset))
  }

  private static var unusedOffset: Int64 { 1 << 60 }
}
