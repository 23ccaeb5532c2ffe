import CLinux
import Glibc

/// What shows that a regular file has been replaced or written: its identity, size and times.
package struct FileFingerprint: Hashable, Sendable {
  private let device: UInt
  private let inode: UInt
  private let size: Int
  private let modified: [Int]
  private let changed: [Int]

  /// Of the file that `path` leads to. Nil if there is none, or if it is not a regular file: a pipe cannot be read again.
  package init?(of path: String) {
    var status = stat()
    guard unsafe stat(path, &status) == 0, status.st_mode & S_IFMT == S_IFREG else { return nil }
    device = UInt(status.st_dev)
    inode = UInt(status.st_ino)
    size = Int(status.st_size)
    modified = [status.st_mtim.tv_sec, status.st_mtim.tv_nsec]
    changed = [status.st_ctim.tv_sec, status.st_ctim.tv_nsec]
  }
}
