import ByteStreams
import Glibc

/// The output of `drawbridge tail`: a line per message, for people or for programs.
struct TailOutput {
  enum Format: String, CaseIterable { case text, ndjson }

  let format: Format
  let isColored: Bool
  /// Whether standard output is a terminal, which acts on control characters.
  let isTerminal: Bool

  /// Whether standard output has no reader any more.
  static var isClosed: Bool {
    var interest = pollfd(fd: STDOUT_FILENO, events: 0, revents: 0)
    return unsafe poll(&interest, 1, 0) > 0 && interest.revents & Int16(POLLERR) != 0
  }

  // MARK: Lines

  /// Returns the output for a line of a stream, with its line break; empty if nothing is printed.
  func render(_ line: Document) -> [UInt8] {
    if line.text("type") == "heartbeat" { return [] }
    if format == .ndjson {
      return (isTerminal ? JSONForTerminal.escaped(line.bytes) : line.bytes) + [UInt8(ascii: "\n")]
    }
    let text = line.text("type") == "gap" ? gap(line) : message(line)
    return Array((text + "\n").utf8)
  }

  private func message(_ line: Document) -> String {
    // The time of day of `2026-11-21T09:30:00.125Z`.
    let time = line.text("time").map { String($0.drop { $0 != "T" }.dropFirst()) } ?? ""
    var parts = [colored(Terminal.oneLine(time), .dim)]
    if let topic = line.text("topic") { parts.append(colored(Terminal.oneLine(topic), .cyan)) }
    if let data = line.text("data_base64") {
      parts.append(colored("base64", .dim) + " " + Terminal.oneLine(data))
    } else {
      // The payload of a text message is shown without quotes and escapes. A JSON payload is shown as it is, even if it
      // is a single string.
      let data = line.text("type") == "text" ? line.text("data") : line.json("data")
      parts.append(Terminal.oneLine(data ?? ""))
    }
    return parts.joined(separator: "  ")
  }

  private func gap(_ line: Document) -> String { colored("-- \(gapText(line))", .yellow) }

  /// `3 messages are missing (retention)`.
  func gapText(_ line: Document) -> String {
    let count = line.json("missed").flatMap { Int($0) }.map { "\($0)" } ?? "some"
    let reasons = line.json("reasons").map { $0.filter { !"[]\"".contains($0) } } ?? line.text("reason") ?? ""
    let verb = count == "1" ? "message is" : "messages are"
    return "\(count) \(verb) missing (\(Terminal.oneLine(reasons)))"
  }

  enum Color: Int {
    case dim = 2
    case yellow = 33
    case cyan = 36
  }

  func colored(_ text: String, _ color: Color) -> String {
    isColored ? "\u{1B}[\(color.rawValue)m\(text)\u{1B}[0m" : text
  }
}

/// JSON on a terminal.
enum JSONForTerminal {
  /// Returns the same JSON without characters that a terminal would act on.
  static func escaped(_ json: [UInt8]) -> [UInt8] {
    let text = String(decoding: json, as: UTF8.self)
    guard text.unicodeScalars.contains(where: \.controlsDisplay) else { return json }
    return text.unicodeScalars.reduce(into: []) { result, scalar in
      if !scalar.controlsDisplay {
        result += Array(String(scalar).utf8)
      } else if scalar.value < 0x20 {
        // In valid JSON, such characters are never inside strings, so this character is whitespace between tokens.
        result.append(UInt8(ascii: " "))
      } else {
        let digits = String(scalar.value, radix: 16)
        result += Array("\\u\(String(repeating: "0", count: 4 - digits.count))\(digits)".utf8)
      }
    }
  }
}
