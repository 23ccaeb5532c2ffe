import ByteStreams
import Inbox
import Journal
import Replication
import Submissions

/// A session whose holder is this gateway: its state, its writes, and its journal. Used only on the loop of the store.
final class LocalSession {
  /// A write takes submissions until it has this many bytes. The size is limited, since the changes of a write become
  /// one entry of a stream, and an entry is read as a whole.
  private static var writeBytes: Int { 8 << 20 }

  let name: String
  var tenure: Tenure
  private(set) var content: JournaledSession
  private(set) var backlog = SessionBacklog()

  /// The write whose outcome is not known; nil if there is none.
  private(set) var write: SessionWrite?
  /// Writes that are stored but not confirmed, so that a failover may lose them.
  private var unconfirmed: [SessionWrite] = []
  /// The entry that is the last in the stream of pushes once `write` is stored.
  private(set) var lastPush: PushEntryID
  /// The bytes of the stored state, and of the changes that were stored after it.
  private var stateBytes: Int
  private var changeBytes: Int
  /// The first push that the stream keeps once `write` is stored.
  private var firstKept: UInt64 = 1

  // MARK: The present term

  /// The number of the journal in the queue.
  let index: Int32
  private let progress: JournalProgress
  let journal: QueuedJournal
  /// Entries with this ticket or a later ticket are not stored, because the term has ended.
  private var endTicket = UInt64.max
  /// Whether this gateway was reported to the delegate as the holder.
  var isReported = false
  /// Whether the gateway gives the session up, and does not acquire it again after the release.
  var isLeaving = false
  /// Whether an entry did not follow the entries before it, which is a bug.
  private(set) var isFaulty = false
  /// Whether the beginning of the term is stored and confirmed.
  private(set) var isBegun = false
  /// The replacement of the stored state in progress; nil if there is none.
  var replacement: StateReplacement?
  /// A replacement that waits for its turn: its number, and the record of the session in Redis.
  var plannedState: (number: UInt64, record: SharedRecord)?

  init(
    _ name: String, _ tenure: Tenure, _ content: consuming JournaledSession,
    lastPush: PushEntryID,
    stateBytes: Int, changeBytes: Int, index: Int32, _ queue: SubmissionQueue
  ) {
    self.name = name
    self.tenure = tenure
    self.lastPush = lastPush
    self.stateBytes = stateBytes
    self.changeBytes = changeBytes
    self.index = index
    progress = JournalProgress(position: content.state.log.lastPosition)
    journal = QueuedJournal(queue, session: index, progress, isShared: true)
    self.content = content
  }

  /// Creates the same session in its next term, with a new journal.
  init(continuing last: LocalSession, index: Int32, _ queue: SubmissionQueue) {
    name = last.name
    tenure = last.tenure
    lastPush = last.lastPush
    stateBytes = last.stateBytes
    changeBytes = last.changeBytes
    firstKept = last.firstKept
    unconfirmed = last.unconfirmed
    isLeaving = last.isLeaving
    self.index = index
    content = JournaledSession(last.content.state)
    progress = JournalProgress(position: content.state.log.lastPosition)
    journal = QueuedJournal(queue, session: index, progress, isShared: true)
  }

  var opened: OpenedJournal { OpenedJournal(journal: journal, restored: content.state) }

  /// Begins the term of `tenure`. Returns false if the stored terms do not allow this term, which means that the
  /// session is damaged.
  func begin(mayHaveLostEntries: Bool) -> Bool {
    content.begin(term: tenure.token.term.value, mayHaveLostEntries: mayHaveLostEntries)
  }

  // MARK: Entries

  /// Whether there are entries that no write contains yet.
  var hasEntries: Bool { !backlog.isEmpty || content.hasEntries }

  var needsCompaction: Bool { content.needsCompaction(changeBytes: changeBytes, stateBytes: stateBytes) }

  /// Returns false if the entry is not stored, because the term had ended before it was submitted or the session is
  /// faulty.
  func take(_ item: SubmissionBatch.Item, _ ticket: UInt64) -> Bool {
    guard ticket < endTicket, !isFaulty else { return false }
    backlog.append(item, ticket)
    return true
  }

  /// Ends the term: later entries are not stored.
  ///
  /// - Parameter ticket: the ticket of the last entry that was submitted.
  func endTerm(after ticket: UInt64) {
    endTicket = min(endTicket, ticket + 1)
    progress.lose(from: endTicket)
    isReported = false
    journal.notify()
  }

  // MARK: Writes

  /// Returns the write with this number. Makes it from pending entries if it does not exist.
  func prepareBatch(number: UInt64) -> SessionWrite {
    if let write, write.number == number { return write }
    var (cost, bytes) = (0, 0)
    while bytes < Self.writeBytes, apply(&cost, &bytes) {}
    let first = content.state.log.firstRetained
    let drops = first > firstKept
    if drops {
      firstKept = first
      content.append(change: .log(.retained(content.state.log.retention)))
    }
    var made = SessionWrite(
      number: number, progress: progress, journal: journal, lastTicket: backlog.lastTicket,
      position: content.state.log.lastPosition, cost: cost)
    // An entry with the gap before the oldest kept push has the number of the push before the gap. This entry must be
    // kept, too.
    if drops { made.firstKept = first - 1 }
    content.forEachPushRow { [self] bytes, range, _, last in
      made.pushes.append(row(bytes.bytes.extracting(range), last: last))
    }
    var changes = ByteQueue()
    content.forEachChangeRow { bytes, range in changes.append(bytes.bytes.extracting(range)) }
    if !changes.isEmpty { made.changes = [changes.copyBytes()] }
    content.clear()
    write = made
    return made
  }

  /// Makes a write of the whole state, with all pushes after the last push that is stored.
  func prepareState(number: UInt64, after last: PushEntryID) -> SessionWrite {
    var (cost, bytes) = (write?.cost ?? 0, 0)
    while apply(&cost, &bytes) {}
    content.clear()
    var made = SessionWrite(
      number: number, progress: progress, journal: journal, lastTicket: backlog.lastTicket,
      position: content.state.log.lastPosition, cost: cost)
    made.isState = true
    lastPush = last
    content.forEachPushRow(after: last.push, notesRetention: true) { [self] bytes, range, _, last in
      made.pushes.append(row(bytes.bytes.extracting(range), last: last))
    }
    content.forEachStateRow { made.changes.append($0.copyBytes()) }
    write = made
    return made
  }

  /// Applies the entries of the next submission. Returns false if there are none.
  private func apply(_ cost: inout Int, _ bytes: inout Int) -> Bool {
    while let item = backlog.next() {
      cost += item.entry.cost
      bytes += item.entry.cost
      if !isFaulty, !content.apply(item.entry) { isFaulty = true }
      if item.endsCall { return true }
    }
    return false
  }

  private func row(_ bytes: Span<UInt8>, last: UInt64) -> LogRow {
    let isNew = last > lastPush.push
    lastPush = PushEntryID(push: last, count: isNew ? 0 : lastPush.count + 1)
    return LogRow(id: lastPush, bytes: [UInt8](copying: bytes))
  }

  /// Call this after each report to `tenure`. Returns the cost of the newly confirmed entries, which a failover cannot
  /// lose, and the journals to which they were submitted.
  func takeStored() -> (cost: Int, changed: [QueuedJournal]) {
    if let stored = write, tenure.sequence == stored.number {
      if stored.isState {
        (stateBytes, changeBytes) = (stored.changeBytes, 0)
      } else {
        changeBytes += stored.changeBytes
      }
      // Keeps the write without its contents, which are no longer needed.
      unconfirmed.append(
        SessionWrite(
          number: stored.number, progress: stored.progress, journal: stored.journal, lastTicket: stored.lastTicket,
          position: stored.position, cost: stored.cost))
      write = nil
    }
    var cost = 0
    var changed: [QueuedJournal] = []
    while let first = unconfirmed.first, tenure.confirmed >= first.number {
      unconfirmed.removeFirst()
      cost += first.cost
      if first.progress === progress { isBegun = true }
      first.progress.setStored(through: first.lastTicket, position: first.position)
      if changed.last !== first.journal { changed.append(first.journal) }
    }
    return (cost, changed)
  }

  /// Called when the session is lost: nothing more is stored. Returns the cost of all entries that are not confirmed.
  func abandon() -> Int {
    let cost = backlog.cost + (write?.cost ?? 0) + unconfirmed.reduce(0) { $0 + $1.cost }
    endTicket = 0
    isReported = false
    let writes = unconfirmed + (write.map { [$0] } ?? [])
    progress.loseUnstored()
    for write in writes { write.progress.loseUnstored() }
    (backlog, write, unconfirmed) = (SessionBacklog(), nil, [])
    journal.notify()
    for write in writes where write.journal !== journal { write.journal.notify() }
    return cost
  }
}
