import CLinux
import Glibc

/// The identity, size and times of a regular file. At least one of them changes if the file is replaced or written.
package struct FileFingerprint: Hashable, Sendable {
  private let device: UInt
  private let inode: UInt
  private let size: Int
  private let modified: [Int]
  private let changed: [Int]

  /// Reads the fingerprint of the file that `path` leads to. Returns nil unless it is a regular file: a pipe cannot be
  /// read again.
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
