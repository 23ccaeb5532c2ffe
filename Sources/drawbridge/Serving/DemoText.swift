import Host
import Reactor

/// The text that `drawbridge demo` prints at its start.
enum DemoText {
  static func lines(
    client: SocketAddress, management: SocketAddress?, upstream: SocketAddress, isSocketIO: Bool
  ) -> String {
    let (curl, base) = curl(client)
    let flag = urlFlag(for: client)
    var lines =
      isSocketIO
      ? """

      The gateway is running. Its built-in Socket.IO server, ws://\(upstream)/, sends every event back, and the event
      'tick' every five seconds. Try these in another terminal:

        \(curl) -d 'hello' '\(base)/v1/messages?event=chat'
        \(curl) '\(base)/v1/messages?cursor=earliest'
        \(curl) -d 'hello' '\(base)/v1/call?event=chat'     # waits for the acknowledgement
        \(curl) \(base)/v1/session
        drawbridge tail\(flag)                               # follows the pushes

      """
      : """

      The gateway is running. Its built-in upstream, ws://\(upstream)/, echoes every message and sends a tick every five seconds.
      Try these in another terminal:

        \(curl) -d 'hello' \(base)/v1/messages
        \(curl) '\(base)/v1/messages?cursor=earliest'
        \(curl) '\(base)/v1/messages'                      # waits for the next push
        \(curl) \(base)/v1/session
        drawbridge tail\(flag)                               # follows the pushes

      """
    if let management {
      let (curl, base) = Self.curl(management)
      lines += "  \(curl) \(base)/metrics\n"
      if case .ip = management { lines += "\nOpen \(base)/ in a browser: the status page shows all of it.\n" }
    }
    return lines + "\nPress Ctrl-C to stop.\n"
  }

  /// The flag of a command that is a client, unless it is the default.
  private static func urlFlag(for address: SocketAddress) -> String {
    switch address {
    case .unix(let path): " --url 'unix:\(path)'"
    case .ip: "\(address)" == "127.0.0.1:8080" ? "" : " --url \(address)"
    }
  }

  /// The curl command for a listener, and the start of its URLs.
  private static func curl(_ address: SocketAddress) -> (command: String, base: String) {
    if case .unix(let path) = address { return ("curl --unix-socket '\(path)'", "http://localhost") }
    return ("curl", "http://\(address)")
  }
}
