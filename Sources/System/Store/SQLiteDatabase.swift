import ByteStreams
import CSQLite
import Host
import Synchronization

/// A connection to an SQLite database. Belongs to one thread.
///
/// A thin layer over the library: it checks every result, and decides nothing.
@safe final class SQLiteDatabase {
  /// A failed call.
  struct Failure: Error, Equatable, CustomStringConvertible {
    /// The extended result code of SQLite.
    let code: Int32
    /// The `errno` of the system call that failed; 0 if none failed.
    let systemCode: Int32
    let message: String

    var primaryCode: Int32 { code & 0xFF }

    /// Whether the disk is full or the quota is used up. SQLite itself reports only a full disk. A failed
    /// synchronisation is not such a failure, whatever its reason: the kernel may have dropped pages that it could not
    /// write, so the content of the file is unknown.
    var isFull: Bool {
      if code == Self.failedSync || code == Self.failedFolderSync { return false }
      return primaryCode == SQLITE_FULL || (primaryCode == SQLITE_IOERR && systemCode == Self.quotaExceeded)
    }
    /// Another process has the file open.
    var isLocked: Bool { primaryCode == SQLITE_BUSY || primaryCode == SQLITE_LOCKED }
    /// The file does not have the content that SQLite has written.
    var isDamaged: Bool { primaryCode == SQLITE_CORRUPT || primaryCode == SQLITE_NOTADB }

    private static var quotaExceeded: Int32 { 122 }
    /// SQLITE_IOERR_FSYNC and SQLITE_IOERR_DIR_FSYNC.
    private static var failedSync: Int32 { SQLITE_IOERR | 4 << 8 }
    private static var failedFolderSync: Int32 { SQLITE_IOERR | 5 << 8 }

    var description: String {
      systemCode == 0 ? message : "\(message) (\(SystemError.reason(of: systemCode)))"
    }
  }

  private let handle: OpaquePointer
  private var statements: [String: SQLiteStatement] = [:]
  private let logPages: UnsafeMutablePointer<Int32>

  /// Opens the file, and creates it if there is none.
  ///
  /// - Parameter fileSystem: the name of a registered file system, for tests; nil for the default.
  init(_ path: String, isReadOnly: Bool = false, fileSystem: String? = nil) throws(Failure) {
    var opened: OpaquePointer?
    let flags = SQLITE_OPEN_NOMUTEX | (isReadOnly ? SQLITE_OPEN_READONLY : SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE)
    let result =
      unsafe fileSystem == nil
      ? sqlite3_open_v2(path, &opened, flags, nil) : sqlite3_open_v2(path, &opened, flags, fileSystem)
    guard let opened = unsafe opened else { throw Failure(code: SQLITE_NOMEM, systemCode: 0, message: "out of memory") }
    unsafe handle = opened
    unsafe logPages = .allocate(capacity: 1)
    unsafe logPages.initialize(to: 0)
    unsafe sqlite3_extended_result_codes(opened, 1)
    guard result == SQLITE_OK else { throw failure(result) }
  }

  deinit {
    statements = [:]
    unsafe sqlite3_close_v2(handle)
    unsafe logPages.deallocate()
  }

  /// Turns automatic checkpoints off. Makes `pagesInLog` available.
  func stopCheckpoints() {
    // The order matters: both calls set the same hook of the library, and the hook of the second call must remain.
    unsafe sqlite3_wal_autocheckpoint(handle, 0)
    unsafe csqlite_count_log_pages(handle, logPages)
  }

  /// The number of pages in the write-ahead log after the last commit.
  var pagesInLog: Int { Int(unsafe logPages.pointee) }

  private func failure(_ result: Int32) -> Failure {
    let code = unsafe sqlite3_extended_errcode(handle)
    let isIO = [SQLITE_IOERR, SQLITE_CANTOPEN, SQLITE_FULL].contains(result & 0xFF)
    return Failure(
      code: code == SQLITE_OK ? result : code, systemCode: isIO ? unsafe sqlite3_system_errno(handle) : 0,
      message: unsafe String(cString: sqlite3_errmsg(handle)))
  }

  fileprivate func check(_ result: Int32) throws(Failure) {
    guard result == SQLITE_OK else { throw failure(result) }
  }

  /// Executes statements without parameters. Ignores their results.
  func execute(_ sql: String) throws(Failure) {
    try check(unsafe sqlite3_exec(handle, sql, nil, nil, nil))
  }

  /// Returns the first column of the first row as text; nil if there is no row.
  func text(_ sql: String) throws(Failure) -> String? {
    let statement = try prepare(sql)
    defer { statement.reset() }
    return try statement.step() ? statement.text(0) : nil
  }

  func integer(_ sql: String) throws(Failure) -> Int64? {
    let statement = try prepare(sql)
    defer { statement.reset() }
    return try statement.step() ? statement.integer(0) : nil
  }

  /// Returns a prepared statement. Prepares it on the first call.
  func prepare(_ sql: String) throws(Failure) -> SQLiteStatement {
    if let statement = statements[sql] { return statement }
    var pointer: OpaquePointer?
    try check(unsafe sqlite3_prepare_v3(handle, sql, -1, UInt32(SQLITE_PREPARE_PERSISTENT), &pointer, nil))
    guard let pointer = unsafe pointer else {
      throw Failure(code: SQLITE_MISUSE, systemCode: 0, message: "no statement")
    }
    let statement = unsafe SQLiteStatement(pointer, self)
    statements[sql] = statement
    return statement
  }

  /// Executes a statement without results.
  func run(_ sql: String, _ bind: (SQLiteStatement) throws(Failure) -> Void = { _ in }) throws(Failure) {
    let statement = try prepare(sql)
    defer { statement.reset() }
    try bind(statement)
    _ = try statement.step()
  }

  /// Executes a statement whose parameters are these integers, followed by the range of `bytes`.
  func run(
    _ sql: String, _ integers: Int64..., bytes: borrowing ByteQueue, in range: Range<Int>
  ) throws(Failure) {
    let statement = try prepare(sql)
    defer { statement.reset() }
    for index in integers.indices { try statement.bind(Int32(index + 1), integers[index]) }
    try statement.bind(Int32(integers.count + 1), bytes.bytes.extracting(range))
    _ = try statement.step()
  }

  /// Calls `body` for each row.
  func query(
    _ sql: String, _ bind: (SQLiteStatement) throws(Failure) -> Void = { _ in },
    _ body: (SQLiteStatement) -> Bool
  ) throws(Failure) {
    let statement = try prepare(sql)
    defer { statement.reset() }
    try bind(statement)
    while try statement.step() { if !body(statement) { return } }
  }

  /// Calls `body` in a transaction, which is rolled back if `body` throws.
  func transaction(_ body: () throws(Failure) -> Void) throws(Failure) {
    try run("BEGIN IMMEDIATE")
    do throws(Failure) {
      try body()
      try run("COMMIT")
    } catch {
      rollBack()
      throw error
    }
  }

  /// Does nothing if SQLite has rolled back by itself, as it does after some errors.
  private func rollBack() {
    for statement in statements.values { statement.reset() }
    if unsafe sqlite3_get_autocommit(handle) == 0 { _ = unsafe sqlite3_exec(handle, "ROLLBACK", nil, nil, nil) }
  }

  enum Checkpoint {
    case passive
    /// Also truncates the file of the log.
    case truncating
  }

  func checkpoint(_ kind: Checkpoint) throws(Failure) {
    let mode = kind == .passive ? SQLITE_CHECKPOINT_PASSIVE : SQLITE_CHECKPOINT_TRUNCATE
    try check(unsafe sqlite3_wal_checkpoint_v2(handle, nil, mode, nil, nil))
    unsafe logPages.pointee = 0
  }

  /// Sets whether closing the database leaves its files unchanged. This is necessary if the file is only inspected, or
  /// if it has failed and another file may have its name.
  func keepLogOnClose(_ isKept: Bool) { unsafe csqlite_keep_log_on_close(handle, isKept ? 1 : 0) }

  /// Calls `body`. A statement that `body` executes fails once `cancellation` is set.
  func unless(_ cancellation: Cancellation, _ body: () throws(Failure) -> Void) throws(Failure) {
    // SQLite calls this handler after every few rows. A row may have a megabyte, so with a longer interval the
    // statement would end late on a slow disk.
    let context = unsafe Unmanaged.passUnretained(cancellation).toOpaque()
    unsafe sqlite3_progress_handler(
      handle, 20,
      { context in
        guard let context = unsafe context else { return 0 }
        return unsafe Unmanaged<Cancellation>.fromOpaque(context).takeUnretainedValue().isSet ? 1 : 0
      }, context)
    defer { unsafe sqlite3_progress_handler(handle, 0, nil, nil) }
    try withExtendedLifetime(cancellation, body)
  }

  var lastRow: Int64 { unsafe sqlite3_last_insert_rowid(handle) }
}

/// A prepared statement.
@safe final class SQLiteStatement {
  private let pointer: OpaquePointer
  private unowned let database: SQLiteDatabase

  fileprivate init(_ pointer: OpaquePointer, _ database: SQLiteDatabase) {
    unsafe self.pointer = pointer
    self.database = database
  }

  deinit { unsafe sqlite3_finalize(pointer) }

  /// Returns whether there is a row.
  func step() throws(SQLiteDatabase.Failure) -> Bool {
    let result = unsafe sqlite3_step(pointer)
    if result == SQLITE_ROW { return true }
    if result != SQLITE_DONE { try database.check(result) }
    return false
  }

  func reset() {
    unsafe sqlite3_reset(pointer)
    unsafe sqlite3_clear_bindings(pointer)
  }

  func bind(_ index: Int32, _ value: Int64) throws(SQLiteDatabase.Failure) {
    try database.check(unsafe sqlite3_bind_int64(pointer, index, value))
  }

  func bind(_ index: Int32, _ value: String) throws(SQLiteDatabase.Failure) {
    try database.check(unsafe csqlite_bind_text(pointer, index, value, Int32(value.utf8.count)))
  }

  /// Binds bytes without copying them. They must not change until `reset()`.
  fileprivate func bind(_ index: Int32, _ bytes: Span<UInt8>) throws(SQLiteDatabase.Failure) {
    let result = unsafe bytes.withUnsafeBytes {
      unsafe csqlite_bind_static_blob(pointer, index, $0.baseAddress, UInt64($0.count))
    }
    try database.check(result)
  }

  func integer(_ column: Int32) -> Int64 { unsafe sqlite3_column_int64(pointer, column) }

  func text(_ column: Int32) -> String {
    guard let text = unsafe sqlite3_column_text(pointer, column) else { return "" }
    return unsafe String(cString: text)
  }

  /// Calls `body` with the bytes of a column.
  func withBytes<Result>(_ column: Int32, _ body: (Span<UInt8>) -> Result) -> Result {
    let count = Int(unsafe sqlite3_column_bytes(pointer, column))
    guard count > 0, let start = unsafe sqlite3_column_blob(pointer, column) else { return body(Span()) }
    let buffer = unsafe UnsafeRawBufferPointer(start: start, count: count)
    return unsafe body(Span(_unsafeBytes: buffer))
  }
}

/// Ends a long operation early: when it is set, when another cancellation is set, or at its deadline. Thread-safe.
final class Cancellation: Sendable {
  private let flag = Atomic<Bool>(false)
  private let other: Cancellation?
  private let deadline: MonotonicTime

  init(_ other: Cancellation? = nil, at deadline: MonotonicTime = .distantFuture) {
    self.other = other
    self.deadline = deadline
  }

  var isOver: Bool { deadline < .distantFuture && ProcessInformation.monotonicTime() >= deadline }
  var isSet: Bool { flag.load(ordering: .relaxed) || other?.isSet == true || isOver }
  func set() { flag.store(true, ordering: .relaxed) }
}
