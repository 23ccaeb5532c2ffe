import ByteStreams

/// Writes log lines, each with the fields of its context. Copies made by `with` write to the same output.
///
/// Logging a line never blocks: see `LogWriter`.
package final class Logger: Sendable {
  package typealias Format = LogWriter.Format

  private let writer: LogWriter
  /// The fields that every line has before its own fields.
  private let context: [LogField]

  private init(_ writer: LogWriter, context: [LogField]) {
    self.writer = writer
    self.context = context
  }

  /// - Parameter output: the descriptor to write to; standard error by default.
  package convenience init(level: LogLevel, format: Format, output: Int32 = LogWriter.standardError) {
    self.init(LogWriter(level: level, format: format, output: output), context: [])
  }

  /// Returns a logger that adds `fields` to every line.
  package func with(_ fields: [LogField]) -> Logger { Logger(writer, context: context + fields) }

  /// The default format for `output`: text if it is a terminal (coloured unless NO_COLOR has a value), otherwise JSON.
  package static func defaultFormat(for output: Int32 = LogWriter.standardError) -> Format {
    LogWriter.defaultFormat(for: output)
  }

  /// The lowest level that is written, by every logger of this output. May be changed at any time, from any thread.
  package var level: LogLevel {
    get { writer.level }
    set { writer.level = newValue }
  }

  /// Starts the thread that writes lines. If it was not started, only `flush()` writes.
  package func start() { writer.start() }

  /// See `LogWriter.isWritten`.
  package var isWritten: Bool { writer.isWritten }

  /// Writes all pending lines. Blocks while the output accepts nothing.
  package func flush() { writer.flush() }

  @inline(__always)
  package func log(_ level: LogLevel, _ message: StaticString, _ fields: @autoclosure () -> [LogField] = []) {
    if writer.isEnabled(level) { writer.write(level, message, context.isEmpty ? fields() : context + fields()) }
  }

  /// Writes a line about one request at level `info`, even if the lowest level is higher, since these lines have a
  /// setting of their own. The line is dropped if half of the buffer is in use. The call allocates nothing. `fields`
  /// must be in `fieldFormat`.
  package func logRequest(_ message: StaticString, _ fields: borrowing ByteQueue) {
    writer.writeRequest(message, fields)
  }

  package var fieldFormat: LogFieldFormat { writer.format.fields }

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
}
