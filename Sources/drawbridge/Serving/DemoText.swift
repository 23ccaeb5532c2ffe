import Host
import Reactor

/// The text that `drawbridge demo` prints at its start.
enum DemoText {
  static func lines(
    client: SocketAddress, management: SocketAddress?, upstream: SocketAddress, isSocketIO: Bool
  ) -> String {
    let (curl, base) = curl(client)
    let flag = urlFlag(for: client)
    let paragraph =
      isSocketIO
      ? """
      The gateway is running. Its built-in Socket.IO server, ws://\(upstream)/, sends every event back, and the event
      'tick' every five seconds. Try these in another terminal:
      """
      : """
      The gateway is running. Its built-in upstream, ws://\(upstream)/, echoes every message, and sends a tick every five
      seconds. Try these in another terminal:
      """
    var commands: [(command: String, comment: String)] =
      isSocketIO
      ? [
        ("\(curl) -d 'hello' '\(base)/v1/messages?event=chat'", ""),
        ("\(curl) '\(base)/v1/messages?cursor=earliest'", ""),
        ("\(curl) -d 'hello' '\(base)/v1/call?event=chat'", "waits for the acknowledgement"),
      ]
      : [
        ("\(curl) -d 'hello' \(base)/v1/messages", ""),
        ("\(curl) '\(base)/v1/messages?cursor=earliest'", ""),
        ("\(curl) \(base)/v1/messages", "waits for the next push"),
        ("\(curl) -d '{\"id\":1}' \(base)/v1/call", "waits for the reply"),
      ]
    commands += [
      ("\(curl) \(base)/v1/session", ""),
      ("\(Program.command) tail\(flag)", "follows the pushes"),
      ("\(Program.command) status\(flag)", ""),
    ]
    var lines = ["", HelpText.wrapped(paragraph), ""]
    // Long commands do not count for the width of the column, since the path of the program may be long.
    let column = commands.filter { !$0.comment.isEmpty }.map(\.command.count).filter { $0 <= 64 }.max() ?? 0
    lines += commands.map { command, comment in
      let padding = String(repeating: " ", count: max(0, column - command.count))
      return "  \(command)" + (comment.isEmpty ? "" : "\(padding)  # \(comment)")
    }
    if let management {
      let (curl, base) = Self.curl(management)
      lines.append("  \(curl) \(base)/metrics")
      if case .ip = management { lines += ["", "Open \(base)/ in a browser for the status page."] }
    }
    return (lines + ["", "Press Ctrl-C to stop.", ""]).joined(separator: "\n")
  }

  /// The flag `--url` for a client command; empty if the address is the default.
  private static func urlFlag(for address: SocketAddress) -> String {
    switch address {
    case .unix(let path): " --url 'unix:\(path)'"
    case .ip: "\(address)" == "127.0.0.1:8080" ? "" : " --url \(address)"
    }
  }

  /// The curl command for a listener, and the beginning of the URLs for it.
  private static func curl(_ address: SocketAddress) -> (command: String, base: String) {
    if case .unix(let path) = address { return ("curl --unix-socket '\(path)'", "http://localhost") }
    return ("curl", "http://\(address)")
  }
}
