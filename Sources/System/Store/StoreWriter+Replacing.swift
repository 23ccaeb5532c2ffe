import ByteStreams
import Glibc
import Host
import Journal
import Logging

/// Replaces a failed file, and makes backups.
extension StoreWriter {
  /// Writes the state of all sessions to a new file, and puts it in place of the failed file, which is kept under
  /// another name.
  func replaceFile() throws(SQLiteDatabase.Failure) -> StoreFile {
    let path = store.settings.path
    let new = path + StoreFile.newSuffix
    try renewLock(of: path)
    StoreFile.remove(new)
    // The new file is closed at the end of this block, because SQLite finds a write-ahead log by the name that the file
    // had when it was opened.
    do throws(SQLiteDatabase.Failure) {
      try writeAll(to: new)
    } catch {
      // On a full disk, an incomplete file must not use the remaining space.
      StoreFile.remove(new)
      throw error
    }
    let failed = try StoreFile.putInPlace(new, of: path)
    let file = try open(path)
    try file.begin(term: term, store.settings.sync)
    try file.synchronise(store.settings.sync == .always)
    store.logger.warning(
      "the store was written to a new file; the failed file is kept",
      [.text("path", path), .text("failed_file", failed)])
    return file
  }

  /// Takes the lock again if the folder was created again, since in this case the locked file has no name. Throws if
  /// another process has opened a store there in the meantime.
  private func renewLock(of path: String) throws(SQLiteDatabase.Failure) {
    guard !lock.isInPlace else { return }
    do throws(StoreError) {
      lock = try StoreLock.take(path)
    } catch {
      throw SQLiteDatabase.Failure(code: 1, systemCode: 0, message: "\(error)")
    }
  }

  private func open(_ path: String) throws(SQLiteDatabase.Failure) -> StoreFile {
    do throws(StoreError) {
      return try StoreFile.open(path, lock, environment)
    } catch {
      throw SQLiteDatabase.Failure(code: 1, systemCode: 0, message: "\(error)")
    }
  }

  private func writeAll(to path: String) throws(SQLiteDatabase.Failure) {
    let file = try open(path)
    for session in sessions.values { session.forgetRows() }
    try file.begin(term: term, store.settings.sync)
    try store(sessions(where: { !$0.isClosed }), in: file)
    try file.end()
  }

  /// Writes a copy of the stored data to `path`. Returns the reason of a failure; nil after a success.
  func backUp(to path: String, unless cancellation: Cancellation) -> String? {
    guard let file, retryAt == nil else { return "the store does not work at present" }
    // The request has timed out, and its client has got the error.
    guard !cancellation.isOver else { return StoreFile.backupTimeout }
    let start = ProcessInformation.monotonicTime()
    let (logger, bytes) = (store.logger, file.bytes)
    let reason = ProgressReports.during(environment.progressInterval) {
      let written = StorePlace.size(of: path + StoreFile.partialSuffix)
      logger.info(
        "backing up the store", [.text("backup", path), .number("bytes_written", written), .number("bytes", bytes)])
    } _: {
      file.backUp(to: path, unless: cancellation)
    }
    let duration = ProcessInformation.monotonicTime() - start
    if let reason {
      store.logger.error("the store was not backed up", [.text("backup", path), .text("reason", reason)])
    } else {
      store.logger.info(
        "the store was backed up",
        [.text("backup", path), .number("bytes", StorePlace.size(of: path)), .seconds("seconds", duration)])
    }
    return reason
  }
}

extension StoredSession {
  /// Called before the session is written to a new file.
  fileprivate func forgetRows() {
    setBehind()
    isKnown = false
    chunks.removeAll()
    changes = []
    changeBytes = 0
    stateBytes = 0
    storedPosition = 0
  }
}
