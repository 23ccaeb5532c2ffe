import ByteStreams
import Inbox
import Outbox

/// A session in the memory of its store: its state, and the bytes of the entries for the next write.
///
/// The state includes all entries that were taken, whether they are stored or not. If stored data is lost, the store
/// writes it again from this state. The state refers to the session's own pushes and payloads, so it needs no memory
/// for their bytes.
package struct JournaledSession: ~Copyable {
  /// The beginning of a row of pushes: its offset, and the number of the first push at or after it.
  private struct PushRow {
    let offset: Int
    let first: UInt64
  }

  package var state: RestoredSession
  /// Whether the session has ended for good.
  package private(set) var isClosed = false
  /// Whether the next write contains the whole state. If so, entries are not encoded.
  package var isBehind = false

  /// The encoded pushes and gaps.
  private var pushEntries = ByteQueue()
  /// The beginnings of rows in `pushEntries`.
  private var pushRows: [PushRow] = []
  /// The other encoded entries.
  private var changeEntries = ByteQueue()
  /// The beginnings of rows in `changeEntries`.
  private var changeRows: [Int] = []

  /// A row ends after the entry with which it reaches this size. SQLite's limit is 10⁹ bytes.
  static var rowBytes: Int { 1 << 20 }
  /// The cost of a row in addition to its entries, so that many small rows also cause a compaction.
  package static var rowOverhead: Int { 32 }
  /// A state is written again only after at least this many bytes of changes, so that the rewriting costs little.
  private static var minimumChangeBytes: Int { 4 << 20 }
  /// A larger buffer is freed after the write that needed it, since such a write is rare.
  private static var keptCapacity: Int { 1 << 20 }

  package init(_ state: RestoredSession) { self.state = state }

  // MARK: Entries

  /// Whether there are entries to write.
  package var hasEntries: Bool { !pushEntries.isEmpty || !changeEntries.isEmpty }

  /// Returns false if the entry does not follow the entries before it, which is a bug.
  package mutating func apply(_ entry: JournalEntry) -> Bool {
    switch entry {
    case .log(.push), .log(.gap):
      let first = state.log.nextPush
      guard state.apply(entry) else { return false }
      guard !isBehind else { return true }
      if pushEntries.count - (pushRows.last?.offset ?? -Self.rowBytes) >= Self.rowBytes {
        pushRows.append(PushRow(offset: pushEntries.count, first: first))
      }
      entry.append(to: &pushEntries)
    case .log(.trimmed): return state.apply(entry)
    case .closed: isClosed = true
    default:
      guard state.apply(entry) else { return false }
      if !isBehind { append(change: entry) }
    }
    return true
  }

  package mutating func append(change entry: JournalEntry) {
    if changeEntries.count - (changeRows.last ?? -Self.rowBytes) >= Self.rowBytes {
      changeRows.append(changeEntries.count)
    }
    entry.append(to: &changeEntries)
  }

  /// Begins a term. The upstream's messages since the end of the last term are missing, so a gap is recorded. The
  /// exception is an upstream that may restore the state of the last connection. With such an upstream, the session
  /// records the gap only when the upstream reports that it has not restored the state.
  package mutating func begin(term: UInt64, mayHaveLostEntries: Bool) -> Bool {
    let isNew = state.terms.isEmpty
    let start = JournalTerm(term: term, firstPush: state.log.nextPush, firstDelivery: state.outbox.nextDelivery)
    guard apply(.opened(start)) else { return false }
    state.mayHaveLostEntries = mayHaveLostEntries && !isNew
    return isNew || state.mayBeContinued || apply(.log(.gap(mayHaveLostEntries ? [.upstream, .store] : .upstream)))
  }

  /// Forgets the entries for the next write.
  package mutating func clear() {
    pushEntries.removeAll()
    pushRows.removeAll(keepingCapacity: true)
    changeEntries.removeAll()
    changeRows.removeAll(keepingCapacity: true)
    if isClosed { (pushRows, changeRows) = ([], []) }
    if isClosed || pushEntries.allocatedBytes > Self.keptCapacity { pushEntries.releaseStorage() }
    if isClosed || changeEntries.allocatedBytes > Self.keptCapacity { changeEntries.releaseStorage() }
  }

  // MARK: Writing

  /// Whether the entries of the state should replace all stored changes, because there are too many stored changes.
  ///
  /// - Parameters:
  ///   - changeBytes: the bytes of the stored rows of changes.
  ///   - stateBytes: the bytes of the stored state before those changes.
  package func needsCompaction(changeBytes: Int, stateBytes: Int) -> Bool {
    isBehind || changeBytes + changeEntries.count > max(Self.minimumChangeBytes, 2 * stateBytes)
  }

  /// Calls `body` with the rows of pushes to write, and their first and last numbers.
  package func forEachPushRow<Failure>(
    _ body: (borrowing ByteQueue, Range<Int>, _ first: UInt64, _ last: UInt64) throws(Failure) -> Void
  ) throws(Failure) {
    for (index, row) in pushRows.enumerated() {
      let next = index + 1 < pushRows.count ? pushRows[index + 1] : nil
      try body(
        pushEntries, row.offset..<(next?.offset ?? pushEntries.count), row.first,
        (next?.first ?? state.log.nextPush) - 1)
    }
  }

  /// Calls `body` with the rows of changes to write.
  package func forEachChangeRow<Failure>(
    _ body: (borrowing ByteQueue, Range<Int>) throws(Failure) -> Void
  ) throws(Failure) {
    for (index, start) in changeRows.enumerated() {
      try body(changeEntries, start..<(index + 1 < changeRows.count ? changeRows[index + 1] : changeEntries.count))
    }
  }

  /// Calls `body` with rows of all pushes and gaps after push `stored`, encoded from the state.
  ///
  /// - Parameter notesRetention: whether the first row begins with the entry `retained` if pushes after `stored` were
  ///   dropped. A reader of only these rows needs this entry, because the numbers of the pushes have a hole.
  package func forEachPushRow<Failure>(
    after stored: UInt64, notesRetention: Bool = false,
    _ body: (borrowing ByteQueue, Range<Int>, _ first: UInt64, _ last: UInt64) throws(Failure) -> Void
  ) throws(Failure) {
    var first = max(stored + 1, state.log.firstRetained)
    var next = state.log.firstRetained
    var bytes = ByteQueue()
    if notesRetention, stored + 1 < state.log.firstRetained {
      JournalEntry.log(.retained(state.log.retention)).append(to: &bytes)
    }
    for change in state.log.changes {
      if case .push(let push) = change {
        if push.number <= stored {
          next = push.number + 1
          continue
        }
      } else if next <= stored {
        // A gap after the last stored push may have new reasons, so it is written again.
        continue
      }
      if bytes.count >= Self.rowBytes {
        try body(bytes, 0..<bytes.count, first, next - 1)
        bytes.removeAll()
        first = next
      }
      if case .push(let push) = change { next = push.number + 1 }
      JournalEntry.log(change).append(to: &bytes)
    }
    if !bytes.isEmpty { try body(bytes, 0..<bytes.count, first, state.log.nextPush - 1) }
  }

  /// Calls `body` with the rows of the state without its pushes. These rows replace all earlier changes.
  package func forEachStateRow<Failure>(_ body: (borrowing ByteQueue) throws(Failure) -> Void) throws(Failure) {
    var bytes = ByteQueue()
    for entry in state.stateEntries {
      entry.append(to: &bytes)
      if bytes.count >= Self.rowBytes {
        try body(bytes)
        bytes.removeAll()
      }
    }
    if !bytes.isEmpty { try body(bytes) }
  }
}
