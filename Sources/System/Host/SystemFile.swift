import ByteStreams
import CLinux
import Glibc

/// Why a file could not be read. The description continues a sentence that begins with the file's name.
package enum FileError: Error, Equatable, Sendable, CustomStringConvertible {
  case failed(Int32)
  /// A FIFO, a pipe or a device did not end in time.
  case timedOut(after: TimeSpan)

  package var description: String {
    switch self {
    case .failed(let code): SystemError.reason(of: code)
    case .timedOut(let limit): "it did not end within \(limit.secondsText) s"
    }
  }
}

/// Small files, of the system and of the configuration; and the environment.
package enum SystemFile {
  /// Default timeout for a FIFO, a pipe or a device. A person has enough time to type, and a device that was given by
  /// mistake does not block the program forever.
  private static var defaultTimeout: TimeSpan { .seconds(10) }

  /// The text of `path`, at most its first 4 KiB; nil if it cannot be read.
  static func read(_ path: String) -> String? {
    bytes(of: path, atMost: 4096).map { String(decoding: $0, as: UTF8.self) }
  }

  /// The first `limit` bytes of `path`; nil if it cannot be read.
  package static func bytes(of path: String, atMost limit: Int) -> [UInt8]? {
    try? contents(of: path, atMost: limit, within: defaultTimeout)
  }

  /// Returns the first `limit` bytes of `path`. Blocks: on a FIFO, a pipe or a device for at most `span`, on a regular
  /// file for as long as its file system takes.
  package static func contents(
    of path: String, atMost limit: Int, within span: TimeSpan
  ) throws(FileError) -> [UInt8] {
    let descriptor = try openWithoutWaiting(path)
    defer { SystemCall.close(descriptor) }
    let deadline = Deadline(after: span)
    var result: [UInt8] = []
    var piece = [UInt8](repeating: 0, count: 16 * 1024)
    while result.count < limit {
      // A read of a FIFO that no writer has opened yet returns 0, as at its end. But poll(2) does not report such a
      // FIFO as readable, so this call waits for a writer.
      guard deadline.waitUntilReadable(descriptor) else { throw .timedOut(after: span) }
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

  /// Opens `path` in non-blocking mode. A blocking open of a FIFO would wait for a writer.
  private static func openWithoutWaiting(_ path: String) throws(FileError) -> Int32 {
    var descriptor = unsafe open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK)
    // EAGAIN means that another process has a lease on the file (fcntl(2), F_SETLEASE). A blocking open gives that
    // process time to release the lease.
    if descriptor < 0, errno == EAGAIN { descriptor = unsafe open(path, O_RDONLY | O_CLOEXEC) }
    guard descriptor >= 0 else { throw .failed(errno) }
    return descriptor
  }

  /// The environment variables of this process.
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
