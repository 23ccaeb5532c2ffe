import ByteStreams
import Journal

/// Sessions as rows.
extension StoreFile {
  private typealias Failure = SQLiteDatabase.Failure

  /// What a transaction has changed, to be applied to the session once it is committed.
  struct Changes {
    var chunk: StoredSession.Chunk?
    var droppedChunks = 0
    /// The new row of `changes` and its bytes.
    var row: Int64?
    var bytes = 0
    /// Whether the row takes the place of all others.
    var isState = false
    var storedPosition: UInt64 = 0
  }

  // MARK: Reading

  /// All sessions, as they were stored.
  func sessions() throws(StoreError) -> [StoredSession] {
    do throws(Failure) {
      var found: [StoredSession] = []
      try database.query("SELECT id, name, epoch FROM sessions ORDER BY id") { row in
        let state = RestoredSession(epoch: UInt64(bitPattern: row.integer(2)))
        found.append(StoredSession(id: row.integer(0), name: row.text(1), state: state))
        return true
      }
      var byID: [Int64: StoredSession] = [:]
      for session in found {
        session.isKnown = true
        byID[session.id] = session
      }
      try read(into: byID)
      return found
    } catch {
      throw Self.storeError(error, path)
    }
  }

  private func read(into sessions: [Int64: StoredSession]) throws(Failure) {
    var changes: [Int64: [JournalEntry]] = [:]
    var damage: String?
    try database.query("SELECT id, session, entries FROM changes ORDER BY id") { row in
      guard let session = sessions[row.integer(1)] else {
        damage = "row \(row.integer(0)) of 'changes' has no session"
        return false
      }
      let isWhole = row.withBytes(2) { bytes in
        session.changes.append(row.integer(0))
        session.changeBytes += bytes.count
        return Self.read(bytes) {
          changes[session.id, default: []].append($0)
          return true
        }
      }
      if !isWhole { damage = "row \(row.integer(0)) of 'changes'" }
      return isWhole
    }
    if let damage { throw .refused(.damaged(damage)) }
    for session in sessions.values {
      // Without what is known of dropped pushes, the first push would not follow.
      for entry in changes[session.id, default: []].reversed() {
        guard case .retained = entry else { continue }
        _ = session.state.apply(entry)
        break
      }
    }
    try database.query("SELECT id, session, first, last, entries FROM pushes ORDER BY id") { row in
      guard let session = sessions[row.integer(1)] else {
        damage = "row \(row.integer(0)) of 'pushes' has no session"
        return false
      }
      session.chunks.append(StoredSession.Chunk(row: row.integer(0), last: UInt64(clamping: row.integer(3))))
      let isWhole = row.withBytes(4) { Self.read($0, from: UInt64(clamping: row.integer(2)), into: &session.state) }
      if !isWhole { damage = "row \(row.integer(0)) of 'pushes'" }
      return isWhole
    }
    if let damage { throw .refused(.damaged(damage)) }
    for session in sessions.values {
      for (index, entry) in changes[session.id, default: []].enumerated() where !session.state.apply(entry) {
        throw .refused(.damaged("change \(index + 1) of session '\(session.name)'"))
      }
      session.storedPosition = session.state.lastPosition
    }
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
      try database.run("INSERT INTO sessions VALUES (?, ?, ?)") { statement throws(Failure) in
        try statement.bind(1, session.id)
        try statement.bind(2, session.name)
        try statement.bind(3, Int64(bitPattern: session.state.epoch))
      }
    }
    if session.isBehind { session.catchUp() }
    result.storedPosition = session.state.lastPosition
    if !session.pushEntries.isEmpty {
      let last = session.state.nextPush - 1
      try database.run(
        "INSERT INTO pushes (session, first, last, entries) VALUES (?, ?, ?, ?)", session.id,
        Int64(session.firstPush), Int64(last), bytes: session.pushEntries)
      result.chunk = StoredSession.Chunk(row: database.lastRow, last: last)
    }
    result.droppedChunks = session.droppedChunks
    for index in 0..<result.droppedChunks {
      try delete(session.chunks[session.chunks.front + index].row, from: "pushes")
    }
    if session.needsCompaction {
      session.changeEntries.removeAll()
      for entry in session.state.stateEntries { JournalCoder.append(entry, to: &session.changeEntries) }
      for row in session.changes { try delete(row, from: "changes") }
      result.isState = true
    } else if result.droppedChunks > 0 {
      JournalCoder.append(.retained(session.state.retention), to: &session.changeEntries)
    }
    guard !session.changeEntries.isEmpty else { return result }
    try database.run(
      "INSERT INTO changes (session, entries) VALUES (?, ?)", session.id, bytes: session.changeEntries)
    result.row = database.lastRow
    result.bytes = session.changeEntries.count
    return result
  }

  private func delete(_ row: Int64, from table: String) throws(SQLiteDatabase.Failure) {
    try database.run("DELETE FROM \(table) WHERE id = ?") { statement throws(Failure) in try statement.bind(1, row) }
  }

  private func remove(_ session: StoredSession) throws(SQLiteDatabase.Failure) {
    for index in session.chunks.front..<session.chunks.end { try delete(session.chunks[index].row, from: "pushes") }
    for row in session.changes { try delete(row, from: "changes") }
    try delete(session.id, from: "sessions")
  }
}

extension StoredSession {
  /// Takes the pushes and gaps that are not stored from the state, after a commit has failed.
  fileprivate func catchUp() {
    pushEntries.removeAll()
    let stored = storedPosition >> 1
    firstPush = max(stored + 1, state.firstRetained)
    var next = state.firstRetained
    for entry in state.pushEntries {
      if case .push(let push) = entry {
        next = push.number + 1
        if push.number <= stored { continue }
      } else if next <= stored {
        continue
      }
      // A gap after the last stored push may have got another reason.
      JournalCoder.append(entry, to: &pushEntries)
    }
  }

  /// The transaction is committed.
  func apply(_ changes: StoreFile.Changes) {
    isKnown = true
    isBehind = false
    for _ in 0..<changes.droppedChunks { chunks.removeFirst() }
    if let chunk = changes.chunk { chunks.append(chunk) }
    if changes.isState {
      self.changes = []
      changeBytes = 0
      stateBytes = changes.bytes
    }
    if let row = changes.row { self.changes.append(row) }
    if !changes.isState { changeBytes += changes.bytes }
    storedPosition = changes.storedPosition
  }
}
