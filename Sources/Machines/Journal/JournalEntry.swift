import ByteStreams
import Consumers
import Idempotency
import Inbox
import Outbox
import UpstreamProtocol

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
  /// The outgoing messages.
  case outbox(OutboxChange)
  /// The messages accepted under an idempotency key. It is submitted together with them.
  case keyed(StoredKey)
  /// What outlives the connections to the upstream.
  case memory(MemoryChange)
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
    case .outbox(let change): own + change.size
    case .memory(let change): own + change.size
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
