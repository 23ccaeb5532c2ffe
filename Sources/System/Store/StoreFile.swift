import ByteStreams
import Glibc
import Host
import Journal
import Submissions

/// The database of a store: how it is opened, and its rows. Belongs to the thread of the store.
final class StoreFile {
  /// The size of the database's pages, SQLite's default.
  static var pageSize: Int { 4096 }
  /// The size to which the write-ahead log is cut after a checkpoint.
  private static var logBytes: Int { 16 << 20 }

  /// Dependencies that only tests change.
  struct Environment: Sendable {
    /// The steps of the schema.
    var steps = StoreSchema.steps
    /// The file system of SQLite; nil for the real file system.
    var fileSystem: String?
    /// Identifies the present run of the machine.
    var boot = StoreFile.bootID
    /// The random bits of a term.
    var termBits: @Sendable () -> UInt32 = { .random(in: 0 ... .max) }
    /// In milliseconds since 1970.
    var wallClock: @Sendable () -> Int64 = { ProcessInformation.wallClockMilliseconds() }
    /// How long to wait after a failure before the next attempt.
    var retryInterval = StoreWriter.retryInterval
    /// Maximum delay of notes.
    var noteDelay = SubmissionQueue.noteDelay
    /// Called with the path and the size of a file before it is checked, since the check takes time.
    var willCheck: @Sendable (String, Int) -> Void = { _, _ in }
    /// Called while a large file is checked, with the bytes read so far, and the size of the file.
    var isChecking: @Sendable (String, Int, Int) -> Void = { _, _, _ in }
    /// Called while the sessions of a large file are read, with the bytes of entries read so far, and the bytes of the
    /// file.
    var isReading: @Sendable (String, Int, Int) -> Void = { _, _, _ in }
    /// The time between two calls of `isChecking` or `isReading`, and before the first call.
    var progressInterval = TimeSpan.seconds(2)
  }

  /// The state of the file when it was opened.
  struct Condition: Equatable {
    /// The term of the last run; 0 if there was none.
    var term: UInt64 = 0
    var schema = 0
    /// Whether the last run did not end cleanly.
    var endedUncleanly = false
    /// Whether the entries that were stored last may be missing.
    var mayHaveLostEntries = false
    var isBackup = false
  }

  let path: String
  let environment: Environment
  let lock: StoreLock
  let database: SQLiteDatabase
  private(set) var condition = Condition()
  /// Whether commits are synchronised at present. SQLite can change this between transactions only.
  private var isSynchronising = true
  /// The identity of the open file. If it differs from the file at `path`, the file was removed or replaced.
  private var identity: StorePlace.Identity?
  /// The identity of the file's log, which exists from the first transaction until the file is closed.
  private var logIdentity: StorePlace.Identity?

  private init(_ path: String, _ environment: Environment, _ lock: StoreLock, _ database: SQLiteDatabase) {
    self.path = path
    self.environment = environment
    self.lock = lock
    self.database = database
  }

  // MARK: Opening

  /// Opens a store for writing, and creates it if there is none. A file that is refused is not changed.
  ///
  /// - Parameter lock: the lock from `StoreLock.take`. The caller must keep it after the file is closed if another file
  ///   will replace it.
  static func open(
    _ path: String, _ lock: StoreLock, _ environment: Environment = Environment()
  ) throws(StoreError) -> StoreFile {
    try completeReplacement(of: path, environment)
    try StorePlace.check(path)
    try create(path)
    let file = try inspect(path, lock, environment)
    do throws(SQLiteDatabase.Failure) {
      try file.checkAfterUncleanEnd()
      try file.startWriting()
      return file
    } catch {
      throw storeError(error, path)
    }
  }

  /// Opens a store, and reads the state that the last run has left. Changes nothing in the file, neither now nor when
  /// it is closed.
  static func inspect(
    _ path: String, _ lock: StoreLock, _ environment: Environment = Environment()
  ) throws(StoreError) -> StoreFile {
    do throws(SQLiteDatabase.Failure) {
      let file = StoreFile(path, environment, lock, try SQLiteDatabase(path, fileSystem: environment.fileSystem))
      file.database.keepLogOnClose(true)
      // This must precede the first access. With the exclusive mode, the index of the log is in memory, and other
      // processes cannot open the files.
      try file.database.execute("PRAGMA locking_mode=EXCLUSIVE; PRAGMA temp_store=MEMORY; PRAGMA query_only=ON")
      try file.readCondition()
      file.identity = StorePlace.Identity(path)
      return file
    } catch {
      throw storeError(error, path)
    }
  }

  static func storeError(_ failure: SQLiteDatabase.Failure, _ path: String) -> StoreError {
    if let refusal = failure.refusal { return refusal(path) }
    if failure.isLocked { return .inUse(path: path) }
    return failure.isDamaged ? .damaged(path: path, reason: "\(failure)") : .failed(path: path, reason: "\(failure)")
  }

  /// Creates the file with permissions for its owner only. SQLite gives its other files the same permissions.
  static func create(_ path: String) throws(StoreError) {
    let descriptor = unsafe Glibc.open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0o600)
    guard descriptor >= 0 else {
      if errno == EEXIST { return }
      throw StorePlace.refusal(of: errno, creating: path, for: path)
    }
    _ = Glibc.close(descriptor)
    // Without this, a power failure could remove a file whose content was synchronised.
    let result = synchroniseFolder(of: path)
    guard result == 0 else {
      throw .failed(path: path, reason: "its folder cannot be synchronised (\(SystemError.reason(of: result)))")
    }
  }

  /// Returns 0 or an errno value.
  static func synchroniseFolder(of path: String) -> Int32 {
    let descriptor = unsafe Glibc.open(StorePlace.folder(of: path), O_RDONLY | O_DIRECTORY | O_CLOEXEC)
    guard descriptor >= 0 else { return errno }
    defer { _ = Glibc.close(descriptor) }
    return fsync(descriptor) == 0 ? 0 : errno
  }

  private func readCondition() throws(SQLiteDatabase.Failure) {
    let schema = Int(try database.integer("PRAGMA user_version") ?? 0)
    let application = try database.integer("PRAGMA application_id") ?? 0
    let tables = try database.integer("SELECT count(*) FROM sqlite_schema") ?? 0
    if application != StoreSchema.applicationID, application != 0 || tables > 0 { throw .refused(.foreign) }
    let known = environment.steps.count
    if schema > known { throw .refused(.newerSchema(found: schema, known: known)) }
    condition.schema = schema
    if tables > 0 { try readMeta() }
  }

  private func checkAfterUncleanEnd() throws(SQLiteDatabase.Failure) {
    guard condition.endedUncleanly else { return }
    environment.willCheck(path, bytes)
    try check("quick_check")
  }

  /// - Parameter kind: `quick_check` or `integrity_check`.
  func check(_ kind: String) throws(SQLiteDatabase.Failure) {
    let (path, bytes, isChecking) = (path, bytes, environment.isChecking)
    let counter = ReadCounter()
    let result = try ProgressReports.during(environment.progressInterval) {
      // Some pages are read twice, so the count may exceed the size.
      if let read = counter.bytes { isChecking(path, min(read, bytes), bytes) }
    } _: { () throws(SQLiteDatabase.Failure) in
      try database.text("PRAGMA \(kind)(1)") ?? "no result"
    }
    guard result == "ok" else { throw .refused(.damaged(result)) }
  }

  /// The bytes of the database and its log.
  var bytes: Int { StorePlace.size(of: path) + StorePlace.size(of: path + "-wal") }

  /// Creates or migrates the tables in one transaction.
  private func startWriting() throws(SQLiteDatabase.Failure) {
    try database.execute("PRAGMA query_only=OFF")
    guard try database.text("PRAGMA journal_mode=WAL") == "wal" else {
      throw SQLiteDatabase.Failure(
        code: 1, systemCode: 0, message: "its file system does not support a write-ahead log")
    }
    // Limits the size of the log after an exceptionally large commit.
    try database.execute("PRAGMA synchronous=FULL; PRAGMA journal_size_limit=\(Self.logBytes)")
    database.stopCheckpoints()
    let steps = environment.steps
    guard condition.schema < steps.count else { return }
    try database.transaction { () throws(SQLiteDatabase.Failure) in
      for step in steps[condition.schema...] { try database.execute(step) }
      try database.execute(
        "PRAGMA application_id=\(StoreSchema.applicationID); PRAGMA user_version=\(steps.count)")
    }
  }

  /// Whether the file and its log still have their names. If not, written data is lost.
  var isInPlace: Bool {
    StorePlace.Identity(path) == identity && StorePlace.Identity(path + "-wal") == logIdentity
  }

  private func readMeta() throws(SQLiteDatabase.Failure) {
    condition.term = UInt64(clamping: try meta(StoreSchema.Meta.term).flatMap { Int64($0) } ?? 0)
    condition.isBackup = try meta(StoreSchema.Meta.isBackup) == "1"
    let wasClean = try meta(StoreSchema.Meta.isClean) == "1"
    condition.endedUncleanly = condition.term > 0 && !wasClean && !condition.isBackup
    let wasSynced = try meta(StoreSchema.Meta.sync) == StoreSettings.Sync.always.rawValue
    let isSameBoot = try meta(StoreSchema.Meta.boot) == environment.boot
    condition.mayHaveLostEntries = condition.isBackup || condition.endedUncleanly && !wasSynced && !isSameBoot
  }

  /// Changes with every start of the machine.
  static var bootID: String {
    let bytes = SystemFile.bytes(of: "/proc/sys/kernel/random/boot_id", atMost: 64) ?? []
    return String(decoding: bytes.prefix { $0 != UInt8(ascii: "\n") }, as: UTF8.self)
  }

  // MARK: Facts about the whole store

  func meta(_ name: String) throws(SQLiteDatabase.Failure) -> String? {
    let statement = try database.prepare("SELECT value FROM meta WHERE name = ?")
    defer { statement.reset() }
    try statement.bind(1, name)
    return try statement.step() ? statement.text(0) : nil
  }

  func set(_ name: String, to value: String) throws(SQLiteDatabase.Failure) {
    try database.run("INSERT OR REPLACE INTO meta VALUES (?, ?)") { statement throws(SQLiteDatabase.Failure) in
      try statement.bind(1, name)
      try statement.bind(2, value)
    }
  }

  func removeMeta(_ name: String) throws(SQLiteDatabase.Failure) {
    try database.run("DELETE FROM meta WHERE name = ?") { statement throws(SQLiteDatabase.Failure) in
      try statement.bind(1, name)
    }
  }

  /// Begins a term and calls `body`, in one synchronised transaction. Must be called before a number of the term is
  /// issued.
  func begin(
    term: UInt64, _ sync: StoreSettings.Sync, _ body: () throws(SQLiteDatabase.Failure) -> Void = {}
  ) throws(SQLiteDatabase.Failure) {
    try synchronise(true)
    try database.transaction { () throws(SQLiteDatabase.Failure) in
      try set(StoreSchema.Meta.term, to: String(term))
      try set(StoreSchema.Meta.isClean, to: "0")
      try set(StoreSchema.Meta.isBackup, to: "0")
      try set(StoreSchema.Meta.boot, to: environment.boot)
      try removeMeta(StoreSchema.Meta.start)
      // This transaction also synchronises the commits of the last run, so from now on only the level of this run
      // matters.
      try set(StoreSchema.Meta.sync, to: sync.rawValue)
      try body()
    }
    logIdentity = StorePlace.Identity(path + "-wal")
    // From now on the file is in use, so closing it must copy the log to the database.
    database.keepLogOnClose(false)
  }

  /// Sets whether the next transactions are synchronised. May be called between transactions only.
  func synchronise(_ isOn: Bool) throws(SQLiteDatabase.Failure) {
    guard isOn != isSynchronising else { return }
    try database.execute(isOn ? "PRAGMA synchronous=FULL" : "PRAGMA synchronous=NORMAL")
    isSynchronising = isOn
  }

  /// Ends the run cleanly.
  func end() throws(SQLiteDatabase.Failure) {
    try synchronise(true)
    try database.transaction { () throws(SQLiteDatabase.Failure) in try set(StoreSchema.Meta.isClean, to: "1") }
    try database.checkpoint(.truncating)
  }
}

extension SQLiteDatabase.Failure {
  enum Refusal {
    case foreign
    case newerSchema(found: Int, known: Int)
    case damaged(String)
  }

  private static var foreignCode: Int32 { -1 }
  private static var newerCode: Int32 { -2 }
  private static var damagedCode: Int32 { -3 }

  /// The file could be read, but must not be used.
  static func refused(_ refusal: Refusal) -> SQLiteDatabase.Failure {
    switch refusal {
    case .foreign: SQLiteDatabase.Failure(code: foreignCode, systemCode: 0, message: "")
    case .newerSchema(let found, let known):
      SQLiteDatabase.Failure(code: newerCode, systemCode: Int32(clamping: found), message: String(known))
    case .damaged(let reason): SQLiteDatabase.Failure(code: damagedCode, systemCode: 0, message: reason)
    }
  }

  fileprivate var refusal: ((String) -> StoreError)? {
    switch code {
    case Self.foreignCode: { .foreign(path: $0) }
    case Self.newerCode: { .newerSchema(path: $0, found: Int(systemCode), known: Int(message) ?? 0) }
    case Self.damagedCode: { .damaged(path: $0, reason: message) }
    default: nil
    }
  }
}
