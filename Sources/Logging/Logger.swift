import ByteStreams
import CLinux
import CLinux
import Glibc
import JSONCodec
import Threading

/// How much somebody wants to know, least first.
package enum LogLevel: Int, Comparable, CaseIterable, Sendable {
  case trace, debug, info, warning, error

  package init?(name: String) {
    guard let level = Self.allCases.first(where: { $0.name == name }) else { return nil }
    self = level
  }

  package var name: String {
    switch self {
    case .trace: "trace"
    case .debug: "debug"
    case .info: "info"
    case .warning: "warning"
    case .error: "error"
    }
  }

  package static func < (left: LogLevel, right: LogLevel) -> Bool { left.rawValue < right.rawValue }
}

/// One named fact of a log line. Never a payload, a token, or anything a user sent.
package struct LogField: Sendable {
  enum Value: Sendable {
    case text(String)
    case number(Int)
    case fraction(Double)
    case flag(Bool)
  }
  let name: StaticString
  let value: Value

  package static func text(_ name: StaticString, _ value: String) -> LogField {
    LogField(name: name, value: .text(value))
  }
  package static func number(_ name: StaticString, _ value: Int) -> LogField {
    LogField(name: name, value: .number(value))
  }
  package static func fraction(_ name: StaticString, _ value: Double) -> LogField {
    LogField(name: name, value: .fraction(value))
  }
  package static func flag(_ name: StaticString, _ value: Bool) -> LogField {
    LogField(name: name, value: .flag(value))
  }
}

/// The log: lines for a person on a terminal, JSON lines for anybody else, to standard error.
///
/// Writing a line never waits: lines go into a bounded buffer that one thread empties. What does not fit is counted, and
/// the count is told as soon as there is room.
package final class Logger: Sendable {
  package enum Format: Sendable { case text, coloredText, json }

  /// Bytes that may wait for a slow terminal or pipe.
  package static let bufferLimit = 1 << 20

  package let level: LogLevel
  private let format: Format
  private let output: Int32
  private let wake: Int32

  private struct State: ~Copyable {
    var buffer = ByteQueue()
    var dropped = 0
    var clock = TimestampWriter()
  }
  private let state = Locked(State())
  /// Held while writing, so that a flush and the thread do not mix their lines.
  private let writing = Locked(())

  package init(level: LogLevel, format: Format, output: Int32 = STDERR_FILENO) {
    self.level = level
    self.format = format
    self.output = output
    wake = eventfd(0, O_CLOEXEC)
    precondition(wake >= 0, "no eventfd for the log")
  }

  /// The format that suits `output`: text on a terminal (coloured unless NO_COLOR is set), else JSON.
  package static func suitableFormat(for output: Int32 = STDERR_FILENO) -> Format {
    guard isatty(output) == 1 else { return .json }
    guard let variable = unsafe getenv("NO_COLOR") else { return .coloredText }
    return unsafe variable.pointee == 0 ? .coloredText : .text
  }

  /// Starts the thread that empties the buffer. Until then, and after it, `flush()` does so.
  package func start() {
    _ = DetachedThread.start(named: "log") { self.serve() }
  }

  @inline(__always)
  package func log(_ level: LogLevel, _ message: StaticString, _ fields: @autoclosure () -> [LogField] = []) {
    if level >= self.level { write(level, message, fields()) }
  }

  package func debug(_ message: StaticString, _ fields: @autoclosure () -> [LogField] = []) {
    log(.debug, message, fields())
  }
  package func info(_ message: StaticString, _ fields: @autoclosure () -> [LogField] = []) {
    log(.info, message, fields())
  }
  package func warning(_ message: StaticString, _ fields: @autoclosure () -> [LogField] = []) {
    log(.warning, message, fields())
  }
  package func error(_ message: StaticString, _ fields: @autoclosure () -> [LogField] = []) {
    log(.error, message, fields())
  }

  private func write(_ level: LogLevel, _ message: StaticString, _ fields: [LogField]) {
    var time = timespec()
    unsafe clock_gettime(CLOCK_REALTIME, &time)
    let milliseconds = Int64(time.tv_sec) * 1000 + Int64(time.tv_nsec) / 1_000_000
    let wasEmpty = state.withLock { state in
      let wasEmpty = state.buffer.isEmpty
      guard state.buffer.count < Self.bufferLimit else {
        state.dropped += 1
        return false
      }
      if state.dropped > 0 {
        let dropped = state.dropped
        state.dropped = 0
        append(&state, .warning, "log lines were dropped", [.number("count", dropped)], milliseconds)
      }
      append(&state, level, message, fields, milliseconds)
      return wasEmpty
    }
    guard wasEmpty else { return }
    var one: UInt64 = 1
    unsafe Glibc.write(wake, &one, 8)
  }

  private func append(
    _ state: inout State, _ level: LogLevel, _ message: StaticString, _ fields: [LogField], _ milliseconds: Int64
  ) {
    switch format {
    case .json:
      state.buffer.append("{\"time\":\"" as StaticString)
      state.clock.write(milliseconds: milliseconds, into: &state.buffer)
      state.buffer.append("\",\"level\":\"")
      state.buffer.append(level.name)
      state.buffer.append("\",\"message\":")
      state.buffer.append(jsonString: message.description)
      for field in fields {
        state.buffer.append(",\"" as StaticString)
        state.buffer.append(field.name)
        state.buffer.append("\":" as StaticString)
        switch field.value {
        case .text(let text): state.buffer.append(jsonString: text)
        case .number(let number): state.buffer.append(decimal: number)
        case .fraction(let fraction): state.buffer.append(fraction.isFinite ? String(fraction) : "null")
        case .flag(let flag): state.buffer.append(flag ? "true" as StaticString : "false")
        }
      }
      state.buffer.append("}\n" as StaticString)
    case .text, .coloredText:
      state.clock.write(milliseconds: milliseconds, into: &state.buffer)
      let (start, end) = format == .coloredText ? (level.color, "\u{1B}[0m") : ("", "")
      let padding = String(repeating: " ", count: 8 - level.name.count)
      state.buffer.append(" \(start)\(level.name)\(end)\(padding)\(message)")
      for field in fields {
        state.buffer.append("  ")
        state.buffer.append(field.name)
        state.buffer.append("=")
        switch field.value {
        case .text(let text): appendReadable(text, to: &state.buffer)
        case .number(let number): state.buffer.append(decimal: number)
        case .fraction(let fraction): state.buffer.append(String(fraction))
        case .flag(let flag): state.buffer.append(flag ? "true" as StaticString : "false")
        }
      }
      state.buffer.append("\n")
    }
  }

  /// Quoted where it would not read as one word; control characters can never reach the terminal.
  private func appendReadable(_ text: String, to buffer: inout ByteQueue) {
    let isPlain = !text.isEmpty && text.utf8.allSatisfy { $0 > 0x20 && $0 != 0x22 && $0 != 0x7F && $0 != 0x5C }
    if isPlain { buffer.append(text) } else { buffer.append(jsonString: text) }
  }

  /// Writes out everything that waits; for the end of the process.
  package func flush() {
    writing.withLock { _ in
      var pending = state.withLock { state in
        var taken = ByteQueue()
        swap(&taken, &state.buffer)
        return taken
      }
      while !pending.isEmpty {
        let written = unsafe pending.bytes.withUnsafeBytes { unsafe Glibc.write(output, $0.baseAddress, $0.count) }
        if written > 0 {
          pending.consume(written)
        } else if errno != EINTR {
          return
        }
      }
    }
  }

  private func serve() {
    while true {
      var count: UInt64 = 0
      unsafe Glibc.read(wake, &count, 8)
      flush()
    }
  }
}

extension LogLevel {
  fileprivate var color: String {
    switch self {
    case .trace, .debug: "\u{1B}[2m"
    case .info: "\u{1B}[32m"
    case .warning: "\u{1B}[33m"
    case .error: "\u{1B}[31m"
    }
  }
}
