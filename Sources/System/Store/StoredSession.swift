import ByteStreams
import Journal

/// A session in the store: its state in memory, and which rows represent it. Belongs to the thread of the store.
///
/// The state is that after all entries that were taken from the queue, whether they are stored or not. If the file fails, it is written
/// anew from here. Pushes and payloads are shared with the session, so this costs references only.
final class StoredSession {
  /// A row of `pushes`.
  struct Chunk {
    let row: Int64
    let last: UInt64
  }

  let id: Int64
  let name: String
  var state: RestoredSession
  /// nil while no session of this name is running.
  weak var journal: StoreJournal?
  /// When a start first found that the configuration does not have the session, in milliseconds of UNIX time; nil: it had it at the last start.
  var unusedSince: Int64?

  // MARK: What is stored

  /// Whether the row of `sessions` is stored.
  var isKnown = false
  var chunks = RingDeque(filler: Chunk(row: 0, last: 0))
  /// The rows of `changes`. The first ones, of `stateBytes`, are those of a state, and the others have `changeBytes`.
  var changes: [Int64] = []
  /// As it was read.
  var lastStateRow: Int64 = 0
  var changeBytes = 0
  var stateBytes = 0
  /// The position after the last push or gap that is stored.
  var storedPosition: UInt64 = 0
  /// Whether the rows do not represent the state before the present commit: a commit has failed.
  var isBehind = false
  /// Whether an entry did not follow those before, which is a fault of the program. Nothing after it is stored.
  var isFaulty = false

  // MARK: The present commit

  /// Whether it is part of the commit.
  var isTouched = false
  var isClosed = false
  /// The entries of pushes and gaps.
  var pushEntries = ByteQueue()
  /// Where rows begin in them: offset, and the number of the first push at or after it.
  var pushRows: [(offset: Int, first: UInt64)] = []
  /// The other entries.
  var changeEntries = ByteQueue()
  /// Where rows begin in them.
  var changeRows: [Int] = []

  /// A row ends after the entry with which it has this size. SQLite's limit is 10⁹ bytes.
  static var rowBytes: Int { 1 << 20 }
  /// What a row costs besides its entries, so that many small rows are replaced by the state too.
  static var rowOverhead: Int { 32 }

  init(id: Int64, name: String, state: RestoredSession) {
    self.id = id
    self.name = name
    self.state = state
  }

  /// Returns false if the entry cannot follow those before, which is a fault of the program.
  func apply(_ entry: JournalEntry) -> Bool {
    switch entry {
    case .push, .gap:
      let first = state.nextPush
      guard state.apply(entry) else { return false }
      guard !isBehind else { return true }
      if pushEntries.count - (pushRows.last?.offset ?? -Self.rowBytes) >= Self.rowBytes {
        pushRows.append((pushEntries.count, first))
      }
      JournalCoder.append(entry, to: &pushEntries)
    case .trimmed: return state.apply(entry)
    case .closed: isClosed = true
    default:
      guard state.apply(entry) else { return false }
      if !isBehind { append(change: entry) }
    }
    return true
  }

  func append(change entry: JournalEntry) {
    if changeEntries.count - (changeRows.last ?? -Self.rowBytes) >= Self.rowBytes {
      changeRows.append(changeEntries.count)
    }
    JournalCoder.append(entry, to: &changeEntries)
  }

  /// Begins a term. What the upstream has sent since the end of the last one is missing, unless it may restore the state of the last
  /// connection: then the session records the gap when the upstream has said that it does not.
  func begin(term: UInt64, mayHaveLostEntries: Bool) -> Bool {
    let isNew = state.terms.isEmpty
    let start = JournalTerm(term: term, firstPush: state.nextPush, firstDelivery: state.nextDelivery)
    guard apply(.opened(start)) else { return false }
    state.mayHaveLostEntries = mayHaveLostEntries && !isNew
    return isNew || state.mayBeContinued || apply(.gap(mayHaveLostEntries ? [.upstream, .store] : .upstream))
  }

  /// The number of rows of `pushes` whose pushes retention has dropped, and the gaps after them.
  var droppedChunks: Int {
    var count = 0
    while count < chunks.count, chunks[chunks.front + count].last + 1 < state.firstRetained { count += 1 }
    return count
  }

  /// Whether the entries of the state take the place of all others: there are too many of those.
  var needsCompaction: Bool {
    isBehind || changeBytes + changeEntries.count > max(Self.minimumChangeBytes, 2 * stateBytes)
  }

  /// A state is at most written anew after this many bytes of changes, so that both together cost little.
  private static var minimumChangeBytes: Int { 4 << 20 }

  /// Forgets the entries of the present commit.
  func clear() {
    isTouched = false
    pushEntries.removeAll()
    pushRows.removeAll(keepingCapacity: true)
    changeEntries.removeAll()
    changeRows.removeAll(keepingCapacity: true)
    if pushEntries.allocatedBytes > Self.keptCapacity { pushEntries.releaseStorage() }
    if changeEntries.allocatedBytes > Self.keptCapacity { changeEntries.releaseStorage() }
  }

  /// A larger buffer was needed by an exceptional commit only.
  private static var keptCapacity: Int { 1 << 20 }
}
