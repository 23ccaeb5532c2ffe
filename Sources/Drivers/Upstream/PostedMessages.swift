import ByteStreams
import Idempotency
import Journal
import Outbox
import Reactor
import UpstreamSession

/// Messages that a client posts together. No other message is queued between these messages.
package struct PostedMessages: Sendable {
  package enum Payloads: Sendable {
    case one(ByteString)
    /// Either all messages are queued, with consecutive numbers, or no message is queued.
    case allOrNone([ByteSlice])
    /// The messages are queued in this order, and each message is accepted or refused by itself.
    case each([ByteSlice])

    var count: Int {
      switch self {
      case .one: 1
      case .allOrNone(let payloads), .each(let payloads): payloads.count
      }
    }

    subscript(index: Int) -> ByteSlice {
      switch self {
      case .one(let payload): ByteSlice(payload)
      case .allOrNone(let payloads), .each(let payloads): payloads[index]
      }
    }
  }

  let payloads: Payloads
  let kind: MessageKind
  let timeToLive: TimeSpan?
  let topic: String?
  let key: KeyToStore?
  let client: UInt64

  /// - Parameters:
  ///   - timeToLive: zero if the messages must be sent at once or not at all; nil for no expiry.
  ///   - key: the idempotency key of the request. It is stored with the messages.
  ///   - client: the client whose share of the queue the messages use; 0 if clients cannot be distinguished.
  package init(
    _ payloads: Payloads, kind: MessageKind, timeToLive: TimeSpan?, topic: String? = nil, key: KeyToStore? = nil,
    by client: UInt64 = 0
  ) {
    self.payloads = payloads
    self.kind = kind
    self.timeToLive = timeToLive
    self.topic = topic
    self.key = key
    self.client = client
  }
}

/// The result of a post.
package struct PostReceipt: Sendable {
  /// The result of the first message. With `allOrNone`, this is the result of all messages, and the further messages
  /// have the numbers after the first.
  package let result: EnqueueResult
  /// With `each`, the results of the messages, in the order of the messages.
  package var runs: [EnqueueResults] = []
  /// The time of the next connection attempt; nil if messages are sent at once, or if the time is unknown.
  package var nextAttempt: MonotonicTime?
  /// The ticket of the messages; nil if the messages need not be stored. The messages are accepted when their entry is
  /// stored.
  package var ticket: JournalTicket?
}

/// An idempotency key. It is stored together with the messages of its request.
package struct KeyToStore: Sendable {
  package let key: IdempotencyTable.Key
  package let fingerprint: IdempotencyTable.Key
  package let principal: IdempotencyTable.Key
  package let isBatch: Bool
  /// The position after the newest push, read before the messages are queued.
  package let position: UInt64
  package let lifetime: TimeSpan

  package init(
    key: IdempotencyTable.Key, fingerprint: IdempotencyTable.Key, principal: IdempotencyTable.Key, isBatch: Bool,
    position: UInt64, lifetime: TimeSpan
  ) {
    self.key = key
    self.fingerprint = fingerprint
    self.principal = principal
    self.isBatch = isBatch
    self.position = position
    self.lifetime = lifetime
  }
}

extension SessionHandle {
  /// Queues messages. Callable from any loop.
  package func post(_ messages: PostedMessages, now: MonotonicTime) -> PostReceipt {
    if let journal, messages.timeToLive != .zero { return store(messages, in: journal, now: now) }
    let (receipt, signal) = update(at: now) { $0.enqueue(messages, now: now) }
    signal?.notify()
    return receipt
  }
}

extension SessionHandle.Guarded {
  /// Queues messages. Returns the receipt, and the signal that must be notified.
  @inline(__always)
  mutating func enqueue(_ messages: PostedMessages, now: MonotonicTime) -> (PostReceipt, Signal?) {
    let (kind, timeToLive, topic, client) = (messages.kind, messages.timeToLive, messages.topic, messages.client)
    let result: EnqueueResult
    var runs: [EnqueueResults] = []
    switch messages.payloads {
    case .one(let payload):
      result = outbox.enqueue(
        ByteSlice(payload), kind: kind, timeToLive: timeToLive, topic: topic, by: client, now: now)
    case .allOrNone(let payloads):
      result = outbox.enqueueAll(payloads, kind: kind, timeToLive: timeToLive, topic: topic, by: client, now: now)
    case .each(let payloads):
      runs = outbox.enqueue(payloads, kind: kind, timeToLive: timeToLive, topic: topic, by: client, now: now)
      result = runs.first?.result ?? .closed
    }
    var signal = signal(after: result)
    for run in runs.dropFirst() { signal = self.signal(after: run.result) ?? signal }
    return (PostReceipt(result: result, runs: runs, nextAttempt: nextAttempt), signal)
  }
}
