import Glibc
import Host

/// Replaces a failed file by a new file, and makes backups. Until the replacement is complete, both files exist, so the
/// process can end at any moment without a loss.
extension StoreFile {
  /// The suffix of a new file while it is being written. If the new file was closed cleanly, it is complete, and the
  /// file without the suffix is no longer used.
  static var newSuffix: String { ".new" }
  /// How many failed files are kept, so that repeated failures do not fill the disk: the oldest, which has the data
  /// that was lost first, and the latest files.
  private static var keptFiles: Int { 3 }

  /// Puts a complete file in place of the file at `path`. The replaced file is kept under another name, which is
  /// returned.
  static func putInPlace(_ new: String, of path: String) throws(SQLiteDatabase.Failure) -> String {
    let failed = unusedName("\(path).failed-\(ProcessInformation.wallClockSeconds())")
    // The failed file gets a second name first, so that there is a file at `path` all the time. On a file system
    // without hard links, it is renamed.
    if unsafe link(path, failed) != 0 { try rename(path, failed) }
    // The failed file is useless without its log, and the log must not be applied to the new file.
    try rename(path + "-wal", failed + "-wal")
    try rename(new, path)
    // The log of the new file is empty.
    _ = unsafe unlink(new + "-wal")
    let result = synchroniseFolder(of: path)
    guard result == 0 else { throw failure("the folder cannot be synchronised", result) }
    removeOldFailedFiles(of: path)
    return failed
  }

  /// Returns `name`, with a number appended if the name is used: another file may have failed in the same second.
  private static func unusedName(_ name: String) -> String {
    var (result, number) = (name, 1)
    while unsafe access(result, F_OK) == 0 || access(result + "-wal", F_OK) == 0 {
      number += 1
      result = "\(name)-\(number)"
    }
    return result
  }

  /// Completes a replacement that the end of a process has interrupted, or removes an incomplete new file.
  static func completeReplacement(of path: String, _ environment: Environment) throws(StoreError) {
    let name = path + newSuffix
    guard unsafe access(name, F_OK) != 0 || !isBackup(name, environment) else {
      throw .failed(path: path, reason: "'\(name)' is a backup, and the store uses this name itself: rename it")
    }
    do throws(SQLiteDatabase.Failure) {
      let new = path + newSuffix
      guard unsafe access(new, F_OK) == 0 else { return }
      if try isComplete(new, environment, emptyingLog: true) { _ = try putInPlace(new, of: path) } else { remove(new) }
    } catch {
      throw storeError(error, path)
    }
  }

  /// The file that the next start will use: the new file if a replacement was interrupted, else the file at `path`.
  static func fileToUse(_ path: String) throws(StoreError) -> String {
    do throws(SQLiteDatabase.Failure) {
      let new = path + newSuffix
      guard unsafe access(new, F_OK) == 0 else { return path }
      guard !isBackup(new, Environment()) else { return path }
      return try isComplete(new, Environment(), emptyingLog: false) ? new : path
    } catch {
      throw storeError(error, path)
    }
  }

  /// Whether the file is a backup, which must be neither removed nor used as a replacement.
  private static func isBackup(_ path: String, _ environment: Environment) -> Bool {
    do throws(SQLiteDatabase.Failure) {
      let database = try SQLiteDatabase(path, fileSystem: environment.fileSystem)
      database.keepLogOnClose(true)
      try database.execute("PRAGMA locking_mode=EXCLUSIVE; PRAGMA query_only=ON")
      return try database.text("SELECT value FROM meta WHERE name = '\(StoreSchema.Meta.isBackup)'") == "1"
    } catch {
      return false
    }
  }

  /// - Parameter emptiesLog: whether to copy the log to the file. This is necessary before the file is renamed.
  private static func isComplete(
    _ path: String, _ environment: Environment, emptyingLog emptiesLog: Bool
  ) throws(SQLiteDatabase.Failure) -> Bool {
    do throws(SQLiteDatabase.Failure) {
      let database = try SQLiteDatabase(path, fileSystem: environment.fileSystem)
      database.keepLogOnClose(true)
      try database.execute("PRAGMA locking_mode=EXCLUSIVE; PRAGMA query_only=ON")
      let result = try database.text("SELECT value FROM meta WHERE name = '\(StoreSchema.Meta.isClean)'") == "1"
      if result, emptiesLog { try database.checkpoint(.truncating) }
      return result
    } catch {
      // The file has no tables yet, or cannot be read.
      if error.primaryCode == 1 || error.isDamaged { return false }
      throw error
    }
  }

  /// Whether the store at `path` creates, replaces or removes a file of this name.
  private static func isReserved(_ target: String, of path: String) -> Bool {
    // The target does not exist, so only links in the path of its folder are followed.
    let name = target.lastIndex(of: "/").map { target[target.index(after: $0)...] } ?? target[...]
    let target = "\(StorePlace.resolved(StorePlace.folder(of: target)))/\(name)"
    let path = StorePlace.resolved(path)
    let suffixes = ["-wal", "-shm", "-journal", ".lock", StoreControl.suffix, newSuffix, newSuffix + "-wal"]
    return target.hasPrefix(path + ".failed-") || suffixes.contains { target == path + $0 }
  }

  /// The suffix of a copy while it is being written.
  static var partialSuffix: String { ".partial" }

  /// Writes a copy to `path`, where no file may exist, and marks it as a backup. Returns the reason of a failure; nil
  /// after a success.
  func backUp(to path: String, unless cancellation: Cancellation = Cancellation()) -> String? {
    guard !Self.isReserved(path, of: self.path) else {
      return "'\(path)' is a name that the store uses itself: use another name"
    }
    guard unsafe access(path, F_OK) != 0 else { return "'\(path)' exists" }
    // Only a complete copy gets the final name.
    let partial = path + Self.partialSuffix
    guard unsafe access(partial, F_OK) != 0 else {
      return "'\(partial)' exists: a backup was not completed. Remove the file"
    }
    do throws(StoreError) {
      try Self.create(partial)
    } catch {
      return "'\(partial)' cannot be created: \(error.reason)"
    }
    do throws(SQLiteDatabase.Failure) {
      try database.execute("PRAGMA query_only=OFF")
      try database.unless(cancellation) { () throws(SQLiteDatabase.Failure) in
        try database.run("VACUUM INTO ?") { statement throws(SQLiteDatabase.Failure) in try statement.bind(1, partial) }
      }
      do {
        let copy = try SQLiteDatabase(partial)
        try copy.execute("PRAGMA synchronous=FULL")
        try copy.execute("INSERT OR REPLACE INTO meta VALUES ('\(StoreSchema.Meta.isBackup)', '1')")
      }
      try Self.synchronise(partial)
      // Unlike a renaming, a link does not replace a file that has appeared since the check.
      if unsafe link(partial, path) == 0 {
        _ = unsafe unlink(partial)
      } else if errno == EEXIST {
        throw Self.failure("'\(path)' exists", EEXIST)
      } else {
        try Self.rename(partial, path)
      }
      let result = Self.synchroniseFolder(of: path)
      guard result == 0 else { throw Self.failure("the folder cannot be synchronised", result) }
      return nil
    } catch {
      Self.remove(partial)
      if cancellation.isOver { return Self.backupTimeout }
      return cancellation.isSet ? "the gateway is stopping" : "\(error)"
    }
  }

  static var backupTimeout: String { "the copy took too long, and nothing is stored meanwhile: use a faster disk" }

  private static func synchronise(_ path: String) throws(SQLiteDatabase.Failure) {
    let descriptor = unsafe Glibc.open(path, O_RDONLY | O_CLOEXEC)
    guard descriptor >= 0 else { throw failure("'\(path)' cannot be opened", errno) }
    defer { _ = Glibc.close(descriptor) }
    guard fsync(descriptor) == 0 else { throw failure("'\(path)' cannot be synchronised", errno) }
  }

  // MARK: Files

  private static func removeOldFailedFiles(of path: String) {
    let folder = StorePlace.folder(of: path) + "/"
    let name = path.lastIndex(of: "/").map { path[path.index(after: $0)...] } ?? path[...]
    let prefix = name + ".failed-"
    var names = names(in: folder).filter { $0.hasPrefix(prefix) && !$0.hasSuffix("-wal") }
    names.sort()
    for name in names.dropFirst().dropLast(keptFiles - 1) { remove(folder + name) }
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
    // A file that does not exist needs no other name.
    if code != ENOENT { throw failure("'\(old)' cannot be renamed", code) }
  }

  private static func failure(_ message: String, _ code: Int32) -> SQLiteDatabase.Failure {
    SQLiteDatabase.Failure(code: 1, systemCode: code, message: message)
  }
}
