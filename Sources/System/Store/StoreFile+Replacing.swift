import Glibc
import Reactor

/// A new file takes the place of one that has failed. Both exist until it has, so an end of the process at any moment loses neither.
extension StoreFile {
  /// Of the file that is being written. When it was closed in order, it is complete, and the file without the suffix is not used again.
  static var newSuffix: String { ".new" }
  /// Failed files that are kept; the oldest are removed, so that a disk that fails again and again is not filled.
  private static var keptFiles: Int { 3 }

  /// Puts a complete file in the place of the one at `path`, which is kept under another name. Returns that.
  static func putInPlace(_ new: String, of path: String) throws(SQLiteDatabase.Failure) -> String {
    let failed = "\(path).failed-\(ProcessInformation.wallClockSeconds())"
    _ = unsafe unlink(failed)
    // A second name, so that there is always a file of the first. File systems without such names are no reason to stop.
    if unsafe link(path, failed) != 0 { try rename(path, failed) }
    // The failed file is of no use without its log, and the log must not be applied to the new one.
    try rename(path + "-wal", failed + "-wal")
    try rename(new, path)
    let result = synchroniseFolder(of: path)
    guard result == 0 else { throw failure("the folder cannot be synchronised", result) }
    removeOldFailedFiles(of: path)
    return failed
  }

  /// If the process ended while it replaced this file, completes that, or removes the file that is not complete. Returns whether this file was
  /// replaced and must be opened again.
  func completeReplacement() throws(SQLiteDatabase.Failure) -> Bool {
    let new = path + Self.newSuffix
    guard unsafe access(new, F_OK) == 0 else { return false }
    guard try Self.isComplete(new, environment) else {
      Self.remove(new)
      return false
    }
    database.abandon()
    _ = try Self.putInPlace(new, of: path)
    return true
  }

  private static func isComplete(_ path: String, _ environment: Environment) throws(SQLiteDatabase.Failure) -> Bool {
    do throws(SQLiteDatabase.Failure) {
      let database = try SQLiteDatabase(path, fileSystem: environment.fileSystem)
      try database.execute("PRAGMA locking_mode=EXCLUSIVE")
      return try database.text("SELECT value FROM meta WHERE name = '\(StoreSchema.Meta.isClean)'") == "1"
    } catch {
      // It has no tables yet, or is not readable.
      if error.primaryCode == 1 || error.isDamaged { return false }
      throw error
    }
  }

  /// Writes a copy to `path`, where there must be no file, and marks it as a backup. Returns why it failed, or nil.
  func backUp(to path: String) -> String? {
    guard unsafe access(path, F_OK) != 0 else { return "'\(path)' exists" }
    do throws(StoreError) {
      try Self.create(path)
    } catch {
      return "\(error)"
    }
    do throws(SQLiteDatabase.Failure) {
      try database.run("VACUUM INTO ?") { statement throws(SQLiteDatabase.Failure) in try statement.bind(1, path) }
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

  static func remove(_ path: String) {
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
