import ByteStreams
import Consumers
import Idempotency
import Inbox
import Outbox
import UpstreamProtocol

/// A change of a session, as stored in the journal.
///
/// A session submits its changes in the order in which it makes them. Changes that belong together are submitted in one
/// call, and are stored together or not at all. `RestoredSession.apply` defines the meaning of each entry. All times
/// are wall-clock times in milliseconds since 1970, because the monotonic clock restarts with the machine.
package enum JournalEntry: Equatable, Sendable {
  /// A term has begun for this session. Its next push and its next delivery are the first of the term.
  case opened(JournalTerm)
  /// A change of the pushes, or of the gaps between them.
  case log(LogChange)
  /// A change of the outgoing messages.
  case outbox(OutboxChange)
  /// An idempotency key, with the messages that were accepted under it. It is submitted together with these messages.
  case keyed(StoredKey)
  /// A change of the protocol's memory, which survives connections to the upstream.
  case memory(MemoryChange)
  /// An operator has opened or closed the session. This entry exists only in shared sessions, since a new holder must
  /// not open a session that an operator has closed.
  case desired(isOpen: Bool)
  /// A change of the consumer with this name.
  case consumer(name: String, ConsumerChange)
  /// The session has ended for good. All of its entries are removed.
  case closed

  /// The bytes for which the entry is counted towards the limit on pending bytes: a constant, and the entry's payload.
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

/// The beginning of a term of a session. The term's number is stored before any number of a push or delivery of the
/// term is issued.
package struct JournalTerm: Hashable, Sendable {
  /// A counter above 32 random bits. Stores of earlier versions have only the counter.
  package let term: UInt64
  /// The counter, which increases with each term.
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

  /// The counter has 30 bits, since the numbers of a journal have 62.
  private static var maximumOpening: UInt64 { 1 << 30 - 1 }

  /// Returns the number of a term after `last`. A file may be a copy of a store whose original has begun further terms
  /// with the same counters. The random bits distinguish the terms of the original from the terms of the copy.
  ///
  /// - Parameter distance: the difference of the counters.
  package static func number(after last: UInt64, distance: UInt64 = 1, random: UInt32) -> UInt64 {
    let counter = min(opening(last) + distance, maximumOpening)
    return max(counter << 32 | UInt64(random), last + 1)
  }

  private static func opening(_ term: UInt64) -> UInt64 { term >> 32 > 0 ? term >> 32 : term }

  /// 20 bits that distinguish the calls of this term. Eleven of them are from the counter, and differ in any 2,048
  /// consecutive terms. Nine are random, and most likely differ from the random bits of a term that the store does not
  /// have.
  package var callBits: UInt64 { (opening & 0x7FF) << 9 | (term >> 32 > 0 ? term & 0x1FF : 0) }
}
