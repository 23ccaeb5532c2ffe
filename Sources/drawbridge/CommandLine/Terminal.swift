import ByteStreams
import Glibc
import Host
import Reactor

/// Standard output, standard error, and exit.
enum Terminal {
  static func print(_ text: String) { write(text + "\n", to: STDOUT_FILENO) }
  static func printError(_ text: String) { write(text + "\n", to: STDERR_FILENO) }
  /// One line to standard error, with the name of the program.
  static func note(_ text: String) { printError("drawbridge: \(oneLine(text))") }

  static var isTerminal: Bool { isatty(STDOUT_FILENO) == 1 }

  /// Writes a result to standard output. Throws if that is not possible. If the output has no reader any more, the
  /// error has no message.
  static func output(_ bytes: [UInt8]) throws(CommandFailure) {
    var rest = bytes[...]
    while !rest.isEmpty {
      let count = unsafe rest.withUnsafeBytes { unsafe Glibc.write(STDOUT_FILENO, $0.baseAddress, $0.count) }
      if count < 0, errno == EINTR { continue }
      guard count > 0 else {
        if errno == EPIPE { throw CommandFailure(ExitCode.ok, "") }
        throw CommandFailure(
          ExitCode.output, "standard output cannot be written: \(SystemError.reason(of: errno))")
      }
      rest = rest.dropFirst(count)
    }
  }

  /// Writes a JSON value and a line break. If the output is a terminal, characters on which it would act are escaped.
  static func output(json: [UInt8]) throws(CommandFailure) {
    let bytes = isTerminal ? JSONForTerminal.escaped(json) : json
    try output(bytes.last == UInt8(ascii: "\n") ? bytes : bytes + [UInt8(ascii: "\n")])
  }

  static func output(_ text: String) throws(CommandFailure) { try output(Array((printable(text) + "\n").utf8)) }

  static func exit(_ code: Int32) -> Never { Glibc.exit(code) }

  /// Returns whether the whole text was written.
  @discardableResult
  static func write(_ text: String, to descriptor: Int32) -> Bool {
    var bytes = Array(printable(text).utf8)[...]
    while !bytes.isEmpty {
      let written = unsafe bytes.withUnsafeBytes { unsafe Glibc.write(descriptor, $0.baseAddress, $0.count) }
      guard written > 0 else { return false }
      bytes = bytes.dropFirst(written)
    }
    return true
  }

  /// Like `printable`, and also escapes line breaks.
  static func oneLine(_ text: String) -> String {
    // The loop is over scalars and not over characters, since "\r\n" is a single character.
    printable(
      text.unicodeScalars.reduce(into: "") { result, scalar in
        if scalar == "\n" { result += "\\n" } else { result.unicodeScalars.append(scalar) }
      })
  }

  /// Escapes terminal control characters, which arguments, files and responses of peers may contain.
  static func printable(_ text: String) -> String {
    guard text.unicodeScalars.contains(where: { $0.controlsDisplay && $0 != "\n" }) else { return text }
    return text.unicodeScalars.reduce(into: "") { result, scalar in
      if scalar.controlsDisplay, scalar != "\n" {
        result += scalar.escaped(asASCII: true)
      } else {
        result.unicodeScalars.append(scalar)
      }
    }
  }
}
