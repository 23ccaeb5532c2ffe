import ByteStreams
import Inbox
import Journal
import Submissions

/// A session in the store: its state in memory, and the rows that represent it. Belongs to the thread of the store.
final class StoredSession {
  /// A row of `pushes`.
  struct Chunk {
    let row: Int64
    let last: UInt64
  }

  let id: Int64
  let name: String
  /// The number by which submitted items name the session. Set by the writer.
  var number: Int32 = 0
  var content: JournaledSession
  var state: RestoredSession {
    get { content.state }
    _modify { yield &content.state }
  }
  /// nil while no session of this name is running.
  weak var journal: QueuedJournal?
  let progress = JournalProgress(position: 0)
  /// When a start first found that the configuration lacks the session, in milliseconds since 1970. nil if the
  /// configuration had it at the last start.
  var unusedSince: Int64?

  // MARK: The stored rows

  /// Whether the row of `sessions` is stored.
  var isKnown = false
  var chunks = RingDeque(filler: Chunk(row: 0, last: 0))
  /// The rows of `changes`. The first rows represent a state, and have `stateBytes` bytes. The other rows have
  /// `changeBytes` bytes.
  var changes: [Int64] = []
  /// The value of the column `state` when the session was read.
  var lastStateRow: Int64 = 0
  var changeBytes = 0
  var stateBytes = 0
  /// The position after the last stored push or gap.
  var storedPosition: UInt64 = 0
  /// Whether the rows lack changes that precede the present commit, because an earlier commit has failed.
  var isBehind: Bool { content.isBehind }
  /// Whether an entry did not follow the entries before it, which is a bug. Later entries are not stored.
  var isFaulty = false
  /// Whether the session is part of the present commit.
  var isTouched = false
  var isClosed: Bool { content.isClosed }

  init(id: Int64, name: String, state: RestoredSession) {
    self.id = id
    self.name = name
    content = JournaledSession(state)
  }

  /// The number of rows of `pushes` whose pushes retention has dropped, with the gaps after them.
  var droppedChunks: Int {
    var count = 0
    while count < chunks.count, chunks[chunks.front + count].last + 1 < state.log.firstRetained { count += 1 }
    return count
  }

  var needsCompaction: Bool { content.needsCompaction(changeBytes: changeBytes, stateBytes: stateBytes) }

  /// Called when the rows no longer represent the state.
  func setBehind() {
    content.isBehind = true
    clear()
  }

  /// Forgets the entries of the present commit.
  func clear() {
    isTouched = false
    content.clear()
  }
}
