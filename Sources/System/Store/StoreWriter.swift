import ByteStreams
import Glibc
import Host
import Inbox
import Journal
import Logging
import Submissions
import Synchronization
import Threading

/// Stores the submitted entries. Runs on the thread of the store, which alone uses the file.
final class StoreWriter {
  /// The write-ahead log is copied to the database when it has this many bytes. A copy of this size takes some 10 ms.
  private static var checkpointBytes: Int { 4 << 20 }
  /// The log is copied after this time without entries, so that it is empty if the process is killed later.
  private static var idleTime: TimeSpan { .seconds(1) }
  /// The longest time that a commit stays unsynchronised with `sync: interval`.
  private static var syncInterval: TimeSpan { .seconds(1) }
  /// How long to wait after a failure before the next attempt.
  static var retryInterval: TimeSpan { .seconds(5) }
  /// With fewer waiting clients than this, a synchronisation does not wait for more clients: the wait would cost these
  /// clients more than it saves.
  private static var minimumCompany: Int { 8 }
  /// Maximum wait for more clients, even with a slow disk.
  private static var companyWait: TimeSpan { .milliseconds(2) }

  let store: Store
  var file: StoreFile?
  /// All sessions whose end is not stored yet, by the session numbers in the submitted items.
  private(set) var sessions: [Int32: StoredSession] = [:]
  private var named: [String: StoredSession] = [:]
  private var nextNumber: Int32 = 0
  private var nextID: Int64
  let term: UInt64
  let environment: StoreFile.Environment
  /// Kept while a failed file is replaced.
  var lock: StoreLock

  private let batch = SubmissionBatch()
  private var touched: [StoredSession] = []
  /// All entries up to this ticket are stored.
  private var published: UInt64 = 0
  private var unsyncedSince: MonotonicTime?
  private var idleSince: MonotonicTime?
  /// Until this time the writer checks the queue by itself, so that loops need not wake it for notes
  /// (`SessionJournal.note`).
  private var attentiveUntil = MonotonicTime.zero
  private(set) var retryAt: MonotonicTime?
  /// The log is not copied before this time, because the last copy found no room.
  private var nextCheckpoint = MonotonicTime.zero
  private var syncCount = 0
  /// The last synchronisation with `sync: always`, if it has just ended. `waiters` is the number of clients that waited
  /// at its end, for this synchronisation or for the next.
  private var lastSync: (end: MonotonicTime, duration: TimeSpan, waiters: Int)?

  /// The kind of a failure, which decides how to recover.
  enum Failure: Error {
    /// The disk is full. The file has not changed.
    case full(SQLiteDatabase.Failure)
    /// The content of the file is unknown.
    case broken(SQLiteDatabase.Failure)

    init(_ failure: SQLiteDatabase.Failure) { self = failure.isFull ? .full(failure) : .broken(failure) }
  }

  init(_ store: Store, _ file: StoreFile, _ opening: StoreOpening) {
    self.store = store
    self.file = file
    term = opening.term
    environment = file.environment
    lock = file.lock
    nextID = (opening.sessions.map(\.id).max() ?? 0) + 1
    for session in opening.sessions { add(session) }
  }

  // MARK: The loop

  /// Runs until the store is closed.
  func run() {
    var isAwake = true
    while true {
      waitForCompany()
      let now = ProcessInformation.monotonicTime()
      let recovers = retryAt.map { $0 <= now } ?? false
      let next = store.submissions.take(
        into: batch, isDue: !isAwake, attentiveUntil: attentiveUntil, now: now, recovers: recovers)
      isAwake = true
      if !batch.isEmpty {
        idleSince = nil
        attentiveUntil = now + environment.noteDelay
        store.metrics.beginWriting(at: now)
        process(recovers: recovers)
        store.metrics.endWriting()
      } else if batch.isClosing {
        return end()
      } else {
        store.metrics.beginWriting(at: now)
        if recovers { recover() } else { performDueWork() }
        store.metrics.endWriting()
        isAwake = store.sleep(until: min(next, nextDeadline()))
      }
    }
  }

  /// Waits a moment if fewer clients wait than at the last synchronisation, since the clients that have just got their
  /// responses are about to submit again. Without this wait, clients that happen to form two groups stay in two groups,
  /// and each group needs its own synchronisations.
  private func waitForCompany() {
    guard let sync = lastSync.take(), sync.waiters >= Self.minimumCompany else { return }
    let count = store.submissions.awaited
    if count == 0 {
      lastSync = sync
      return
    }
    guard count < sync.waiters, ProcessInformation.monotonicTime() < sync.end + sync.duration else { return }
    usleep(UInt32(clamping: min(sync.duration / 4, Self.companyWait).nanoseconds / 1_000))
  }

  private func nextDeadline() -> MonotonicTime {
    // Nothing else is done before the retry.
    if let retryAt { return retryAt }
    var next = MonotonicTime.distantFuture
    if let unsyncedSince { next = min(next, unsyncedSince + Self.syncInterval) }
    if let idleSince, file?.database.pagesInLog ?? 0 > 0 {
      next = min(next, max(idleSince + Self.idleTime, nextCheckpoint))
    }
    return next
  }

  /// Does the work that is due while no entries are submitted. A busy store does this work together with its commits.
  private func performDueWork() {
    let now = ProcessInformation.monotonicTime()
    guard let file, retryAt == nil else { return }
    if idleSince == nil { idleSince = now }
    do throws(SQLiteDatabase.Failure) {
      if let unsyncedSince, unsyncedSince + Self.syncInterval <= now { try synchronise(file) }
      if let idleSince, max(idleSince + Self.idleTime, nextCheckpoint) <= now, file.database.pagesInLog > 0 {
        try copyLog(file, now)
      }
    } catch {
      fail(Failure(error))
    }
  }

  /// Commits a small change, because SQLite synchronises nothing for an empty transaction.
  private func synchronise(_ file: StoreFile) throws(SQLiteDatabase.Failure) {
    try file.synchronise(true)
    syncCount += 1
    let count = syncCount
    guard file.isInPlace else { throw Self.misplaced }
    try file.database.transaction { () throws(SQLiteDatabase.Failure) in
      try file.set(StoreSchema.Meta.synced, to: String(count))
    }
    try file.synchronise(false)
    unsyncedSince = nil
  }

  // MARK: Entries

  private func process(recovers: Bool) {
    var bytes = 0
    var ticket = batch.last - UInt64(batch.items.count)
    for item in batch.items {
      bytes += item.entry.cost
      ticket += 1
      if let session = sessions[item.session] { apply(item.entry, ticket, to: session) }
    }
    // The term of a new session must be synchronised before numbers of this term are issued.
    var synchronises = false
    var openings: [(session: StoredSession, then: @Sendable (OpenedJournal) -> Void)] = []
    var backups: [(path: String, cancellation: Cancellation, then: @Sendable (String?) -> Void)] = []
    for case let command as Store.Command in batch.commands {
      switch command {
      case .open(let name, let then):
        let known = named[name].flatMap { $0.isClosed ? nil : $0 }
        synchronises = synchronises || known == nil
        openings.append((known ?? create(name), then))
      case .backUp(let path, let cancellation, let then): backups.append((path, cancellation, then))
      }
    }
    if retryAt != nil {
      for session in touched { session.setBehind() }
      if recovers { recover() }
    } else if touched.isEmpty {
      publish([])
    } else {
      commit(ProcessInformation.monotonicTime(), isSynchronised: synchronises)
    }
    // Pending bytes decrease only here. So a session that has just paused reading is notified here.
    let mayReadAgain = store.submissions.release(bytes: bytes)
    for session in touched { session.clear() }
    batch.clear()
    for opening in openings { finish(opening.session, opening.then) }
    for session in touched { session.journal?.notify() }
    touched.removeAll(keepingCapacity: true)
    if mayReadAgain { notifyAll() }
    for backup in backups { backup.then(backUp(to: backup.path, unless: backup.cancellation)) }
  }

  private func apply(_ entry: JournalEntry, _ ticket: UInt64, to session: StoredSession) {
    guard !session.isClosed, !session.isFaulty else { return }
    touch(session)
    if !session.content.apply(entry) { stopStoring(session, from: ticket) }
  }

  /// Called when an entry does not follow the entries before it. Earlier entries are stored, and are reported as
  /// stored. This entry and later entries are not stored, and their tickets fail. The next process continues from the
  /// stored entries. Other sessions are not affected.
  private func stopStoring(_ session: StoredSession, from ticket: UInt64) {
    session.isFaulty = true
    session.progress.lose(from: ticket)
    store.noteFault(of: session.name)
    store.logger.error(
      "a session is no longer stored: one of its changes does not follow the previous change. Restart the gateway",
      [.text("session", session.name)])
  }

  private func touch(_ session: StoredSession) {
    guard !session.isTouched else { return }
    session.isTouched = true
    touched.append(session)
  }

  private func add(_ session: StoredSession) {
    session.number = nextNumber
    nextNumber &+= 1
    sessions[session.number] = session
    named[session.name] = session
  }

  /// Called when the end of the session is stored. Entries after the end are not stored, and no request waits for them.
  private func forget(_ session: StoredSession) {
    sessions[session.number] = nil
    if named[session.name] === session { named[session.name] = nil }
  }

  /// Begins the term of a new session.
  private func create(_ name: String) -> StoredSession {
    var random = SystemRandomNumberGenerator()
    let session = StoredSession(id: nextID, name: name, state: RestoredSession(epoch: random.next() & 0xFFFF_FFFF_FFFF))
    nextID += 1
    add(session)
    _ = session.content.begin(term: term, mayHaveLostEntries: false)
    touch(session)
    return session
  }

  private func finish(_ session: StoredSession, _ then: @Sendable (OpenedJournal) -> Void) {
    session.progress.setStored(through: published, position: session.state.log.lastPosition)
    let journal = QueuedJournal(
      store.submissions, session: session.number, session.progress, isShared: false)
    session.journal = journal
    then(OpenedJournal(journal: journal, restored: session.state))
  }

  // MARK: Commits

  private func commit(_ now: MonotonicTime, isSynchronised: Bool) {
    guard let file else { return }
    let isAlways = store.settings.sync == .always
    let isDue = unsyncedSince.map { $0 + Self.syncInterval <= now } ?? false
    let synchronises = isAlways || isSynchronised || isDue
    do throws(SQLiteDatabase.Failure) {
      try file.synchronise(synchronises)
      try store(touched, in: file)
      if synchronises, !file.isInPlace { throw Self.misplaced }
      if synchronises { unsyncedSince = nil } else if unsyncedSince == nil { unsyncedSince = now }
      store.metrics.noteCommit(since: now)
      if isAlways {
        let end = ProcessInformation.monotonicTime()
        lastSync = (end, end - now, batch.awaited + store.submissions.awaited)
      }
      publish(touched)
      try checkpoint(file, now)
    } catch {
      fail(Failure(error))
    }
  }

  /// Writes the changes of these sessions in one transaction.
  func store(_ changed: [StoredSession], in file: StoreFile) throws(SQLiteDatabase.Failure) {
    var changes: [StoreFile.Changes] = []
    try file.database.transaction { () throws(SQLiteDatabase.Failure) in
      changes = []
      for session in changed { changes.append(try file.write(session)) }
    }
    for index in changed.indices {
      store.metrics.noteBytes(changes[index].bytes)
      changed[index].apply(changes[index])
      changed[index].clear()
    }
  }

  /// Reports that all entries of these sessions that were taken from the queue are stored.
  private func publish(_ changed: some Sequence<StoredSession>) {
    published = batch.last
    for session in changed {
      session.progress.setStored(through: session.isClosed ? .max : published, position: session.storedPosition)
      if session.isClosed { forget(session) }
    }
  }

  /// The sessions for which `condition` returns true, in the order in which they began. The order matters, since a
  /// session may have ended before another session of the same name began.
  func sessions(where condition: (StoredSession) -> Bool) -> [StoredSession] {
    sessions.values.filter(condition).sorted { $0.id < $1.id }
  }

  private func notifyAll() {
    for session in sessions.values { session.journal?.notify() }
  }

  private func checkpoint(_ file: StoreFile, _ now: MonotonicTime) throws(SQLiteDatabase.Failure) {
    let bytes = file.database.pagesInLog * StoreFile.pageSize
    store.metrics.setLogBytes(bytes)
    guard bytes >= Self.checkpointBytes, now >= nextCheckpoint else { return }
    try copyLog(file, now)
  }

  /// Copies the log to the database. Without room for the copy, the log stays valid and grows.
  private func copyLog(_ file: StoreFile, _ now: MonotonicTime) throws(SQLiteDatabase.Failure) {
    do throws(SQLiteDatabase.Failure) {
      guard file.isInPlace else { throw Self.misplaced }
      try file.database.checkpoint(.passive)
      store.metrics.setLogBytes(0)
      store.metrics.setFileBytes(file.bytes)
    } catch {
      guard error.isFull else { throw error }
      nextCheckpoint = now + environment.retryInterval
    }
  }

  // MARK: Failures

  /// The failure of a file that has lost its name. Data that is written to such a file is lost.
  private static var misplaced: SQLiteDatabase.Failure {
    SQLiteDatabase.Failure(
      code: 1, systemCode: 0, message: "the file or its log was removed or replaced while it was open")
  }

  private func fail(_ failure: Failure) {
    // Only changes up to the last commit are known to be in the file.
    for session in touched { session.setBehind() }
    switch failure {
    case .full(let reason): report("\(reason)")
    case .broken(let reason):
      unsyncedSince = nil
      // Linux may have dropped the pages that it could not write, and would report success for the next
      // synchronisation. So the file is not used again.
      abandonFile()
      for session in sessions.values { session.setBehind() }
      report("\(reason)")
    }
    // A new file is written at once, but not here, since the callers still have the failed file open.
    retryAt = ProcessInformation.monotonicTime() + (file == nil ? .zero : environment.retryInterval)
  }

  private func abandonFile() {
    file?.database.keepLogOnClose(true)
    file = nil
  }

  func report(_ failure: String) {
    guard store.change(to: failure) else { return }
    store.metrics.noteFailure()
    store.logger.error(
      "the store does not work: messages are refused, and pushes are not stored",
      [.text("path", store.settings.path), .text("reason", failure)])
    notifyAll()
  }

  /// Stores all entries that were taken from the queue. A message that was withdrawn while the store did not work is
  /// stored only together with its withdrawal, because its client has got an error.
  private func recover() {
    do throws(SQLiteDatabase.Failure) {
      if let file {
        try file.synchronise(true)
        try store(sessions(where: \.isBehind), in: file)
        // Commits even if no session has changed, and so synchronises the commits before the failure.
        try synchronise(file)
        try file.synchronise(store.settings.sync == .always)
      } else {
        file = try replaceFile()
        store.renewControl()
      }
      retryAt = nil
      unsyncedSince = nil
      publish(Array(sessions.values))
      noteRecovery()
    } catch {
      if !error.isFull { abandonFile() }
      if file == nil { for session in sessions.values { session.setBehind() } }
      report("\(error)")
      retryAt = ProcessInformation.monotonicTime() + environment.retryInterval
      // Entries that were submitted during the recovery fail only now.
      notifyAll()
    }
  }

  private func noteRecovery() {
    guard store.change(to: nil) else { return }
    store.logger.warning("the store works again", [.text("path", store.settings.path)])
    notifyAll()
  }

  /// Called after the last entries were processed.
  private func end() {
    if retryAt == nil, file?.isInPlace == false { fail(.broken(Self.misplaced)) }
    if retryAt != nil { recover() }
    guard let file, retryAt == nil else {
      // The store is not marked as cleanly closed, because entries are missing.
      return store.logger.error("the store is closed with changes that are not stored")
    }
    do throws(SQLiteDatabase.Failure) {
      try file.end()
      store.logger.info("store closed", [.text("path", file.path)])
    } catch {
      store.logger.error("the store was not closed cleanly", [.text("path", file.path), .text("reason", "\(error)")])
    }
    self.file = nil
  }
}
