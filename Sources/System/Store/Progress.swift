import ByteStreams
import CLinux
import Glibc
import Threading

/// Reports the progress of a call that has no progress reports of its own. A separate thread calls `report` at
/// intervals until `body` returns.
enum ProgressReports {
  static func during<Result, Failure: Error>(
    _ interval: TimeSpan, report: @escaping @Sendable () -> Void, _ body: () throws(Failure) -> Result
  ) throws(Failure) -> Result {
    let end = ReportsEnd()
    // If the thread cannot be started, there are no reports.
    _ = DetachedThread.start(named: "progress") { while end.wait(atMost: interval, otherwise: report) {} }
    defer { end.set() }
    return try body()
  }

  private final class ReportsEnd: Sendable {
    private let isSet = Locked<Bool>(false)
    private let signal = eventfd(0, O_CLOEXEC)

    deinit { _ = Glibc.close(signal) }

    /// No report is made after this call.
    func set() {
      isSet.withLock { $0 = true }
      var one: UInt64 = 1
      _ = unsafe Glibc.write(signal, &one, 8)
    }

    /// Calls `report` and returns true, or returns false at the end.
    func wait(atMost interval: TimeSpan, otherwise report: () -> Void) -> Bool {
      var event = pollfd(fd: signal, events: Int16(POLLIN), revents: 0)
      _ = unsafe poll(&event, 1, Int32(clamping: interval.millisecondsRoundedUp))
      return isSet.withLock { isSet in
        if !isSet { report() }
        return !isSet
      }
    }
  }
}

/// Counts the bytes that one thread reads from files: the thread that calls `init`, from this call on. Any thread can
/// read the count.
final class ReadCounter: Sendable {
  /// The file of the creating thread: proc_pid_io(5).
  private let descriptor = unsafe open("/proc/thread-self/io", O_RDONLY | O_CLOEXEC)
  private let start: Int

  init() { start = Self.total(descriptor) ?? 0 }

  deinit { if descriptor >= 0 { _ = Glibc.close(descriptor) } }

  /// nil if the kernel does not count these bytes.
  var bytes: Int? { Self.total(descriptor).map { $0 - start } }

  /// The first line of the file is like "rchar: 4292".
  private static func total(_ descriptor: Int32) -> Int? {
    guard descriptor >= 0 else { return nil }
    var text = [UInt8](repeating: 0, count: 256)
    let count = unsafe pread(descriptor, &text, text.count, 0)
    guard count > 0 else { return nil }
    let words = text[..<count].split { $0 == UInt8(ascii: " ") || $0 == UInt8(ascii: "\n") }
    guard words.count >= 2, words[0].elementsEqual("rchar:".utf8) else { return nil }
    return Int(String(decoding: words[1], as: UTF8.self))
  }
}
