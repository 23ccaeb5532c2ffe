import ByteStreams
import CLinux
import Glibc
import Synchronization
import Threading

/// The output of the log, to standard error or another descriptor: text for a terminal, JSON lines otherwise.
///
/// Logging a line never blocks: lines are put into a bounded buffer that one thread writes out. Lines that do not fit
/// into the buffer, and lines that the output refuses, are lost. They are counted, and a log line reports their number.
package final class LogWriter: Sendable {
  package enum Format: Sendable {
    case text, coloredText, json

    /// The format of the fields of each line.
    var fields: LogFieldFormat { self == .json ? .json : .text }
  }

  /// Maximum bytes that wait for a slow terminal or pipe. Above it, lines are dropped.
  package static let bufferLimit = 1 << 20
  /// The part of the buffer that lines about requests may use, so that they never displace a warning.
  package static let requestBufferLimit = bufferLimit / 2

  private let minimum: Atomic<Int>
  let format: Format
  private let output: Int32
  private let wake: Int32

  private struct State: ~Copyable {
    var buffer = ByteQueue()
    /// Lines lost since the last report.
    var dropped = 0
    var clock = TimestampWriter()
    /// Whether a thread is writing bytes that it has taken from the buffer.
    var isWriting = false
    /// Whether the writing thread has been started.
    var isStarted = false
  }
  private let state = Locked(State())
  /// Locked during a write, so that a flush and the thread do not mix their lines.
  private let writing = Locked(())

  package static let standardError = STDERR_FILENO

  init(level: LogLevel, format: Format, output: Int32) {
    minimum = Atomic(level.rawValue)
    self.format = format
    self.output = output
    wake = eventfd(0, O_CLOEXEC)
    precondition(wake >= 0, "no eventfd for the log")
  }

  /// The default format for `output`: text if it is a terminal (coloured unless NO_COLOR has a value), otherwise JSON.
  static func defaultFormat(for output: Int32) -> Format {
    guard isatty(output) == 1 else { return .json }
    guard let variable = unsafe getenv("NO_COLOR") else { return .coloredText }
    return unsafe variable.pointee == 0 ? .coloredText : .text
  }

  /// The lowest level that is written. May be changed at any time, from any thread.
  var level: LogLevel {
    get { LogLevel(rawValue: minimum.load(ordering: .relaxed)) ?? .info }
    set { minimum.store(newValue.rawValue, ordering: .relaxed) }
  }

  @inline(__always)
  func isEnabled(_ level: LogLevel) -> Bool { level.rawValue >= minimum.load(ordering: .relaxed) }

  func write(_ level: LogLevel, _ message: StaticString, _ fields: [LogField]) {
    let line = LogLine(level: level, message: message, milliseconds: Self.now())
    let wasEmpty = state.withLock { state in
      let wasEmpty = state.buffer.isEmpty
      guard state.buffer.count < Self.bufferLimit else {
        state.dropped += 1
        return false
      }
      line.write(fields, format, &state.clock, into: &state.buffer)
      return wasEmpty
    }
    if wasEmpty { wakeWriter() }
  }

  /// Writes a line about one request. `fields` must be in the format of this log (`Format.fields`).
  func writeRequest(_ message: StaticString, _ fields: borrowing ByteQueue) {
    let line = LogLine(level: .info, message: message, milliseconds: Self.now())
    let wasEmpty = state.withLock { state in
      let wasEmpty = state.buffer.isEmpty
      guard state.buffer.count < Self.requestBufferLimit else {
        state.dropped += 1
        return false
      }
      line.begin(format, &state.clock, into: &state.buffer)
      state.buffer.append(fields.bytes)
      LogLine.end(format, into: &state.buffer)
      return wasEmpty
    }
    if wasEmpty { wakeWriter() }
  }

  private func wakeWriter() {
    var one: UInt64 = 1
    unsafe Glibc.write(wake, &one, 8)
  }

  private static func now() -> Int64 {
    var time = timespec()
    unsafe clock_gettime(CLOCK_REALTIME, &time)
    return Int64(time.tv_sec) * 1000 + Int64(time.tv_nsec) / 1_000_000
  }

  // MARK: Writing

  /// Starts the thread that writes the buffer. If it was not started, only `flush()` writes.
  func start() {
    let isStarted = DetachedThread.start(named: "log") { self.serve() }
    state.withLock { $0.isStarted = isStarted }
  }

  private func serve() {
    while true {
      var count: UInt64 = 0
      unsafe Glibc.read(wake, &count, 8)
      flush()
    }
  }

  /// Whether no bytes are pending or being written. Called repeatedly at the end of the process. If the thread could
  /// not be started, this property writes as much as the output accepts without blocking, so that a pipe without a
  /// reader does not delay the end.
  var isWritten: Bool {
    if !state.withLock({ $0.isStarted }) { writePending(mayBlock: false) }
    return state.withLock { $0.buffer.isEmpty && !$0.isWriting }
  }

  /// Writes all pending lines. Blocks while the output accepts nothing.
  func flush() { writePending(mayBlock: true) }

  private func writePending(mayBlock: Bool) {
    writing.withLock { _ in
      var batch = take()
      while !batch.bytes.isEmpty {
        // A pipe that is reported writable has room for PIPE_BUF bytes (pipe(7)), so a write of that size never blocks.
        if !mayBlock, !isWritable(within: 0) { return putBack(batch) }
        let most = mayBlock ? batch.bytes.count : min(batch.bytes.count, Int(PIPE_BUF))
        let written = unsafe batch.bytes.bytes.withUnsafeBytes { unsafe Glibc.write(output, $0.baseAddress, most) }
        if written > 0 {
          batch.bytes.consume(written)
        } else if errno == EAGAIN {
          // The output would block: another process that has the same output open has made it non-blocking.
          guard mayBlock else { return putBack(batch) }
          _ = isWritable(within: -1)
        } else if errno != EINTR {
          break
        }
      }
      var lost = batch.bytes.bytes.count(of: UInt8(ascii: "\n"))
      // A report about lost lines is the last line of a batch. If the report is lost, its number must be reported
      // again.
      if lost > 0, batch.reported > 0 { lost += batch.reported - 1 }
      state.withLock { state in
        state.isWriting = false
        state.dropped += lost
      }
    }
  }

  /// Whether the output becomes writable within `milliseconds`; -1 means no limit.
  private func isWritable(within milliseconds: Int32) -> Bool {
    var wanted = pollfd(fd: output, events: Int16(POLLOUT), revents: 0)
    return unsafe poll(&wanted, 1, milliseconds) > 0
  }

  /// Puts the bytes that the output did not accept back into the buffer, before the lines that were added since the
  /// bytes were taken.
  private func putBack(_ batch: borrowing Batch) {
    state.withLock { state in
      var whole = ByteQueue(capacity: batch.bytes.count + state.buffer.count)
      whole.append(batch.bytes.bytes)
      whole.append(state.buffer.bytes)
      swap(&whole, &state.buffer)
      state.isWriting = false
    }
  }

  /// Lines that are written together.
  private struct Batch: ~Copyable {
    var bytes = ByteQueue()
    /// The number of lost lines that the last line reports; 0 if there is no such line.
    var reported = 0
  }

  private func take() -> Batch {
    state.withLock { state in
      var batch = Batch()
      if state.dropped > 0 {
        batch.reported = state.dropped
        state.dropped = 0
        let report = LogLine(level: .warning, message: "log lines were dropped", milliseconds: Self.now())
        report.write([.number("count", batch.reported)], format, &state.clock, into: &state.buffer)
      }
      swap(&batch.bytes, &state.buffer)
      state.isWriting = !batch.bytes.isEmpty
      return batch
    }
  }
}

extension Span where Element == UInt8 {
  fileprivate func count(of wanted: UInt8) -> Int {
    var count = 0
    for index in indices where self[index] == wanted { count += 1 }
    return count
  }
}
