import Glibc

/// The file of a Unix-domain socket that this process has bound, identified by device and inode.
package struct SocketFile: Sendable {
  private let path: String
  private let device: dev_t
  private let inode: ino_t

  /// The socket file at `path`; nil if there is no file. Must be called right after binding.
  package init?(at path: String) {
    guard let status = Self.status(of: path) else { return nil }
    self.path = path
    device = status.st_dev
    inode = status.st_ino
  }

  /// Removes the file, unless another process has replaced it. Must be called while the socket still listens. No
  /// process replaces the file of a socket that accepts connections, so the file cannot change between the check and
  /// the removal. After the socket is closed, the file of another process could have the same inode number.
  package func remove() {
    guard isInPlace else { return }
    unsafe _ = unlink(path)
  }

  /// Whether the file at the path is still this file.
  package var isInPlace: Bool {
    Self.status(of: path).map { $0.st_dev == device && $0.st_ino == inode } ?? false
  }

  private static func status(of path: String) -> stat? {
    var status = stat()
    guard unsafe lstat(path, &status) == 0, status.st_mode & S_IFMT == S_IFSOCK else { return nil }
    return status
  }
}
