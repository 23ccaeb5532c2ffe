import ByteStreams
import Journal
import Replication
import Submissions

/// A write of a session: a batch of entries, or its whole state.
struct SessionWrite {
  let number: UInt64
  /// Of the term in which its entries were submitted.
  let progress: JournalProgress
  let journal: QueuedJournal
  /// Of the last entry that it contains, and of all before.
  let lastTicket: UInt64
  /// The position after its last push or gap.
  let position: UInt64
  /// What its entries count in the limit of what waits to be stored.
  let cost: Int
  var pushes: [LogRow] = []
  /// The other entries, or the parts of a state.
  var changes: [[UInt8]] = []
  /// Number of the oldest push that is kept, if others are to be dropped.
  var firstKept: UInt64?
  var isState = false

  var changeBytes: Int { changes.reduce(0) { $0 + $1.count + JournaledSession.rowOverhead } }
}

/// What a session has submitted and is in no write, in order.
struct SessionBacklog {
  private var items: [SubmissionBatch.Item] = []
  private var first = 0
  /// The number of the last one that was taken.
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
    // Also while more is submitted than Redis takes: what was taken is at most as much as what is left.
    if first == items.count || first >= Self.keptCapacity && first >= items.count - first {
      let isEmpty = first == items.count
      items.removeFirst(first)
      tickets.removeFirst(first)
      if isEmpty, items.capacity > 2 * Self.keptCapacity { (items, tickets) = ([], []) }
      first = 0
    }
    return item
  }

  /// Entries in memory, with those that were taken. For tests.
  var storedCount: Int { items.count }

  private static var keptCapacity: Int { 1 << 12 }
}
