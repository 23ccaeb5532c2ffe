import Access
import ByteStreams
import Digests

/// Makes a static token. Only its hash goes into the file, so a copy of the file gives no access.
enum TokenCommand {
  /// 256 bits, the size of the hash.
  private static let randomBytes = 32

  /// Prints the line for the file to standard output, and the token to standard error.
  static func run(_ invocation: Invocation) -> Int32 {
    guard let name = invocation.name else {
      return refuse("'drawbridge token' needs a name, as in 'drawbridge token billing'")
    }
    var generator = SystemRandomNumberGenerator()
    let token = hexadecimal((0..<randomBytes).map { _ in UInt8.random(in: .min ... .max, using: &generator) })
    let value = { (flag: String) in invocation.flags.last { $0.name == flag }?.value }
    var line = "\(name) sha256:\(hexadecimal(Digest.sha256(Array(token.utf8).span)))"
    line += " scopes=\(value("scopes") ?? "send,receive")"
    // The default in the file is all sessions and topics.
    for flag in ["sessions", "topics"] {
      if let list = value(flag) { line += " \(flag)=\(list)" }
    }
    guard !line.utf8.contains(UInt8(ascii: "\n")), !name.hasPrefix("#") else {
      return refuse("a name or list is not valid: use letters and digits")
    }
    do throws(TokenTable.Invalid) {
      _ = try TokenTable(Array(line.utf8))
    } catch {
      return refuse("\(error)".replacingPrefix("line 1: "))
    }
    Terminal.print(line)
    Terminal.printError(token)
    return DrawbridgeCommand.ExitCode.ok
  }

  private static func refuse(_ reason: String) -> Int32 {
    Terminal.printError("drawbridge: \(reason). See 'drawbridge token --help'.")
    return DrawbridgeCommand.ExitCode.usage
  }

  private static func hexadecimal(_ bytes: [UInt8]) -> String {
    bytes.map { ($0 < 16 ? "0" : "") + String($0, radix: 16) }.joined()
  }
}

extension String {
  fileprivate func replacingPrefix(_ prefix: String) -> String {
    hasPrefix(prefix) ? String(dropFirst(prefix.count)) : self
  }
}
