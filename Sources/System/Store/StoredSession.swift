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

  // MARK: What is stored

  /// Whether the row of `sessions` is stored.
  var isKnown = false
  var chunks = RingDeque(filler: Chunk(row: 0, last: 0))
  /// The rows of `changes`, and their bytes. The first ones, of `stateBytes`, are those of a state.
  var changes: [Int64] = []
  var changeBytes = 0
  var stateBytes = 0
  /// The position after the last push or gap that is stored.
  var storedPosition: UInt64 = 0
  /// Whether the rows do not represent the state before the present commit: a commit has failed.
  var isBehind = false

  // MARK: The present commit

  /// Whether it is part of the commit.
  var isTouched = false
  var isClosed = false
  /// The entries of pushes and gaps, and the position before them.
  var pushEntries = ByteQueue()
  var firstPush: UInt64 = 0
  /// The other entries.
  var changeEntries = ByteQueue()

  init(id: Int64, name: String, state: RestoredSession) {
    self.id = id
    self.name = name
    self.state = state
  }

  /// Returns false if the entry cannot follow those before, which is a fault of the program.
  func apply(_ entry: JournalEntry) -> Bool {
    switch entry {
    case .push, .gap:
      if pushEntries.isEmpty { firstPush = state.nextPush }
      guard state.apply(entry) else { return false }
      if !isBehind { JournalCoder.append(entry, to: &pushEntries) }
    case .trimmed: return state.apply(entry)
    case .closed: isClosed = true
    default:
      guard state.apply(entry) else { return false }
      if !isBehind { JournalCoder.append(entry, to: &changeEntries) }
    }
    return true
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
    changeEntries.removeAll()
    if pushEntries.allocatedBytes > Self.keptCapacity { pushEntries.releaseStorage() }
    if changeEntries.allocatedBytes > Self.keptCapacity { changeEntries.releaseStorage() }
  }

  /// A larger buffer was needed by an exceptional commit only.
  private static var keptCapacity: Int { 1 << 20 }
}
