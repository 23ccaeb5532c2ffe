import ByteStreams
import Inbox

/// The state of a consumer, for clients and metrics.
package struct ConsumerStatus: Sendable {
  package let name: String
  package let settings: ConsumerSettings
  /// Every push up to this position is handled, or was reported as missing.
  package let position: Cursor
  /// Number of pushes after the position, of all topics.
  package let lag: UInt64
  package let leases: Int
  package let deadLetters: Int
  package let deadBytes: Int
  /// Number of dead letters that were dropped to stay within the limits.
  package let droppedDeadLetters: UInt64
  /// Number of pushes that retention removed before a worker handled them; nil if the consumer is not work-sharing.
  package let missed: UInt64?
  /// When the next push that was released with a delay is delivered again; nil if there is none, or if the consumer is
  /// not a webhook.
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
    // `nextDelayed` visits all records of the queue, so it is used for webhooks only.
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
  /// This number and `droppedDeadLetters` only increase. They include dead letters of consumers that were removed.
  package var addedDeadLetters: UInt64 = 0
  package var droppedDeadLetters: UInt64 = 0
  /// The lag of the consumer that is furthest behind.
  package var lag: UInt64 = 0

  package init() {}
}

/// Some consumers of a session, in the order of their names.
package struct ConsumerPage: Sendable {
  package let consumers: [ConsumerStatus]
  /// Whether there are consumers with later names.
  package let more: Bool

  package init(consumers: [ConsumerStatus], more: Bool) {
    self.consumers = consumers
    self.more = more
  }
}

/// A request of a client to receive pushes, from the request to its response.
package struct ReceiveTurn: Sendable {
  let consumer: UInt64
  /// nil for a work-sharing consumer.
  let receiver: UInt64?
  /// If the consumer is not work-sharing: the position where the pushes begin, and the topics to read.
  package var start: ReadStart?
  package let filter: TopicFilter?

  init(consumer: UInt64, receiver: UInt64?, start: ReadStart? = nil, filter: TopicFilter? = nil) {
    self.consumer = consumer
    self.receiver = receiver
    self.start = start
    self.filter = filter
  }
}

/// Why the request of a client to a consumer is refused.
package enum ConsumerRefusal: Error, Equatable, Sendable {
  /// There is no consumer of this name.
  case unknown
  /// The existing consumer has a different `share` or `order_by`.
  case differs(ConsumerSettings)
  case tooMany
  /// No memory is left for the consumers of all created sessions.
  case outOfMemory
  /// The request requires a consumer that is not work-sharing.
  case isWorkSharing
  /// The request requires a work-sharing consumer.
  case isExclusive
  /// A later receive has replaced this receive.
  case superseded
  /// The change cannot be stored.
  case notStored
}
