import ByteStreams
import Glibc

/// Standard output, standard error, and exit.
enum Terminal {
  static func print(_ text: String) { write(text + "\n", to: STDOUT_FILENO) }
  static func printError(_ text: String) { write(text + "\n", to: STDERR_FILENO) }
  static func exit(_ code: Int32) -> Never { Glibc.exit(code) }

  private static func write(_ text: String, to descriptor: Int32) {
    var bytes = Array(printable(text).utf8)[...]
    while !bytes.isEmpty {
      let written = unsafe bytes.withUnsafeBytes { unsafe Glibc.write(descriptor, $0.baseAddress, $0.count) }
      guard written > 0 else { return }
      bytes = bytes.dropFirst(written)
    }
  }

  /// Like `printable`, and also escapes line breaks.
  static func oneLine(_ text: String) -> String {
    // Scalars, not characters: "\r\n" is a single character.
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
