import ByteStreams
import JournalCoding

/// A change of a consumer that is to survive the process.
package enum ConsumerChange: Equatable, Sendable {
  /// Created, or its settings changed. `position`: where a new consumer starts; ignored by an existing one.
  case put(JournalConsumerSettings, position: UInt64)
  /// How far it is, and what is to be reported as a gap next.
  case moved(JournalConsumerProgress)
  /// A push was leased to a worker, or its lease was extended.
  case leased(JournalLease)
  /// A lease ended without an acknowledgement.
  case released(JournalRelease)
  /// These pushes are not to be handed out again: they were acknowledged, do not match the topics, or are part of a gap.
  case settled(first: UInt64, last: UInt64)
  /// A push became a dead letter, and is settled.
  case buried(JournalDeadLetter)
  /// The dead letter with this number was dropped to stay within the limits.
  case deadDropped(number: UInt64)
  /// A client removed all dead letters.
  case deadRemoved
  /// All dead letters are handed out again.
  case deadRetried
  /// The time of the last use, if nothing else changed.
  case used(at: Int64)
  case removed

  /// Bytes of what it refers to.
  var size: Int {
    switch self {
    case .buried(let letter): letter.push.rendered.count
    case .put(let settings, _): settings.topics.reduce(0) { $0 + $1.utf8.count }
    default: 0
    }
  }
}

/// The settings of a consumer.
package struct JournalConsumerSettings: Hashable, Sendable {
  package var isShared = false
  package var visibility = TimeSpan.zero
  package var maximumDeliveries: UInt32 = 0
  /// As the client wrote it; nil: no order.
  package var order: String?
  package var topics: [String] = []
  package var idle = TimeSpan.zero

  package init() {}
}

/// How far a consumer is, and the gap that its next response reports. Positions are those of `Cursor.position` of the inbox.
package struct JournalConsumerProgress: Hashable, Sendable {
  /// Everything up to it is settled.
  package var position: UInt64
  /// Everything up to it was examined: what is not settled is to be handed out.
  package var frontier: UInt64
  package var missed: UInt64 = 0
  /// Number of all pushes that retention has removed before they were settled.
  package var missedTotal: UInt64 = 0
  package var reasons: JournalGaps = []
  /// Number of dead letters that were dropped to stay within the limits.
  package var droppedDead: UInt64 = 0
  /// The time of the last use.
  package var time: Int64 = 0

  package init(position: UInt64, frontier: UInt64) {
    self.position = position
    self.frontier = frontier
  }
}

package struct JournalLease: Hashable, Sendable {
  /// The number of the push.
  package let number: UInt64
  package let attempt: UInt32
  package let bits: UInt64
  /// When the lease expires.
  package let end: JournalDeadline

  package init(number: UInt64, attempt: UInt32, bits: UInt64, end: JournalDeadline) {
    self.number = number
    self.attempt = attempt
    self.bits = bits
    self.end = end
  }
}

package struct JournalRelease: Hashable, Sendable {
  /// The number of the push.
  package let number: UInt64
  /// Number of deliveries. 0: it is as if it had not been handed out.
  package let attempts: UInt32
  /// When it can be handed out again.
  package let end: JournalDeadline

  package init(number: UInt64, attempts: UInt32, end: JournalDeadline) {
    self.number = number
    self.attempts = attempts
    self.end = end
  }
}

package struct JournalDeadLetter: Equatable, Sendable {
  /// Retention may have removed the push itself.
  package let push: JournalPush
  /// Whether a worker rejected it. If not, it was delivered too often.
  package let isRejected: Bool
  package let deliveries: UInt32

  package init(push: JournalPush, isRejected: Bool, deliveries: UInt32) {
    self.push = push
    self.isRejected = isRejected
    self.deliveries = deliveries
  }
}
