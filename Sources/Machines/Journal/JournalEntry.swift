import ByteStreams
import Consumers
import Continuity
import Idempotency
import Inbox

/// One change of a session that is to survive the process.
///
/// A session submits its changes in the order in which it makes them, and those that belong together in one call: they are stored together
/// or not at all. `RestoredSession.apply` defines what each entry means. All times are wall-clock times in milliseconds since the UNIX
/// epoch, since the monotonic clock starts anew with the machine.
package enum JournalEntry: Equatable, Sendable {
  /// The store was opened for this session. Its next push and its next delivery are the first of the term.
  case opened(JournalTerm)
  /// The pushes, and the gaps between them.
  case log(LogChange)
  /// A message was queued. Its number is larger than those before, and not always the next: messages with time to live 0 are not stored.
  case accepted(JournalMessage)
  /// The messages accepted under an idempotency key. It is submitted together with them.
  case keyed(StoredKey)
  /// A connection may write the messages up to this number. The number decreases when a connection is lost before it has written all
  /// that it had taken: the messages after the number are queued again.
  case intended(through: UInt64)
  /// Messages reached another state.
  case settled(JournalSettlement)
  /// A subscription was made or replaced. It becomes the latest.
  case subscribed(JournalSubscription)
  /// The subscription with this key has ended.
  case unsubscribed(key: [UInt8])
  /// What the next connection resumes from. nil: nothing any more.
  case resume(ResumeValue, [UInt8]?)
  /// What the upstream needs to restore the state of this namespace. It is submitted together with the push that it follows.
  case continued(namespace: String, Continuation)
  /// What `continued` has stored so far is of no use any more. It is submitted together with what takes its place.
  case discontinued
  /// The session's upstream speaks this protocol from now on. What another one needs to resume is forgotten.
  case speaks(StoredProtocol)
  /// An operator wants the session to be open, or closed. Only for a session that gateways share: the end of a gateway does not open it.
  case desired(isOpen: Bool)
  /// A change of the consumer with this name.
  case consumer(name: String, ConsumerChange)
  /// The session has ended for good: everything above is removed.
  case closed

  /// Bytes that the entry counts towards the limit of what waits for the store: its own size, and what it refers to.
  package var cost: Int {
    let own = Self.overhead
    return switch self {
    case .log(let change): own + change.size
    case .accepted(let message): own + message.payload.count
    case .subscribed(let subscription): own + subscription.payload.count + subscription.key.count
    case .resume(_, let value): own + (value?.count ?? 0)
    case .continued(_, let continuation): own + continuation.pid.count + (continuation.offset?.count ?? 0)
    case .consumer(_, let change): own + change.size
    default: own
    }
  }

  private static var overhead: Int { 128 }
}

/// The opening of the store for a session. Each opening has another number, which is stored before any number of the term is issued.
package struct JournalTerm: Hashable, Sendable {
  /// A counter above 32 random bits. Stores of earlier versions have the counter alone.
  package let term: UInt64
  /// The counter: it increases with each term.
  package var opening: UInt64 { Self.opening(term) }
  /// The number of the first push of the term.
  package let firstPush: UInt64
  /// The number of the first delivery of the term.
  package let firstDelivery: UInt64

  package init(term: UInt64, firstPush: UInt64, firstDelivery: UInt64) {
    self.term = term
    self.firstPush = firstPush
    self.firstDelivery = firstDelivery
  }

  /// The counter has 30 bits, since a journal's numbers have 62.
  private static var maximumOpening: UInt64 { 1 << 30 - 1 }

  /// The number of a term after `last`. A store cannot know that its file is an earlier copy, whose original has begun other terms after the same one.
  /// The random bits distinguish them.
  ///
  /// - Parameter distance: of the counters.
  package static func number(after last: UInt64, distance: UInt64 = 1, random: UInt32) -> UInt64 {
    let counter = min(opening(last) + distance, maximumOpening)
    return max(counter << 32 | UInt64(random), last + 1)
  }

  private static func opening(_ term: UInt64) -> UInt64 { term >> 32 > 0 ? term >> 32 : term }

  /// 20 bits that distinguish the calls of this term. Those of the counter differ from the last 2,047 terms before it. Those that are random most likely
  /// differ from a term that the store does not know.
  package var callBits: UInt64 { (opening & 0x7FF) << 9 | (term >> 32 > 0 ? term & 0x1FF : 0) }
}

/// A message on its way to the upstream.
package struct JournalMessage: Equatable, Sendable {
  package let number: UInt64
  package let payload: SharedBytes
  package let kind: MessageKind
  package let topic: String?
  /// When it expires; nil: never.
  package let deadline: Int64?
  /// When it was queued.
  package let time: Int64

  package init(
    number: UInt64, payload: SharedBytes, kind: MessageKind, topic: String?, deadline: Int64?, time: Int64
  ) {
    self.number = number
    self.payload = payload
    self.kind = kind
    self.topic = topic
    self.deadline = deadline
    self.time = time
  }

  package static func == (left: JournalMessage, right: JournalMessage) -> Bool {
    left.number == right.number && left.kind == right.kind && left.topic == right.topic
      && left.deadline == right.deadline && left.time == right.time
      && left.payload.bytes.equals(right.payload.bytes)
  }
}

/// Messages with consecutive numbers that reached another state.
package struct JournalSettlement: Hashable, Sendable {
  package let first: UInt64
  package let last: UInt64
  /// The raw values of the outbox. 0 is no state and no reason.
  package let state: UInt8
  package let reason: UInt8
  package let time: Int64
  /// Whether the payloads are not needed any more: the messages will not be sent again.
  package let releasesPayloads: Bool

  package init(first: UInt64, last: UInt64, state: UInt8, reason: UInt8, time: Int64, releasesPayloads: Bool) {
    self.first = first
    self.last = last
    self.state = state
    self.reason = reason
    self.time = time
    self.releasesPayloads = releasesPayloads
  }
}

/// A message that is sent again on every new connection.
package struct JournalSubscription: Equatable, Sendable {
  package let key: [UInt8]
  package let kind: MessageKind
  package let payload: SharedBytes

  package init(key: [UInt8], kind: MessageKind, payload: SharedBytes) {
    self.key = key
    self.kind = kind
    self.payload = payload
  }

  package static func == (left: JournalSubscription, right: JournalSubscription) -> Bool {
    left.key == right.key && left.kind == right.kind && left.payload.bytes.equals(right.payload.bytes)
  }
}

/// What a connection resumes from.
package enum ResumeValue: UInt8, CaseIterable, Sendable {
  /// The value of `${cursor}`.
  case cursor = 1
}

/// What the upstream of a session speaks: messages and what is resumed have a form of their own.
package enum StoredProtocol: UInt8, CaseIterable, Sendable {
  case webSocket
  /// Messages are `SocketIORecord`s.
  case socketIO
}
