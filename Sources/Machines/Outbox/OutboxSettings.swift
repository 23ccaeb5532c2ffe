import ByteStreams

package struct OutboxSettings: Sendable, Equatable {
  package enum Overflow: String, CaseIterable, Sendable {
    /// New messages are refused: their sender is told, and can wait.
    case refuse
    /// The oldest waiting message gives way, and ends as `rejected`.
    case dropOldest = "drop-oldest"
  }

  package enum Redelivery: String, CaseIterable, Sendable {
    /// What was written and not confirmed becomes `unknown`: a duplicate order is worse than a report.
    case never
    /// It goes again, in its place ahead of newer ones, within its time to live.
    case unconfirmed
  }

  /// Messages that may wait: at a message a millisecond, a second of a dead upstream.
  package var maximumMessages = 1_024
  /// Bytes that may wait. A single larger message is taken when nothing else waits, or it never could be.
  package var maximumBytes = 4 * 1_024 * 1_024
  package var overflow: Overflow = .refuse
  package var redelivery: Redelivery = .never
  /// Connections that may be lost over one message: with `redelivery: unconfirmed` after it was written, in any case in the midst
  /// of it. At most 255.
  package var maximumAttempts = 3
  /// Whether pings confirm messages. Off, `written` is final.
  package var confirms = true
  /// A barrier ping goes out behind this many messages, or `barrierDelay` after the first that none stands behind.
  package var barrierMessages = 64
  package var barrierDelay: TimeSpan = .milliseconds(20)
  /// Barrier pings that may be without answer; the next waits for a pong. Some, so that a long round trip does not hold
  /// confirmations up; few, so that an upstream that never answers costs nothing.
  package var maximumBarriers = 8
  /// How long a message may wait, unless its sender says. The outbox gets it with each message.
  package var timeToLive: TimeSpan = .seconds(30)
  /// Messages that may leave in each `rateInterval`; 0: as fast as the upstream takes them.
  package var rate = 0
  package var rateInterval: TimeSpan = .seconds(1)
  /// Messages that may leave at once after a pause.
  package var burst = 1

  package init() {}

  /// The rate as one value; nil: as fast as the upstream takes them.
  package var pace: Pace? {
    get { rate > 0 ? Pace(messages: rate, interval: rateInterval, burst: burst) : nil }
    set {
      rate = newValue?.messages ?? 0
      guard let newValue else { return }
      (rateInterval, burst) = (newValue.interval, newValue.burst)
    }
  }
}

/// One message as it is handed to a connection.
package struct OutboxMessage: Sendable {
  package let sequence: UInt64
  package let kind: MessageKind
  package let payload: SharedBytes
}

/// A limit of the queue, by which a message is refused.
package enum QueueLimit: Equatable, Sendable {
  case messages, bytes
}

/// What became of the wish to queue a message.
package enum EnqueueResult: Equatable, Sendable {
  /// It waits under this number. `wakes`: the driver has to hear of it, since it had nothing to do, or less urgent things.
  case queued(sequence: UInt64, wakes: Bool)
  /// This limit of the queue leaves no room.
  case full(QueueLimit)
  /// It may not wait (time to live 0), and cannot be written now.
  case notReady(Hindrance)
  /// The session takes no more messages.
  case closed

  /// What keeps a message from being written at once.
  package enum Hindrance: Equatable, Sendable {
    /// No connection takes messages.
    case notConnected
    /// The upstream does not read what was written before.
    case blocked
    /// The pace lets the next message go then at the earliest.
    case pace(until: MonotonicTime)
  }
}
