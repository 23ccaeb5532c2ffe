import ByteStreams

/// A change of a consumer that is to survive the process.
package enum ConsumerChange: Equatable, Sendable {
  /// Created, or its settings changed. `position`: where a new consumer starts; ignored by an existing one.
  case put(JournalConsumerSettings, position: UInt64)
  /// Everything up to this position is settled, and what is to be reported as a gap next.
  case moved(JournalConsumerPosition)
  /// A push was leased to a worker.
  case leased(JournalLease)
  /// Leases ended without an acknowledgement. `until`: when the push can be handed out again.
  case released(number: UInt64, until: Int64)
  /// A push was acknowledged, or is not to be handed out for another reason.
  case settled(number: UInt64)
  /// A push became a dead letter, and is settled.
  case buried(JournalDeadLetter)
  /// The oldest dead letters were dropped to stay within the limits.
  case deadDropped(count: Int)
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

/// The position of a consumer, and the gap that its next response reports.
package struct JournalConsumerPosition: Hashable, Sendable {
  /// As `Cursor.position` of the inbox.
  package let position: UInt64
  package let missed: UInt64
  package let reasons: JournalGaps
  /// The time of the last use.
  package let time: Int64

  package init(position: UInt64, missed: UInt64 = 0, reasons: JournalGaps = [], time: Int64) {
    self.position = position
    self.missed = missed
    self.reasons = reasons
    self.time = time
  }
}

package struct JournalLease: Hashable, Sendable {
  /// The number of the push.
  package let number: UInt64
  package let attempt: UInt32
  package let bits: UInt64
  /// When the lease expires.
  package let end: Int64

  package init(number: UInt64, attempt: UInt32, bits: UInt64, end: Int64) {
    self.number = number
    self.attempt = attempt
    self.bits = bits
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
