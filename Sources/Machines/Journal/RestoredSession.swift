import ByteStreams
import Consumers
import Continuity
import Idempotency
import Inbox
import Outbox
import UpstreamProtocol

/// What a session was when its last entry was stored.
///
/// `apply` is the definition of the journal: the state is that after all stored entries. Every value that `apply` accepts is within
/// limits of its own, since a damaged file must not exhaust the memory.
package struct RestoredSession: Equatable, Sendable {
  /// The latest terms that are kept. A cursor of an older term is before the oldest of these.
  package static var maximumTerms: Int { 64 }

  /// Drawn at random when the session was first opened.
  package let epoch: UInt64
  /// Oldest first. The last one is the present. Empty: the session was never opened.
  package private(set) var terms: [JournalTerm] = []
  /// Whether entries at the end may be missing, because the machine failed or the store was restored from a backup. The store appends a gap
  /// then. This is not part of the journal.
  package var mayHaveLostEntries = false

  /// Whether an earlier process had this session.
  package var isContinued: Bool { terms.count > 1 }

  package private(set) var log = StoredLog()
  package private(set) var outbox = StoredOutbox()
  package private(set) var keys = StoredKeys()
  package private(set) var memory = StoredMemory()
  package private(set) var consumers = StoredConsumers()
  /// Whether no operator has closed the session.
  package private(set) var isOpenDesired = true

  package init(epoch: UInt64) { self.epoch = epoch }

  /// When the newest push or message of which something is known arrived; nil if nothing is.
  package var newestTime: Int64? { [log.newestTime, outbox.newestTime].compactMap(\.self).max() }

  /// Whether no push is missing if the upstream restores the state of its last connection, which the next one asks for.
  package var mayBeContinued: Bool { !mayHaveLostEntries && memory.continuations.values.areComplete }

  // MARK: Applying

  /// Applies the next entry. Returns false, without a change, if it cannot follow those before: the file is damaged.
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

  /// All other entries, which the store keeps in place of all that were ever submitted. They and `pushEntries`
  /// are independent of each other, except that `retained`, the first of these, comes before both.
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
