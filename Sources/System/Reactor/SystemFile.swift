import ByteStreams
import CLinux
import Glibc

/// Why a file could not be read; reads on after its name.
package enum FileError: Error, Equatable, Sendable, CustomStringConvertible {
  case failed(Int32)
  /// A FIFO, a pipe or a device whose end has not come.
  case endless(after: TimeSpan)

  package var description: String {
    switch self {
    case .failed(let code): SystemError.reason(of: code)
    case .endless(let limit): "its end has not come within \(limit.seconds) s"
    }
  }
}

/// Small files: of the system, of the configuration.
package enum SystemFile {
  /// How long a FIFO, a pipe or a device may take where nothing else is said. A person who types has had the time, and a file
  /// given by mistake does not stop the program for ever.
  private static var patience: TimeSpan { .seconds(10) }

  /// The text of `path`, at most its first 4 KiB.
  static func read(_ path: String) -> String? {
    bytes(of: path, atMost: 4096).map { String(decoding: $0, as: UTF8.self) }
  }

  /// The bytes of `path`; nil where it cannot be read.
  package static func bytes(of path: String, atMost limit: Int) -> [UInt8]? {
    try? contents(of: path, atMost: limit, within: patience)
  }

  /// The first `limit` bytes of `path`. Blocks: no longer than `span` where it is a FIFO, a pipe or a device; where it is a
  /// file, for as long as its file system takes.
  package static func contents(
    of path: String, atMost limit: Int, within span: TimeSpan
  ) throws(FileError) -> [UInt8] {
    let descriptor = try openWithoutWaiting(path)
    defer { SystemCall.close(descriptor) }
    let deadline = Deadline(after: span)
    var result: [UInt8] = []
    var piece = [UInt8](repeating: 0, count: 16 * 1024)
    while result.count < limit {
      // A FIFO that nobody has opened to write yet reads as if it were at its end; it is not readable, though.
      guard deadline.waitUntilReadable(descriptor) else { throw .endless(after: span) }
      let count = SystemCall.retrying { unsafe Glibc.read(descriptor, &piece, min(piece.count, limit - result.count)) }
      if count == 0 { break }
      if count > 0 {
        result += piece[..<count]
      } else if errno != EAGAIN {
        throw .failed(errno)
      }
    }
    return result
  }

  /// Opening a FIFO waits for a writer, unless it is told not to.
  private static func openWithoutWaiting(_ path: String) throws(FileError) -> Int32 {
    var descriptor = unsafe open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK)
    // Another process holds a lease (fcntl(2), F_SETLEASE), which it is given time to end.
    if descriptor < 0, errno == EAGAIN { descriptor = unsafe open(path, O_RDONLY | O_CLOEXEC) }
    guard descriptor >= 0 else { throw .failed(errno) }
    return descriptor
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
