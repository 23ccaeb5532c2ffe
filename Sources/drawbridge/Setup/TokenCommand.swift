import Access
import ByteStreams
import Digests
import Glibc
import Host
import Reactor

/// Makes a static token. The file of the gateway contains only the hash of the token, so a copy of the file gives no
/// access.
enum TokenCommand {
  private static let scopes = Flag(
    "scopes", .text("LIST"), "what the client may do: send, receive, call, admin (default send,receive)")
  private static let sessions = Flag(
    "sessions", .text("LIST"), "sessions that the client may use, or prefixes with a final * (default: all)")
  private static let topics = Flag(
    "topics", .text("LIST"), "topics that the client may receive, or prefixes with a final * (default: all)")

  private static let out = Flag(
    "out", .file, "write the token to this new file, which only you can read, and not to standard error")

  static let command = Command(
    "token",
    operands: [.init("NAME")],
    usage: "NAME",
    summary: "make a token for a client",
    purpose: "make a static token, which a client sends in the header field Authorization.",
    examples: [
      "drawbridge token billing --scopes send,receive >>tokens",
      "drawbridge token dashboard --scopes receive --topics 'orders.*' --out dashboard.token >>tokens",
      "drawbridge serve --config FILE      (with authentication.tokens: tokens)",
      "curl -H \"Authorization: Bearer $TOKEN\" http://127.0.0.1:8080/v1/session",
    ],
    text: """
      The line for the file of tokens goes to standard output, and the token to standard error, or with --out to a file of
      mode 0600, which must not exist yet. The line has only a hash of the token, so the token cannot be shown again.
      docs/access.md explains the format of the file.

      A running gateway accepts the token after it has read the file again: within two seconds after the change, or at
      once with 'drawbridge reload' or SIGHUP.
      """,
    flags: [scopes, sessions, topics, out],
    exitCodes: [
      .ok, .usage, Command.ExitCode(ExitCode.cannotCreate, "the file of --out exists, or cannot be written"),
      Command.ExitCode(ExitCode.output, "standard output cannot be written"),
    ],
    run: run)

  /// The number of random bytes in a token: 256 bits, the size of the hash.
  private static let randomBytes = 32

  /// Prints the line for the file to standard output, and the token to standard error.
  private static func run(_ arguments: Arguments) throws(UsageError) -> Int32 {
    guard let name = arguments.operands.first else {
      return refuse("'drawbridge token' needs a name, as in 'drawbridge token billing'")
    }
    var generator = SystemRandomNumberGenerator()
    let token = hexadecimal((0..<randomBytes).map { _ in UInt8.random(in: .min ... .max, using: &generator) })
    var line = "\(name) sha256:\(hexadecimal(Digest.sha256(Array(token.utf8).span)))"
    line += " scopes=\(arguments[scopes] ?? "send,receive")"
    // A line without these members allows all sessions and topics.
    for flag in [sessions, topics] {
      if let list = arguments[flag] { line += " \(flag.name)=\(list)" }
    }
    guard !line.utf8.contains(UInt8(ascii: "\n")), !name.hasPrefix("#") else {
      return refuse("a name or list is not valid: use letters and digits")
    }
    do throws(TokenTable.Invalid) {
      _ = try TokenTable(Array(line.utf8))
    } catch {
      return refuse("\(error)".replacingPrefix("line 1: "))
    }
    return CommandFailure.report { () throws(CommandFailure) in
      // The token is written before the line is printed. In the other order, a failure would leave a line for a token
      // that is lost.
      let file = arguments[out]
      if let file { try write(token, to: file) }
      do throws(CommandFailure) {
        try Terminal.output(line)
      } catch {
        if let file { unsafe _ = unlink(file) }
        throw error
      }
      if file == nil { Terminal.printError(token) }
      if Terminal.isTerminal {
        Terminal.note(
          "the line that begins with '\(name)' belongs in the file of authentication.tokens, as in 'drawbridge token \(name) --out \(name).token >>tokens'; the token is for the client"
        )
      }
      return ExitCode.ok
    }
  }

  /// Creates a file that only its owner can read. Leaves no file behind if writing fails.
  private static func write(_ token: String, to file: String) throws(CommandFailure) {
    // The mode is passed to open(2) instead of relying on `umask`, so that the file is secret from the beginning.
    let descriptor = unsafe open(file, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0o600)
    guard descriptor >= 0 else {
      let reason = errno == EEXIST ? "it exists" : SystemError.reason(of: errno)
      throw CommandFailure(ExitCode.cannotCreate, "--out \(file) cannot be created: \(reason)")
    }
    let isWritten = Terminal.write(token + "\n", to: descriptor)
    let code = errno
    guard close(descriptor) == 0, isWritten else {
      unsafe _ = unlink(file)
      throw CommandFailure(ExitCode.cannotCreate, "--out \(file) cannot be written: \(SystemError.reason(of: code))")
    }
  }

  private static func refuse(_ reason: String) -> Int32 {
    Terminal.printError("drawbridge: \(reason). See 'drawbridge token --help'.")
    return ExitCode.usage
  }

  private static func hexadecimal(_ bytes: [UInt8]) -> String {
    bytes.map { ($0 < 16 ? "0" : "") + String($0, radix: 16) }.joined()
  }
}
