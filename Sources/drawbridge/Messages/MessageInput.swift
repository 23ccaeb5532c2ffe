import ByteStreams
import Glibc
import Host
import Reactor

/// The content of a message: an operand, or standard input.
enum MessageInput {
  /// Maximum size of the content in bytes. It is larger than any message that a gateway accepts by default
  /// (`http.body_bytes`, 16 MiB), and fits into memory.
  private static let sizeLimit = 256 << 20

  /// - Parameter operand: the text; `-` or nil for standard input.
  static func content(_ operand: String?, of command: Command) throws(CommandFailure) -> [UInt8] {
    if let operand, operand != "-" { return Array(operand.utf8) }
    if operand == nil, isatty(STDIN_FILENO) == 1 {
      throw CommandFailure(
        ExitCode.usage,
        "no text: write 'drawbridge \(command.name) TEXT', or - to read standard input. "
          + "See 'drawbridge \(command.name) --help'")
    }
    var content: [UInt8] = []
    var piece = [UInt8](repeating: 0, count: 64 << 10)
    while true {
      let count = unsafe read(STDIN_FILENO, &piece, piece.count)
      if count < 0, errno == EINTR { continue }
      guard count >= 0 else {
        throw CommandFailure(ExitCode.noInput, "standard input cannot be read: \(SystemError.reason(of: errno))")
      }
      if count == 0 { return content }
      content += piece[..<count]
      guard content.count <= sizeLimit else {
        throw CommandFailure(ExitCode.data, "standard input has more than \(sizeLimit >> 20) MiB")
      }
    }
  }
}

/// Whether a command writes for people or for programs.
enum ResultFormat {
  static let flag = Flag(
    "format", .choice(["text", "json"]),
    "for people, or the JSON of the gateway (default: text on a terminal, else json)")

  static func isText(_ arguments: Arguments) -> Bool { arguments[flag].map { $0 == "text" } ?? Terminal.isTerminal }
}
