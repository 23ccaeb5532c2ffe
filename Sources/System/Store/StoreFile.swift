import ByteStreams
import Glibc
import Journal
import Reactor

/// The database of a store: its opening and its rows. Belongs to the thread of the store.
final class StoreFile {
  /// Pages of the database have this size, SQLite's default.
  static var pageSize: Int { 4096 }
  /// How long to wait between two attempts while another process has the file open.
  private static var lockPollInterval: UInt32 { 50_000 }

  /// What only tests change.
  struct Environment: Sendable {
    /// The steps of the schema.
    var steps = StoreSchema.steps
    /// The file system of SQLite; nil: the real one.
    var fileSystem: String?
    /// Identifies the running of the machine.
    var boot = StoreFile.bootID
    /// How long to wait after a failure before the next attempt.
    var retryInterval = StoreWriter.retryInterval
  }

  /// What was found in the file when it was opened.
  struct Condition: Equatable {
    /// The term of the last run; 0: none.
    var term: UInt64 = 0
    /// Whether the last run did not end in order.
    var endedUncleanly = false
    /// Whether what was stored last may be missing.
    var mayHaveLostEntries = false
    var isBackup = false
  }

  let path: String
  let environment: Environment
  let database: SQLiteDatabase
  private(set) var condition = Condition()
  /// Whether commits are synchronised now. SQLite changes this between transactions only.
  private var isSynchronising = true

  private init(_ path: String, _ environment: Environment, _ database: SQLiteDatabase) {
    self.path = path
    self.environment = environment
    self.database = database
  }

  // MARK: Opening

  /// Opens a store for writing, and creates it if there is none. Nobody else can open it until this is released.
  ///
  /// - Parameters:
  ///   - wait: how long to wait while another process has it open.
  static func open(
    _ path: String, waiting wait: TimeSpan = .zero, _ environment: Environment = Environment()
  ) throws(StoreError) -> StoreFile {
    try create(path)
    let deadline = ProcessInformation.monotonicTime() + wait
    while true {
      do throws(SQLiteDatabase.Failure) {
        let file = StoreFile(path, environment, try SQLiteDatabase(path, fileSystem: environment.fileSystem))
        try file.takeLock()
        if try file.completeReplacement() { continue }
        try file.readCondition(environment.steps)
        return file
      } catch {
        if error.isLocked, ProcessInformation.monotonicTime() < deadline {
          usleep(lockPollInterval)
          continue
        }
        throw Self.storeError(error, path)
      }
    }
  }

  static func storeError(_ failure: SQLiteDatabase.Failure, _ path: String) -> StoreError {
    if let refusal = failure.refusal { return refusal(path) }
    if failure.isLocked { return .inUse(path: path) }
    return failure.isDamaged ? .damaged(path: path, reason: "\(failure)") : .failed(path: path, reason: "\(failure)")
  }

  /// Creates the file for its owner only. SQLite gives its other files the same permissions.
  static func create(_ path: String) throws(StoreError) {
    let descriptor = unsafe Glibc.open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0o600)
    guard descriptor >= 0 else {
      if errno == EEXIST { return }
      throw .failed(path: path, reason: SystemError.reason(of: errno))
    }
    _ = Glibc.close(descriptor)
    // Otherwise a power failure could remove the file that was synchronised.
    _ = synchroniseFolder(of: path)
  }

  /// Returns 0 or an errno value.
  static func synchroniseFolder(of path: String) -> Int32 {
    let folder = path.lastIndex(of: "/").map { $0 == path.startIndex ? "/" : String(path[..<$0]) } ?? "."
    let descriptor = unsafe Glibc.open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC)
    guard descriptor >= 0 else { return errno }
    defer { _ = Glibc.close(descriptor) }
    return fsync(descriptor) == 0 ? 0 : errno
  }

  /// Opens the write-ahead log with an exclusive lock, so that no other connection can write or checkpoint.
  private func takeLock() throws(SQLiteDatabase.Failure) {
    // Before the first access: then the index of the log is in memory, and no file is shared with anybody.
    try database.execute("PRAGMA locking_mode=EXCLUSIVE; PRAGMA temp_store=MEMORY")
    guard try database.text("PRAGMA journal_mode=WAL") == "wal" else {
      throw SQLiteDatabase.Failure(code: 1, systemCode: 0, message: "its file system cannot hold a write-ahead log")
    }
    try database.execute("PRAGMA synchronous=FULL")
    database.stopCheckpoints()
  }

  /// Creates or migrates the tables in one transaction, and reads what the last run left.
  private func readCondition(_ steps: [String]) throws(SQLiteDatabase.Failure) {
    let schema = Int(try database.integer("PRAGMA user_version") ?? 0)
    let application = try database.integer("PRAGMA application_id") ?? 0
    let tables = try database.integer("SELECT count(*) FROM sqlite_schema") ?? 0
    if application != StoreSchema.applicationID, application != 0 || tables > 0 { throw .refused(.foreign) }
    if schema > steps.count { throw .refused(.newerSchema(found: schema, known: steps.count)) }
    if tables > 0 { try readMeta() }
    guard schema < steps.count else { return }
    try database.transaction { () throws(SQLiteDatabase.Failure) in
      for step in steps[schema...] { try database.execute(step) }
      try database.execute(
        "PRAGMA application_id=\(StoreSchema.applicationID); PRAGMA user_version=\(steps.count)")
    }
  }

  private func readMeta() throws(SQLiteDatabase.Failure) {
    condition.term = UInt64(clamping: try meta(StoreSchema.Meta.term).flatMap { Int64($0) } ?? 0)
    condition.isBackup = try meta(StoreSchema.Meta.isBackup) == "1"
    let wasClean = try meta(StoreSchema.Meta.isClean) == "1"
    condition.endedUncleanly = condition.term > 0 && !wasClean && !condition.isBackup
    let wasSynced = try meta(StoreSchema.Meta.sync) == StoreSettings.Sync.always.rawValue
    let isSameBoot = try meta(StoreSchema.Meta.boot) == environment.boot
    condition.mayHaveLostEntries = condition.isBackup || condition.endedUncleanly && !wasSynced && !isSameBoot
    if condition.endedUncleanly {
      let result = try database.text("PRAGMA quick_check(1)") ?? "no result"
      guard result == "ok" else { throw .refused(.damaged(result)) }
    }
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

  /// Begins a term, which is synchronised when this returns. To be called before any number of it is issued.
  func begin(term: UInt64, _ sync: StoreSettings.Sync) throws(SQLiteDatabase.Failure) {
    try synchronise(true)
    try database.transaction { () throws(SQLiteDatabase.Failure) in
      try set(StoreSchema.Meta.term, to: String(term))
      try set(StoreSchema.Meta.isClean, to: "0")
      try set(StoreSchema.Meta.isBackup, to: "0")
      try set(StoreSchema.Meta.boot, to: environment.boot)
      // Until the next run begins, the weakest level of both counts.
      try set(StoreSchema.Meta.sync, to: sync.rawValue)
    }
  }

  /// Whether the next transactions are synchronised. May be called between transactions only.
  func synchronise(_ isOn: Bool) throws(SQLiteDatabase.Failure) {
    guard isOn != isSynchronising else { return }
    try database.execute(isOn ? "PRAGMA synchronous=FULL" : "PRAGMA synchronous=NORMAL")
    isSynchronising = isOn
  }

  /// Ends the run in order.
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

  /// The file was read, and is not to be used.
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
