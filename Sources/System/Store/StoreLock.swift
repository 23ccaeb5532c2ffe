import ByteStreams
import Glibc
import Host

/// The right to use a store, which one process has at a time: a lock on the file `PATH.lock`.
///
/// SQLite's own lock ends when a failed file is closed, before another file replaces it. This lock lasts until it is
/// released. `PATH.lock` is never removed. If it were removed, a process could lock a file that no longer has a name.
/// If the folder was created again, the locked file has lost its name, and the lock must be taken again.
final class StoreLock {
  /// The time between two attempts, in microseconds.
  private static var pollInterval: UInt32 { 20_000 }

  let descriptor: Int32
  private let file: String

  private init(_ descriptor: Int32, _ file: String) {
    self.descriptor = descriptor
    self.file = file
  }

  deinit {
    // Closing the descriptor does not release the lock while a child process has a copy of it, between its fork and its
    // exec.
    _ = flock(descriptor, LOCK_UN)
    _ = Glibc.close(descriptor)
  }

  /// Whether the file still has its name. If not, another process can take the lock.
  var isInPlace: Bool {
    StorePlace.Identity(descriptor: descriptor).map { $0 == StorePlace.Identity(file) } ?? false
  }

  /// - Parameters:
  ///   - wait: how long to wait while another process has the lock.
  ///   - isCancelled: ends the wait early.
  static func take(
    _ path: String, waiting wait: TimeSpan = .zero, unless isCancelled: () -> Bool = { false }
  ) throws(StoreError) -> StoreLock {
    let file = path + ".lock"
    let descriptor = unsafe Glibc.open(file, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0o600)
    guard descriptor >= 0 else { throw StorePlace.refusal(of: errno, creating: file, for: path) }
    let lock = StoreLock(descriptor, file)
    let deadline = ProcessInformation.monotonicTime() + wait
    while flock(descriptor, LOCK_EX | LOCK_NB) != 0 {
      let code = errno
      if code == EINTR { continue }
      guard code == EWOULDBLOCK else {
        throw .failed(path: path, reason: "'\(file)' cannot be locked: \(SystemError.reason(of: code))")
      }
      guard ProcessInformation.monotonicTime() < deadline, !isCancelled() else { throw .inUse(path: path) }
      usleep(pollInterval)
    }
    return lock
  }
}

/// Checks the files at the path of a store, before SQLite opens it.
enum StorePlace {
  /// The path with symbolic links followed. So a store has one lock, whatever name is used for it, and a replacement
  /// does not replace a link.
  static func resolved(_ path: String) -> String {
    guard let resolved = unsafe realpath(path, nil) else { return path }
    defer { unsafe free(resolved) }
    return unsafe String(cString: resolved)
  }

  private static var smallestPage: off_t { 512 }

  /// Throws if SQLite would report the error less clearly, or would overwrite the file.
  static func check(_ path: String) throws(StoreError) {
    var status = stat()
    guard unsafe stat(path, &status) == 0 else {
      let code = errno
      guard code == ENOENT else { throw .failed(path: path, reason: SystemError.reason(of: code)) }
      if size(of: path + "-wal") > 0 {
        throw .damaged(path: path, reason: "the file is missing, and its write-ahead log '\(path)-wal' is not")
      }
      return
    }
    switch status.st_mode & S_IFMT {
    case S_IFREG: break
    case S_IFDIR: throw .failed(path: path, reason: "it is a folder: add the name of a file")
    default: throw .failed(path: path, reason: "it is not a regular file")
    }
    guard unsafe access(path, R_OK | W_OK) == 0 else {
      throw .failed(
        path: path, reason: "user \(geteuid()) may not read and write it (\(SystemError.reason(of: errno)))")
    }
    // SQLite treats a file without a complete header as an empty file.
    if status.st_size > 0, status.st_size < smallestPage {
      throw .damaged(path: path, reason: "it has only \(status.st_size) bytes, so it was cut or is not a database")
    }
    // SQLite would remove the log of an empty file.
    if status.st_size == 0, size(of: path + "-wal") > 0 {
      throw .damaged(path: path, reason: "the file is empty, and its write-ahead log is not")
    }
  }

  /// Throws the error with which a start would fail at present, if the names and permissions of the files show the
  /// error. Changes nothing.
  static func checkStart(_ path: String) throws(StoreError) {
    let path = resolved(path)
    // With the slash, a folder that is a file is reported as such.
    guard unsafe access(folder(of: path) + "/", W_OK | X_OK) == 0 else {
      throw refusal(of: errno, creating: path, for: path)
    }
    try check(path)
  }

  /// Explains why a file beside the store cannot be created.
  static func refusal(of code: Int32, creating file: String, for path: String) -> StoreError {
    let folder = folder(of: path)
    let reason =
      switch code {
      case ENOENT: "folder '\(folder)' does not exist: create it, writable for user \(geteuid())"
      case ENOTDIR: "'\(folder)' is not a folder"
      case EACCES, EPERM, EROFS:
        "user \(geteuid()) cannot create files in folder '\(folder)' (\(SystemError.reason(of: code)))"
      default: "'\(file)' cannot be created: \(SystemError.reason(of: code))"
      }
    return .failed(path: path, reason: reason)
  }

  static func folder(of path: String) -> String {
    path.lastIndex(of: "/").map { $0 == path.startIndex ? "/" : String(path[..<$0]) } ?? "."
  }

  /// The size of a file; 0 if there is none.
  static func size(of path: String) -> Int {
    var status = stat()
    return unsafe stat(path, &status) == 0 ? Int(status.st_size) : 0
  }

  /// Identifies a file independently of its name.
  struct Identity: Equatable {
    private let device: dev_t
    private let inode: ino_t

    /// Returns nil if there is no file.
    init?(_ path: String) {
      var status = stat()
      guard unsafe stat(path, &status) == 0 else { return nil }
      device = status.st_dev
      inode = status.st_ino
    }

    init?(descriptor: Int32) {
      var status = stat()
      guard unsafe fstat(descriptor, &status) == 0 else { return nil }
      device = status.st_dev
      inode = status.st_ino
    }
  }
}
