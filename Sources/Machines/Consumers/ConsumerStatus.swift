import ByteStreams
import Inbox

/// The state of a consumer, for clients and metrics.
package struct ConsumerStatus: Sendable {
  package let name: String
  package let settings: ConsumerSettings
  /// Everything up to it is handled, or was reported as missing.
  package let position: Cursor
  /// Number of pushes after the position, of all topics.
  package let lag: UInt64
  package let leases: Int
  package let deadLetters: Int
  package let deadBytes: Int
  /// Number of dead letters that were dropped to stay within the limits.
  package let droppedDeadLetters: UInt64
  /// Number of pushes that retention removed before a worker handled them. nil if the consumer is not shared.
  package let missed: UInt64?
  /// When the first of the pushes that were released with a delay is delivered again; nil if there is none, or the consumer is no webhook.
  package let nextDelivery: MonotonicTime?

  init(_ name: String, _ consumer: ConsumerTable.Consumer, _ latest: Cursor) {
    self.name = name
    settings = consumer.settings
    position = consumer.queue?.position ?? consumer.position
    lag = Self.lag(of: consumer, latest)
    leases = consumer.queue?.leaseCount ?? 0
    deadLetters = consumer.queue?.dead.letters.count ?? 0
    deadBytes = consumer.queue?.dead.bytes ?? 0
    droppedDeadLetters = consumer.queue?.dead.dropped ?? 0
    missed = consumer.queue?.missedTotal
    // This visits all records of the queue.
    nextDelivery = settings.isWebhook ? consumer.queue?.nextDelayed : nil
  }

  /// Number of pushes after the consumer's position.
  static func lag(of consumer: ConsumerTable.Consumer, _ latest: Cursor) -> UInt64 {
    let position = consumer.queue?.position ?? consumer.position
    guard position.epoch == latest.epoch else { return latest.sequence }
    return latest.sequence - min(position.sequence, latest.sequence)
  }
}

/// All consumers of a session together, for metrics.
package struct ConsumerSummary: Sendable {
  package var consumers = 0
  package var leases = 0
  package var deadLetters = 0
  /// Numbers that only increase, also of consumers that were removed.
  package var addedDeadLetters: UInt64 = 0
  package var droppedDeadLetters: UInt64 = 0
  /// Of the consumer that is furthest behind.
  package var lag: UInt64 = 0

  package init() {}
}

/// Some consumers of a session, by name.
package struct ConsumerPage: Sendable {
  package let consumers: [ConsumerStatus]
  /// Whether there are consumers with later names.
  package let more: Bool

  package init(consumers: [ConsumerStatus], more: Bool) {
    self.consumers = consumers
    self.more = more
  }
}

/// A receive of a consumer, from its request to its response.
package struct ReceiveTurn: Sendable {
  let consumer: UInt64
  /// nil if the consumer is shared.
  let receiver: UInt64?
  /// Where the pushes of a consumer that is not shared begin, and which of them it reads.
  package var start: ReadStart?
  package let filter: TopicFilter?

  init(consumer: UInt64, receiver: UInt64?, start: ReadStart? = nil, filter: TopicFilter? = nil) {
    self.consumer = consumer
    self.receiver = receiver
    self.start = start
    self.filter = filter
  }
}

/// Why a consumer does not do what a client requests.
package enum ConsumerRefusal: Error, Equatable, Sendable {
  /// There is no consumer of this name.
  case unknown
  /// The existing consumer has another `share` or `order_by`.
  case differs(ConsumerSettings)
  case tooMany
  /// The consumers of all sessions that clients create have no more memory.
  case outOfMemory
  /// The request is for a consumer that is not shared.
  case isShared
  /// The request is for a shared consumer.
  case isExclusive
  /// A later receive has taken over.
  case superseded
  /// The change cannot be stored.
  case notStored
}
