import ByteStreams
import Glibc

/// The file and the folder of this process.
enum Program {
  /// The absolute path of the program, without symbolic links.
  static var path: String {
    var path = [CChar](repeating: 0, count: Int(PATH_MAX))
    let count = unsafe readlink("/proc/self/exe", &path, path.count)
    return String(decoding: path.prefix(max(0, count)).map(UInt8.init(bitPattern:)), as: UTF8.self)
  }

  /// The command by which a shell in any folder can run this program. It is the name of the program if the present
  /// shell has found the program by name, otherwise its path.
  static var command: String {
    guard let word = CommandLine.arguments.first, word.contains("/") else { return "drawbridge" }
    let path = absolute(word.hasPrefix("./") ? String(word.dropFirst(2)) : word)
    let isPlain = path.utf8.allSatisfy { ASCII.isUnreserved($0) && $0 != UInt8(ascii: "~") || $0 == UInt8(ascii: "/") }
    let parts = path.split(separator: "'", omittingEmptySubsequences: false)
    return isPlain ? path : "'\(parts.joined(separator: "'\\''"))'"
  }

  /// Returns the absolute form of a path that is relative to the working directory, so that another process can use it.
  static func absolute(_ path: String) -> String {
    guard !path.hasPrefix("/"), let folder = unsafe getcwd(nil, 0) else { return path }
    defer { unsafe free(folder) }
    return unsafe String(cString: folder) + "/" + path
  }
}
