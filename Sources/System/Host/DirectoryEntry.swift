import CLinux
import Glibc

/// A name in a directory, on the way to a file.
struct DirectoryEntry: Hashable {
  let directory: String
  let name: String

  var path: String { directory == "/" ? "/" + name : directory + "/" + name }

  /// As many symbolic links as the kernel follows in one path (path_resolution(7)).
  private static var linkLimit: Int { 40 }

  /// Every name that decides which file `path` leads to, with symbolic links followed. A change to any of them can
  /// change the file. The last entry is the file itself, or the first name that does not exist.
  static func all(leadingTo path: String) -> [DirectoryEntry] {
    var entries: [DirectoryEntry] = []
    var directory = path.hasPrefix("/") ? "/" : "."
    var rest = path.split(separator: "/").map(String.init)
    var links = 0
    while !rest.isEmpty {
      let entry = DirectoryEntry(directory: directory, name: rest.removeFirst())
      // The links of `directory` have been followed, so the kernel and the text agree on its parent.
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
