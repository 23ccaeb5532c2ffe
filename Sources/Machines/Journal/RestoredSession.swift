import ByteStreams
import Consumers
import Continuity
import Idempotency
import Inbox
import Outbox
import UpstreamProtocol

/// The state of a session that results from its stored entries.
///
/// `apply` defines the meaning of entries. Each value that `apply` accepts has its own limit, since a damaged file must
/// not exhaust the memory.
package struct RestoredSession: Equatable, Sendable {
  /// Maximum number of terms. The latest are kept. A cursor of an older term is treated as a cursor from before the
  /// oldest kept term.
  package static var maximumTerms: Int { 64 }

  /// Random, drawn when the session was first opened.
  package let epoch: UInt64
  /// Sorted, the oldest first. The last is the present term. Empty if the session was never opened.
  package private(set) var terms: [JournalTerm] = []
  /// Whether the last entries may be missing, because the machine failed or the store was restored from a backup. If
  /// so, the store appends a gap. The value is not part of the journal.
  package var mayHaveLostEntries = false

  /// Whether an earlier process has used this session.
  package var isContinued: Bool { terms.count > 1 }

  package private(set) var log = StoredLog()
  package private(set) var outbox = StoredOutbox()
  package private(set) var keys = StoredKeys()
  package private(set) var memory = StoredMemory()
  package private(set) var consumers = StoredConsumers()
  /// Whether no operator has closed the session.
  package private(set) var isOpenDesired = true

  package init(epoch: UInt64) { self.epoch = epoch }

  /// The arrival of the newest known push or message; nil if none is known.
  package var newestTime: Int64? { [log.newestTime, outbox.newestTime].compactMap(\.self).max() }

  /// Whether the next connection can request that the upstream restores the state of its last connection. If the
  /// upstream restores this state, no push is missing.
  package var mayBeContinued: Bool { !mayHaveLostEntries && memory.continuations.values.areComplete }

  // MARK: Applying

  /// Applies the next entry. Returns false, without a change, if the entry does not follow the entries before it. In
  /// this case the file is damaged.
  package mutating func apply(_ entry: JournalEntry) -> Bool {
    switch entry {
    case .opened(let term): return open(term)
    case .log(let change): return log.apply(change)
    case .outbox(let change): return outbox.apply(change)
    case .keyed(let key): keys.apply(key)
    case .memory(let change): memory.apply(change)
    case .desired(let isOpen): isOpenDesired = isOpen
    case .consumer(let name, let change): return consumers.apply(change, to: name)
    case .closed: self = RestoredSession(epoch: epoch)
    }
    return true
  }

  private mutating func open(_ term: JournalTerm) -> Bool {
    guard term.term > terms.last?.term ?? 0, log.beginTerm(at: term.firstPush) else { return false }
    terms.append(term)
    if terms.count > Self.maximumTerms { terms.removeFirst() }
    outbox.beginTerm(at: term.firstDelivery)
    return true
  }

  // MARK: The entries that lead to the state

  /// The retained pushes and the gaps between them, in order.
  package var pushEntries: [JournalEntry] { log.changes.map { .log($0) } }

  /// All other entries. The store keeps them instead of all changes that were ever submitted. These entries and
  /// `pushEntries` can be applied in any order, except that `retained`, the first entry, must precede all others.
  package var stateEntries: [JournalEntry] {
    var result: [JournalEntry] = [.log(.retained(log.retention))]
    result += outbox.changes.map { .outbox($0) }
    result += terms.map { .opened($0) }
    result += keys.changes.map { .keyed($0) }
    result += memory.changes.map { .memory($0) }
    if !isOpenDesired { result.append(.desired(isOpen: false)) }
    return result + consumers.changes.map { .consumer(name: $0.name, $0.change) }
  }
}
