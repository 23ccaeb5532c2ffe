import CLinux
import Glibc

/// What the kernel knows of this process.
package enum ProcessFacts {
  package static func wallClockSeconds() -> Int { Int(SystemCall.wallClockMilliseconds() / 1000) }

  package static func processorSeconds() -> Double {
    var usage = rusage()
    unsafe _ = getrusage(__rusage_who_t(RUSAGE_SELF.rawValue), &usage)
    let user = Double(usage.ru_utime.tv_sec) + Double(usage.ru_utime.tv_usec) / 1e6
    return user + Double(usage.ru_stime.tv_sec) + Double(usage.ru_stime.tv_usec) / 1e6
  }

  package static func residentBytes() -> Int {
    guard let text = SystemFile.read("/proc/self/statm") else { return 0 }
    let words = text.split(separator: " ")
    return words.count > 1 ? (Int(words[1]) ?? 0) * Int(sysconf(Int32(_SC_PAGESIZE))) : 0
  }

  package static func openDescriptors() -> Int {
    guard let directory = unsafe opendir("/proc/self/fd") else { return 0 }
    defer { unsafe _ = closedir(directory) }
    var count = -3
    while unsafe readdir(directory) != nil { count += 1 }
    return max(0, count)
  }
}

/// Small files: of the system, of the configuration.
package enum SystemFile {
  /// The text of `path`, at most its first 4 KiB.
  static func read(_ path: String) -> String? {
    bytes(of: path, atMost: 4096).map { String(decoding: $0, as: UTF8.self) }
  }

  /// The bytes of `path`; nil where it cannot be read.
  package static func bytes(of path: String, atMost limit: Int) -> [UInt8]? {
    let descriptor = unsafe open(path, O_RDONLY | O_CLOEXEC)
    guard descriptor >= 0 else { return nil }
    defer { SystemCall.close(descriptor) }
    var result: [UInt8] = []
    var piece = [UInt8](repeating: 0, count: 16 * 1024)
    while result.count < limit {
      let count = SystemCall.retrying { unsafe Glibc.read(descriptor, &piece, min(piece.count, limit - result.count)) }
      guard count >= 0 else { return nil }
      if count == 0 { break }
      result += piece[..<count]
    }
    return result
  }

  /// The variables of the environment.
  package static func environment() -> [String: String] {
    var result: [String: String] = [:]
    var entry = unsafe environ
    while let current = unsafe entry.pointee {
      let text = unsafe String(cString: current)
      if let equals = text.firstIndex(of: "=") {
        result[String(text[..<equals])] = String(text[text.index(after: equals)...])
      }
      unsafe entry += 1
    }
    return result
  }
}
