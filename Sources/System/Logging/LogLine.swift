import ByteStreams
import JSONCodec

/// One named field of a log line. It must never contain a payload, a token, or anything that a user sent.
package struct LogField: Sendable {
  enum Value: Sendable {
    case text(String)
    case number(Int)
    case seconds(TimeSpan)
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
  package static func seconds(_ name: StaticString, _ value: TimeSpan) -> LogField {
    LogField(name: name, value: .seconds(value))
  }
  package static func flag(_ name: StaticString, _ value: Bool) -> LogField {
    LogField(name: name, value: .flag(value))
  }
}

/// Formats one log line.
struct LogLine {
  let level: LogLevel
  let message: StaticString
  let milliseconds: Int64

  func write(
    _ fields: [LogField], _ format: Logger.Format, _ clock: inout TimestampWriter, into buffer: inout ByteQueue
  ) {
    begin(format, &clock, into: &buffer)
    for field in fields { format.fields.append(field, to: &buffer) }
    Self.end(format, into: &buffer)
  }

  /// The initial capacity of the buffer, which suffices for most lines, so that the buffer is rarely enlarged.
  private static let room = 1024

  /// Writes the part before the fields.
  func begin(_ format: Logger.Format, _ clock: inout TimestampWriter, into buffer: inout ByteQueue) {
    buffer.reserve(Self.room)
    switch format {
    case .json: beginJSON(&clock, into: &buffer)
    case .text: beginText(color: nil, &clock, into: &buffer)
    case .coloredText: beginText(color: level.color, &clock, into: &buffer)
    }
  }

  /// Writes the part after the fields.
  static func end(_ format: Logger.Format, into buffer: inout ByteQueue) {
    buffer.append(format == .json ? "}\n" as StaticString : "\n")
  }

  private func beginJSON(_ clock: inout TimestampWriter, into buffer: inout ByteQueue) {
    buffer.append("{\"time\":\"" as StaticString)
    clock.write(milliseconds: milliseconds, into: &buffer)
    buffer.append("\",\"level\":\"" as StaticString)
    buffer.append(level.name)
    buffer.append("\",\"message\":" as StaticString)
    message.withUTF8Buffer { unsafe buffer.append(jsonString: $0.span) }
  }

  private func beginText(color: String?, _ clock: inout TimestampWriter, into buffer: inout ByteQueue) {
    clock.write(milliseconds: milliseconds, into: &buffer)
    buffer.append(" " as StaticString)
    if let color { buffer.append(color) }
    buffer.append(level.name)
    if color != nil { buffer.append("\u{1B}[0m" as StaticString) }
    for _ in level.name.utf8.count..<8 { buffer.append(UInt8(ascii: " ")) }
    buffer.append(message)
  }
}
