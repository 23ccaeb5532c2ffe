import ByteStreams
import Host
import Inbox
import Journal

/// Reads sessions from rows, and writes sessions to rows.
extension StoreFile {
  private typealias Failure = SQLiteDatabase.Failure

  /// The rows that a transaction has changed. They are applied to the session after the commit.
  struct Changes {
    var chunks: [StoredSession.Chunk] = []
    var droppedChunks = 0
    /// The new rows in `changes`.
    var rows: [Int64] = []
    /// The bytes of all new rows, and of the new rows in `changes`.
    var bytes = 0
    var changeBytes = 0
    /// Whether the new rows replace all other rows in `changes`.
    var isState = false
    var storedPosition: UInt64 = 0
  }

  // MARK: Reading

  /// Returns all stored sessions.
  func sessions() throws(StoreError) -> [StoredSession] {
    do throws(Failure) {
      var found: [StoredSession] = []
      try database.query("SELECT id, name, epoch, state FROM sessions ORDER BY id") { row in
        let state = RestoredSession(epoch: UInt64(bitPattern: row.integer(2)))
        let session = StoredSession(id: row.integer(0), name: row.text(1), state: state)
        session.lastStateRow = row.integer(3)
        found.append(session)
        return true
      }
      var byID: [Int64: StoredSession] = [:]
      for session in found {
        session.isKnown = true
        session.unusedSince = try meta(StoreSchema.Meta.unusedSince(session.id)).flatMap { Int64($0) }
        byID[session.id] = session
      }
      try read(into: byID)
      return found
    } catch {
      throw Self.storeError(error, path)
    }
  }

  private func read(into sessions: [Int64: StoredSession]) throws(Failure) {
    var restorations = sessions.mapValues { SessionRestoration(epoch: $0.state.epoch) }
    var damage: String?
    var progress = ReadingProgress(self)
    try database.query("SELECT id, session, entries FROM changes ORDER BY id") { row in
      guard let session = sessions[row.integer(1)] else {
        damage = "row \(row.integer(0)) of 'changes' has no session"
        return false
      }
      let isWhole = row.withBytes(2) { bytes in
        session.changes.append(row.integer(0))
        // The bytes of the row are counted when the row is applied.
        progress.add(0)
        let cost = bytes.count + JournaledSession.rowOverhead
        if row.integer(0) <= session.lastStateRow { session.stateBytes += cost } else { session.changeBytes += cost }
        return restorations[session.id]?.examine(changes: bytes) == true
      }
      if !isWhole { damage = "row \(row.integer(0)) of 'changes'" }
      return isWhole
    }
    if let damage { throw .refused(.damaged(damage)) }
    try database.query("SELECT id, session, first, last, entries FROM pushes ORDER BY id") { row in
      guard let session = sessions[row.integer(1)] else {
        damage = "row \(row.integer(0)) of 'pushes' has no session"
        return false
      }
      session.chunks.append(StoredSession.Chunk(row: row.integer(0), last: UInt64(clamping: row.integer(3))))
      let isWhole = row.withBytes(4) { bytes in
        progress.add(bytes.count)
        return restorations[session.id]?.add(pushes: bytes, from: UInt64(clamping: row.integer(2))) == true
      }
      if !isWhole { damage = "row \(row.integer(0)) of 'pushes'" }
      return isWhole
    }
    if let damage { throw .refused(.damaged(damage)) }
    try applyChanges(to: &restorations, of: sessions, &progress)
    for (id, restoration) in restorations {
      sessions[id]?.state = restoration.state
      sessions[id]?.storedPosition = restoration.state.log.lastPosition
    }
  }

  private func applyChanges(
    to restorations: inout [Int64: SessionRestoration], of sessions: [Int64: StoredSession],
    _ progress: inout ReadingProgress
  ) throws(Failure) {
    var damage: String?
    try database.query("SELECT id, session, entries FROM changes ORDER BY id") { row in
      let follows = row.withBytes(2) { bytes in
        progress.add(bytes.count)
        return restorations[row.integer(1)]?.apply(changes: bytes) != false
      }
      if !follows {
        let name = sessions[row.integer(1)]?.name ?? ""
        damage = "a change of session '\(name)' in row \(row.integer(0)) of 'changes'"
      }
      return follows
    }
    if let damage { throw .refused(.damaged(damage)) }
  }

  // MARK: Writing

  /// Writes the submitted entries of a session. Called within a transaction.
  func write(_ session: StoredSession) throws(SQLiteDatabase.Failure) -> Changes {
    var result = Changes()
    if session.isClosed {
      try remove(session)
      return result
    }
    if !session.isKnown {
      try database.run("INSERT INTO sessions VALUES (?, ?, ?, 0)") { statement throws(Failure) in
        try statement.bind(1, session.id)
        try statement.bind(2, session.name)
        try statement.bind(3, Int64(bitPattern: session.state.epoch))
      }
      if session.unusedSince != nil { try writeUse(of: session) }
    }
    result.storedPosition = session.state.log.lastPosition
    func insert(_ bytes: borrowing ByteQueue, in range: Range<Int>, first: UInt64, last: UInt64) throws(Failure) {
      try insertPushes(bytes, in: range, first: first, last: last, of: session, &result)
    }
    if session.isBehind {
      try session.content.forEachPushRow(after: session.storedPosition >> 1, insert)
    } else {
      try session.content.forEachPushRow(insert)
    }
    result.droppedChunks = session.droppedChunks
    for index in 0..<result.droppedChunks {
      try delete(session.chunks[session.chunks.front + index].row, from: "pushes")
    }
    if session.needsCompaction {
      for row in session.changes { try delete(row, from: "changes") }
      try writeState(of: session, &result)
    } else {
      if result.droppedChunks > 0 { session.content.append(change: .log(.retained(session.state.log.retention))) }
      try session.content.forEachChangeRow { bytes, range throws(Failure) in
        try insertChanges(bytes, in: range, of: session, &result)
      }
    }
    return result
  }

  /// Stores the time since which the configuration lacks the session, or removes this time if the configuration has the
  /// session.
  func writeUse(of session: StoredSession) throws(SQLiteDatabase.Failure) {
    let name = StoreSchema.Meta.unusedSince(session.id)
    if let time = session.unusedSince { try set(name, to: String(time)) } else { try removeMeta(name) }
  }

  /// Writes the state, which replaces all stored changes.
  private func writeState(of session: StoredSession, _ result: inout Changes) throws(SQLiteDatabase.Failure) {
    result.isState = true
    try session.content.forEachStateRow { bytes throws(Failure) in
      try insertChanges(bytes, in: 0..<bytes.count, of: session, &result)
    }
    let last = result.rows.last ?? 0
    try database.run("UPDATE sessions SET state = ? WHERE id = ?") { statement throws(Failure) in
      try statement.bind(1, last)
      try statement.bind(2, session.id)
    }
  }

  private func insertPushes(
    _ bytes: borrowing ByteQueue, in range: Range<Int>, first: UInt64, last: UInt64, of session: StoredSession,
    _ result: inout Changes
  ) throws(SQLiteDatabase.Failure) {
    try database.run(
      "INSERT INTO pushes (session, first, last, entries) VALUES (?, ?, ?, ?)", session.id, Int64(first), Int64(last),
      bytes: bytes, in: range)
    result.chunks.append(StoredSession.Chunk(row: database.lastRow, last: last))
    result.bytes += range.count
  }

  private func insertChanges(
    _ bytes: borrowing ByteQueue, in range: Range<Int>, of session: StoredSession, _ result: inout Changes
  ) throws(SQLiteDatabase.Failure) {
    try database.run("INSERT INTO changes (session, entries) VALUES (?, ?)", session.id, bytes: bytes, in: range)
    result.rows.append(database.lastRow)
    result.bytes += range.count
    result.changeBytes += range.count + JournaledSession.rowOverhead
  }

  private func delete(_ row: Int64, from table: String) throws(SQLiteDatabase.Failure) {
    try database.run("DELETE FROM \(table) WHERE id = ?") { statement throws(Failure) in try statement.bind(1, row) }
  }

  private func remove(_ session: StoredSession) throws(SQLiteDatabase.Failure) {
    for index in session.chunks.front..<session.chunks.end { try delete(session.chunks[index].row, from: "pushes") }
    for row in session.changes { try delete(row, from: "changes") }
    try delete(session.id, from: "sessions")
    try removeMeta(StoreSchema.Meta.unusedSince(session.id))
  }
}

/// Reports the progress of a long start.
private struct ReadingProgress {
  private let file: StoreFile
  private var bytes = 0
  private var next: MonotonicTime

  init(_ file: StoreFile) {
    self.file = file
    next = ProcessInformation.monotonicTime() + file.environment.progressInterval
  }

  mutating func add(_ count: Int) {
    bytes += count
    let now = ProcessInformation.monotonicTime()
    guard now >= next else { return }
    next = now + file.environment.progressInterval
    file.environment.isReading(file.path, bytes, file.bytes)
  }
}

extension StoredSession {
  /// Called after the transaction was committed.
  func apply(_ changes: StoreFile.Changes) {
    isKnown = true
    content.isBehind = false
    guard !isClosed else { return forget() }
    for _ in 0..<changes.droppedChunks { chunks.removeFirst() }
    for chunk in changes.chunks { chunks.append(chunk) }
    if changes.isState {
      self.changes = changes.rows
      changeBytes = 0
      stateBytes = changes.changeBytes
    } else {
      self.changes += changes.rows
      changeBytes += changes.changeBytes
    }
    storedPosition = changes.storedPosition
  }

  /// Called after the rows of the session were deleted.
  private func forget() {
    state = RestoredSession(epoch: state.epoch)
    chunks = RingDeque(filler: Chunk(row: 0, last: 0))
    changes = []
  }
}
