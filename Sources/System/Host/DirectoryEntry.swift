import CLinux
import Glibc

/// A name in a directory, which is a part of the path of a file.
struct DirectoryEntry: Hashable {
  let directory: String
  let name: String

  var path: String { directory == "/" ? "/" + name : directory + "/" + name }

  /// The maximum number of symbolic links that the kernel follows in one path (path_resolution(7)).
  private static var linkLimit: Int { 40 }

  /// Returns every name that decides to which file `path` leads, with symbolic links followed. A change to any of them
  /// can make `path` lead to another file. The last entry is the file itself, or the first name that does not exist.
  static func all(leadingTo path: String) -> [DirectoryEntry] {
    var entries: [DirectoryEntry] = []
    var directory = path.hasPrefix("/") ? "/" : "."
    var rest = path.split(separator: "/").map(String.init)
    var links = 0
    while !rest.isEmpty {
      let entry = DirectoryEntry(directory: directory, name: rest.removeFirst())
      // All links in `directory` have been followed, so removing its last part gives the same parent that the kernel
      // uses for `..`.
      guard entry.name != ".", entry.name != ".." else {
        if entry.name == ".." { directory = entry.path }
        continue
      }
      entries.append(entry)
      var status = stat()
      guard unsafe lstat(entry.path, &status) == 0 else { break }
      guard status.st_mode & S_IFMT == S_IFLNK else {
        directory = entry.path
        continue
      }
      links += 1
      guard links <= linkLimit, let target = linkTarget(of: entry.path) else { break }
      if target.hasPrefix("/") { directory = "/" }
      rest = target.split(separator: "/").map(String.init) + rest
    }
    return entries
  }

  private static func linkTarget(of path: String) -> String? {
    var buffer = [CChar](repeating: 0, count: Int(PATH_MAX))
    let count = unsafe readlink(path, &buffer, buffer.count)
    return count > 0 ? String(decoding: buffer[..<count].map(UInt8.init(bitPattern:)), as: UTF8.self) : nil
  }
}
