import ByteStreams
import Journal
import Replication
import Submissions

/// A write of a session: a batch of entries, or its whole state.
struct SessionWrite {
  let number: UInt64
  /// The progress of the term in which the entries were submitted.
  let progress: JournalProgress
  let journal: QueuedJournal
  /// The ticket of the last entry. This write and the earlier writes contain all entries up to it.
  let lastTicket: UInt64
  /// The position after the last push or gap.
  let position: UInt64
  /// The part of the limit on pending bytes that the entries of this write use.
  let cost: Int
  var pushes: [LogRow] = []
  /// The other entries, or the parts of a state.
  var changes: [[UInt8]] = []
  /// The number before which pushes are dropped; nil if all are kept.
  var firstKept: UInt64?
  var isState = false

  var changeBytes: Int { changes.reduce(0) { $0 + $1.count + JournaledSession.rowOverhead } }
}

/// Submitted entries that no write contains yet, in order.
struct SessionBacklog {
  private var items: [SubmissionBatch.Item] = []
  private var first = 0
  /// The ticket of the last entry that was taken.
  private(set) var lastTicket: UInt64 = 0
  private var tickets: [UInt64] = []

  var isEmpty: Bool { first == items.count }
  var cost: Int { items[first...].reduce(0) { $0 + $1.entry.cost } }

  mutating func append(_ item: SubmissionBatch.Item, _ ticket: UInt64) {
    items.append(item)
    tickets.append(ticket)
  }

  mutating func next() -> SubmissionBatch.Item? {
    guard first < items.count else { return nil }
    let item = items[first]
    lastTicket = tickets[first]
    first += 1
    // The array is compacted even while entries arrive faster than Redis takes them. The cost stays linear, since no
    // more entries are moved than were taken.
    if first == items.count || first >= Self.keptCapacity && first >= items.count - first {
      let isEmpty = first == items.count
      items.removeFirst(first)
      tickets.removeFirst(first)
      if isEmpty, items.capacity > 2 * Self.keptCapacity { (items, tickets) = ([], []) }
      first = 0
    }
    return item
  }

  /// Number of entries in memory, including entries that were taken. For tests.
  var storedCount: Int { items.count }

  private static var keptCapacity: Int { 1 << 12 }
}
