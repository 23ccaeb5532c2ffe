import ByteStreams
import Journal
import Reactor

/// Sessions as rows.
extension StoreFile {
  private typealias Failure = SQLiteDatabase.Failure

  /// What a transaction has changed, to be applied to the session once it is committed.
  struct Changes {
    var chunks: [StoredSession.Chunk] = []
    var droppedChunks = 0
    /// The new rows of `changes`.
    var rows: [Int64] = []
    /// Bytes of all new rows, and of those of `changes`.
    var bytes = 0
    var changeBytes = 0
    /// Whether the rows take the place of all others.
    var isState = false
    var storedPosition: UInt64 = 0
  }

  // MARK: Reading

  /// All sessions, as they were stored.
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
    var retained: [Int64: JournalEntry] = [:]
    var damage: String?
    var progress = ReadingProgress(self)
    try database.query("SELECT id, session, entries FROM changes ORDER BY id") { row in
      guard let session = sessions[row.integer(1)] else {
        damage = "row \(row.integer(0)) of 'changes' has no session"
        return false
      }
      let isWhole = row.withBytes(2) { bytes in
        session.changes.append(row.integer(0))
        // Counted when it is applied.
        progress.add(0)
        let cost = bytes.count + StoredSession.rowOverhead
        if row.integer(0) <= session.lastStateRow { session.stateBytes += cost } else { session.changeBytes += cost }
        return Self.read(bytes) { entry in
          if case .retained = entry { retained[session.id] = entry }
          return true
        }
      }
      if !isWhole { damage = "row \(row.integer(0)) of 'changes'" }
      return isWhole
    }
    if let damage { throw .refused(.damaged(damage)) }
    // Without what is known of dropped pushes, the first push would not follow.
    for (id, entry) in retained { _ = sessions[id]?.state.apply(entry) }
    try database.query("SELECT id, session, first, last, entries FROM pushes ORDER BY id") { row in
      guard let session = sessions[row.integer(1)] else {
        damage = "row \(row.integer(0)) of 'pushes' has no session"
        return false
      }
      session.chunks.append(StoredSession.Chunk(row: row.integer(0), last: UInt64(clamping: row.integer(3))))
      let isWhole = row.withBytes(4) { bytes in
        progress.add(bytes.count)
        return Self.read(bytes, from: UInt64(clamping: row.integer(2)), into: &session.state)
      }
      if !isWhole { damage = "row \(row.integer(0)) of 'pushes'" }
      return isWhole
    }
    if let damage { throw .refused(.damaged(damage)) }
    try applyChanges(to: sessions, &progress)
  }

  /// The rows are read a second time, after the pushes to which they refer: kept from the first, they would need several times the memory of the
  /// state that they lead to.
  private func applyChanges(
    to sessions: [Int64: StoredSession], _ progress: inout ReadingProgress
  ) throws(Failure) {
    var damage: String?
    try database.query("SELECT id, session, entries FROM changes ORDER BY id") { row in
      guard let session = sessions[row.integer(1)] else { return true }
      let follows = row.withBytes(2) { bytes in
        progress.add(bytes.count)
        return Self.read(bytes) { session.state.apply($0) }
      }
      if !follows { damage = "a change of session '\(session.name)' in row \(row.integer(0)) of 'changes'" }
      return follows
    }
    if let damage { throw .refused(.damaged(damage)) }
    for session in sessions.values { session.storedPosition = session.state.lastPosition }
  }

  /// Calls `body` with each entry. Returns false if the bytes are damaged, or `body` did.
  static func read(_ bytes: Span<UInt8>, _ body: (JournalEntry) -> Bool) -> Bool {
    var reader = JournalReader(bytes)
    do throws(JournalReader.Damaged) {
      while let entry = try reader.next() { if !body(entry) { return false } }
      return true
    } catch {
      return false
    }
  }

  /// Applies the entries of a row of `pushes`, except those that retention had dropped.
  private static func read(_ bytes: Span<UInt8>, from first: UInt64, into state: inout RestoredSession) -> Bool {
    var next = first
    return read(bytes) { entry in
      if case .push(let push) = entry {
        guard push.number == next else { return false }
        next += 1
        return push.number < state.nextPush || state.apply(entry)
      }
      guard case .gap = entry else { return false }
      // A gap before a dropped push was dropped with it.
      return next < state.nextPush || state.apply(entry)
    }
  }

  // MARK: Writing

  /// Writes what a session has submitted. Called within a transaction.
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
    result.storedPosition = session.state.lastPosition
    if session.isBehind { try writeMissingPushes(of: session, &result) } else { try writePushes(of: session, &result) }
    result.droppedChunks = session.droppedChunks
    for index in 0..<result.droppedChunks {
      try delete(session.chunks[session.chunks.front + index].row, from: "pushes")
    }
    if session.needsCompaction {
      for row in session.changes { try delete(row, from: "changes") }
      try writeState(of: session, &result)
    } else {
      if result.droppedChunks > 0 { session.append(change: .retained(session.state.retention)) }
      for (index, start) in session.changeRows.enumerated() {
        let end = index + 1 < session.changeRows.count ? session.changeRows[index + 1] : session.changeEntries.count
        try insertChanges(session.changeEntries, in: start..<end, of: session, &result)
      }
    }
    return result
  }

  /// Writes whether the configuration has a session.
  func writeUse(of session: StoredSession) throws(SQLiteDatabase.Failure) {
    let name = StoreSchema.Meta.unusedSince(session.id)
    if let time = session.unusedSince { try set(name, to: String(time)) } else { try removeMeta(name) }
  }

  /// Writes the pushes and gaps of the present commit.
  private func writePushes(of session: StoredSession, _ result: inout Changes) throws(SQLiteDatabase.Failure) {
    for (index, row) in session.pushRows.enumerated() {
      let next = index + 1 < session.pushRows.count ? session.pushRows[index + 1] : nil
      let range = row.offset..<(next?.offset ?? session.pushEntries.count)
      let last = (next?.first ?? session.state.nextPush) - 1
      try insertPushes(session.pushEntries, in: range, first: row.first, last: last, of: session, &result)
    }
  }

  /// Writes the pushes and gaps that are not stored, from the state: a commit has failed.
  private func writeMissingPushes(of session: StoredSession, _ result: inout Changes) throws(SQLiteDatabase.Failure) {
    let stored = session.storedPosition >> 1
    var first = max(stored + 1, session.state.firstRetained)
    var next = session.state.firstRetained
    var bytes = ByteQueue()
    for entry in session.state.pushEntries {
      if case .push(let push) = entry {
        if push.number <= stored {
          next = push.number + 1
          continue
        }
      } else if next <= stored {
        // A gap after the last stored push may have got another reason, so it is written again.
        continue
      }
      if bytes.count >= StoredSession.rowBytes {
        try insertPushes(bytes, in: 0..<bytes.count, first: first, last: next - 1, of: session, &result)
        bytes.removeAll()
        first = next
      }
      if case .push(let push) = entry { next = push.number + 1 }
      JournalCoder.append(entry, to: &bytes)
    }
    guard !bytes.isEmpty else { return }
    try insertPushes(bytes, in: 0..<bytes.count, first: first, last: session.state.nextPush - 1, of: session, &result)
  }

  /// Writes the state in place of all changes that led to it.
  private func writeState(of session: StoredSession, _ result: inout Changes) throws(SQLiteDatabase.Failure) {
    result.isState = true
    var bytes = ByteQueue()
    for entry in session.state.stateEntries {
      JournalCoder.append(entry, to: &bytes)
      if bytes.count >= StoredSession.rowBytes {
        try insertChanges(bytes, in: 0..<bytes.count, of: session, &result)
        bytes.removeAll()
      }
    }
    if !bytes.isEmpty { try insertChanges(bytes, in: 0..<bytes.count, of: session, &result) }
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
    result.changeBytes += range.count + StoredSession.rowOverhead
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

/// Reports the progress of a start that takes long.
private struct ReadingProgress {
  private let file: StoreFile
  private var bytes = 0
  private var next: MonotonicTime

  init(_ file: StoreFile) {
    self.file = file
    next = ProcessInformation.monotonicTime() + file.environment.readingInterval
  }

  mutating func add(_ count: Int) {
    bytes += count
    let now = ProcessInformation.monotonicTime()
    guard now >= next else { return }
    next = now + file.environment.readingInterval
    file.environment.isReading(file.path, bytes, file.bytes)
  }
}

extension StoredSession {
  /// The transaction is committed.
  func apply(_ changes: StoreFile.Changes) {
    isKnown = true
    isBehind = false
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

  /// Its rows are deleted.
  private func forget() {
    state = RestoredSession(epoch: state.epoch)
    chunks.removeAll()
    changes = []
  }
}
