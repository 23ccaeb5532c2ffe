import ByteStreams
import Totals

/// Limits and delivery guarantees of an outbox.
package struct OutboxSettings: Sendable, Equatable {
  package enum Overflow: String, CaseIterable, Sendable {
    /// New messages are refused: the sender gets an error and can retry.
    case refuse
    /// The oldest waiting message is dropped and ends as `rejected`.
    case dropOldest = "drop-oldest"
  }

  package enum Redelivery: String, CaseIterable, Sendable {
    /// A written message without a confirmation becomes `unknown`. For some messages, such as orders, a duplicate is
    /// worse than the report of an unknown outcome.
    case never
    /// The message is sent again, in its position before newer messages, within its time to live.
    case unconfirmed
  }

  /// Maximum messages that one client may have in the outbox (`Reserve`). At one message per millisecond, they cover
  /// one second without the upstream.
  package var maximumMessages = 1_024
  /// Maximum bytes that one client may have in the outbox. A single larger message is accepted if the outbox is empty.
  /// If an empty outbox refused that message, it could never be sent.
  package var maximumBytes = 4 * 1_024 * 1_024
  package var overflow: Overflow = .refuse
  package var redelivery: Redelivery = .never
  /// How many connections may be lost before a message is given up. A connection counts if it was lost after the
  /// message was written (with `redelivery: unconfirmed`), or, in any case, while the message was partially written. At
  /// most 255.
  package var maximumAttempts = 3
  /// Whether pings confirm messages. If not, `written` is final. `startSending` can override this setting for its
  /// connection.
  package var confirms = true
  /// A barrier ping is sent after this many messages, or `barrierDelay` after the first message that no barrier
  /// follows.
  package var barrierMessages = 64
  package var barrierDelay: TimeSpan = .milliseconds(20)
  /// Minimum time between a barrier and the next barrier that `barrierDelay` causes, unless a client waits for a
  /// confirmation or messages may be sent again. A ping and its pong are two frames and their system calls, and
  /// `barrierDelay` alone permits 50 a second in each session. A longer interval leaves messages `written` for longer,
  /// and a lost connection makes such messages `unknown`.
  package var barrierInterval: TimeSpan = .milliseconds(200)
  /// Maximum number of barrier pings without a pong. A further barrier ping waits for a pong. Several pings are
  /// allowed, so that a long round trip does not delay confirmations. The number is small, so that an upstream that
  /// never responds costs little.
  package var maximumBarriers = 8
  /// Default time to live of a message. The caller passes it to `enqueue` with each message; the outbox itself does not
  /// read it.
  package var timeToLive: TimeSpan = .seconds(30)
  /// Maximum messages sent per `rateInterval`; 0 if messages are sent as fast as the upstream accepts them.
  package var rate = 0
  package var rateInterval: TimeSpan = .seconds(1)
  /// Maximum messages sent at once after a pause.
  package var burst = 1

  package init() {}

  package var messageReserve: Reserve { Reserve(limit: maximumMessages) }
  package var byteReserve: Reserve { Reserve(limit: maximumBytes) }

  /// `rate`, `rateInterval` and `burst` as one value; nil if messages are sent as fast as the upstream accepts them.
  package var pace: Pace? {
    get { rate > 0 ? Pace(messages: rate, interval: rateInterval, burst: burst) : nil }
    set {
      rate = newValue?.messages ?? 0
      guard let newValue else { return }
      (rateInterval, burst) = (newValue.interval, newValue.burst)
    }
  }
}

/// One message, as passed to a connection.
package struct OutboxMessage: Sendable {
  package let sequence: UInt64
  package let kind: MessageKind
  package let payload: ByteSlice
  /// Whether the message was queued with `reportsEnd`. The request of a call is such a message.
  package let reportsEnd: Bool
  /// The client for which the message is counted; 0 if the client is unknown.
  package let client: UInt64
}

/// The progress of a message, for a session that repeats the message on a new connection.
package enum DeliveryProgress: Equatable, Sendable {
  /// The message waits in the queue, and will be sent, perhaps again.
  case waiting
  /// A connection has taken the message, or the message is too old to be remembered.
  case taken
  /// The message ended and cannot have arrived. Its sender may have seen that state.
  case notSent
}

/// The limit of the queue that a refused message would exceed.
package enum QueueLimit: Equatable, Sendable {
  case messages, bytes
}

/// The result of queueing one message or several in a row.
package struct EnqueueResults: Equatable, Sendable {
  /// The result of the first message. If it is queued, the others have the following sequence numbers; if it is not,
  /// they have the same result.
  package var result: EnqueueResult
  package var count: Int

  package init(result: EnqueueResult, count: Int) {
    self.result = result
    self.count = count
  }
}

/// The result of queueing a message.
package enum EnqueueResult: Equatable, Sendable {
  /// Queued under this number. `wakes`: the driver must be notified, since it was idle, waits for a later deadline, or
  /// must report a loss.
  case queued(sequence: UInt64, wakes: Bool)
  /// The queue has no room because of this limit.
  case full(QueueLimit)
  /// The message may not wait (time to live 0) and cannot be written now.
  case notReady(NotReadyReason)
  /// The session accepts no more messages.
  case closed
  /// The message cannot be stored.
  case notStored(StoreHindrance)

  /// Why a message cannot be stored.
  package enum StoreHindrance: Equatable, Sendable {
    /// The store does not work.
    case failed
    /// The queue of the store is full.
    case full
  }

  /// Why a message cannot be written at once.
  package enum NotReadyReason: Equatable, Sendable {
    /// No connection takes messages.
    case notConnected
    /// The upstream does not read earlier output, or a large message ahead of it is being compressed or sent.
    case blocked
    /// Earlier messages, which must be written first, cannot be stored at present.
    case storeFailed
    /// The pace permits the next message at this time at the earliest.
    case pace(until: MonotonicTime)
  }
}
