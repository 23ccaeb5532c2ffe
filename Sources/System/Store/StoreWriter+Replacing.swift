import ByteStreams
import Glibc
import Journal
import Logging
import Reactor

/// A new file in place of one that has failed, and copies.
extension StoreWriter {
  /// Failed files that are kept; the oldest are removed, so that a disk that fails again and again is not filled.
  private static var keptFiles: Int { 3 }

  /// Writes the state of all sessions to a new file, and puts it in the place of the one that failed. That one is kept under another name.
  func replaceFile() throws(SQLiteDatabase.Failure) -> StoreFile {
    let path = store.settings.path
    let new = path + ".new"
    Self.remove(new)
    // Closed at the end of this function: SQLite finds the write-ahead log by the name that the file had when it was opened.
    try writeAll(to: new)
    let failed = "\(path).failed-\(ProcessInformation.wallClockSeconds())"
    try Self.rename(path, failed)
    // The failed file is of no use without its log.
    if unsafe access(path + "-wal", F_OK) == 0 { try Self.rename(path + "-wal", failed + "-wal") }
    try Self.rename(new, path)
    let result = StoreFile.synchroniseFolder(of: path)
    guard result == 0 else { throw Self.failure("the folder cannot be synchronised", result) }
    let file: StoreFile
    do throws(StoreError) {
      file = try StoreFile.open(path, environment)
    } catch {
      throw SQLiteDatabase.Failure(code: 1, systemCode: 0, message: "\(error)")
    }
    try file.begin(term: term, store.settings.sync)
    try file.synchronise(store.settings.sync == .always)
    Self.removeOldFailedFiles(of: path)
    store.logger.warning(
      "the store was written anew; the file that failed is kept", [.text("path", path), .text("failed_file", failed)])
    return file
  }

  private func writeAll(to path: String) throws(SQLiteDatabase.Failure) {
    let file: StoreFile
    do throws(StoreError) {
      file = try StoreFile.open(path, environment)
    } catch {
      throw SQLiteDatabase.Failure(code: 1, systemCode: 0, message: "\(error)")
    }
    for session in sessions { session.forgetRows() }
    try file.begin(term: term, store.settings.sync)
    try store(sessions.filter { !$0.isClosed }, in: file)
    try file.end()
  }

  /// Writes a copy of what is stored to `path`. Returns why it failed, or nil.
  func backUp(to path: String) -> String? {
    guard let file, store.state.failure == nil else { return "the store does not work at present" }
    guard unsafe access(path, F_OK) != 0 else { return "'\(path)' exists" }
    do throws(StoreError) {
      try StoreFile.create(path)
    } catch {
      return "\(error)"
    }
    do throws(SQLiteDatabase.Failure) {
      try file.database.run("VACUUM INTO ?") { statement throws(SQLiteDatabase.Failure) in
        try statement.bind(1, path)
      }
      let copy = try SQLiteDatabase(path)
      try copy.execute("PRAGMA synchronous=FULL")
      try copy.execute("INSERT OR REPLACE INTO meta VALUES ('\(StoreSchema.Meta.isBackup)', '1')")
      return nil
    } catch {
      Self.remove(path)
      return "\(error)"
    }
  }

  // MARK: Files

  private static func removeOldFailedFiles(of path: String) {
    let end = path.lastIndex(of: "/")
    let folder = end.map { String(path[...$0]) } ?? "./"
    let prefix = path[(end.map { path.index(after: $0) } ?? path.startIndex)...] + ".failed-"
    var names = names(in: folder).filter { $0.hasPrefix(prefix) && !$0.hasSuffix("-wal") }
    names.sort()
    for name in names.dropLast(keptFiles) { remove(folder + name) }
  }

  private static func names(in folder: String) -> [String] {
    guard let directory = unsafe opendir(folder) else { return [] }
    defer { unsafe _ = closedir(directory) }
    var names: [String] = []
    while let entry = unsafe readdir(directory) {
      let name = unsafe withUnsafeBytes(of: entry.pointee.d_name) { bytes in
        unsafe String(decoding: bytes.prefix { $0 != 0 }, as: UTF8.self)
      }
      names.append(name)
    }
    return names
  }

  private static func remove(_ path: String) {
    for suffix in ["", "-wal", "-shm", "-journal"] { _ = unsafe unlink(path + suffix) }
  }

  private static func rename(_ old: String, _ new: String) throws(SQLiteDatabase.Failure) {
    guard unsafe Glibc.rename(old, new) != 0 else { return }
    let code = errno
    // A file that is gone need not be kept.
    if code != ENOENT { throw failure("'\(old)' cannot be renamed", code) }
  }

  private static func failure(_ message: String, _ code: Int32) -> SQLiteDatabase.Failure {
    SQLiteDatabase.Failure(code: 1, systemCode: code, message: message)
  }
}

extension StoredSession {
  /// It is to be written to another file.
  fileprivate func forgetRows() {
    isBehind = true
    isKnown = false
    chunks.removeAll()
    changes = []
    changeBytes = 0
    stateBytes = 0
    storedPosition = 0
  }
}
