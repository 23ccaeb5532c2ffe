import Configuration
import Reactor

/// Help texts, by example.
enum Help {
  static func text(for command: Invocation.Command?) -> String {
    switch command {
    case nil: overview
    case .serve:
      """
      drawbridge serve: bridge HTTP clients to a WebSocket.

        drawbridge serve --upstream wss://example.org/socket
        drawbridge serve --upstream ws://127.0.0.1:9000/ --listen 127.0.0.1:0 --loops 2
        drawbridge serve --config /etc/drawbridge.yaml

      Then, from anywhere that speaks HTTP:
        curl -d 'hello' http://127.0.0.1:8080/v1/messages
        curl 'http://127.0.0.1:8080/v1/messages?cursor=earliest'

      \(flags(of: .serve))
      Other users of the machine can read flags: give secrets in a file, in the environment, or as ${file:PATH} and ${env:NAME}.

      SIGTERM ends it in order: held polls are answered, the queue is sent, the upstream is closed. SIGHUP reads the
      configuration again. Exit codes: 0 ended as asked, 64 usage, 66 configuration file not readable, 69 address or other
      resource not available, 78 configuration.
      """
    case .demo:
      """
      drawbridge demo: the gateway with a built-in upstream that sends everything back and ticks every five seconds.

        drawbridge demo
        drawbridge demo --listen 127.0.0.1:0

      \(flags(of: .demo))
      Other settings come from the file and the environment; upstream.url, upstream.fallback_urls, upstream.proxy and
      sessions are ignored, so that the demo connects to its own upstream only.
      Exit codes: as of 'drawbridge serve'.
      """
    case .checkConfig:
      """
      drawbridge check-config: read the configuration as 'drawbridge serve' does, say what is wrong, show the values in use.
      Secrets are not shown. Of a named session, only values that are not the default are.

        drawbridge check-config --config config/drawbridge.yaml --upstream wss://example.org/socket
        DRAWBRIDGE_UPSTREAM_URL=wss://example.org drawbridge check-config

      \(flags(of: .checkConfig))
      Exit codes: 0 'drawbridge serve' would accept it, 64 usage, 66 configuration file not readable, 78 something is wrong
      (each line says where, and what is right). Warnings go to standard error.
      """
    case .healthcheck:
      """
      drawbridge healthcheck: ask a running gateway whether it is ready; for containers.

        drawbridge healthcheck
        drawbridge healthcheck --management 127.0.0.1:9090

      Reads the same configuration to find the first management listener, a Unix-domain socket too.

      \(flags(of: .healthcheck))
      Exit codes: 0 ready, 64 usage, 66 configuration file not readable, 69 not ready or no response, 78 configuration.
      """
    case .version:
      """
      drawbridge version: print the version.
      """
    }
  }

  private static let overview = """
    drawbridge: talk to a WebSocket with plain HTTP. POST to send, long-poll to receive, nothing lost silently.

      drawbridge demo                                  try it: built-in upstream, curl lines to paste
      drawbridge serve --upstream wss://example.org/   run it
      drawbridge check-config --config FILE            read a configuration and say what is wrong
      drawbridge healthcheck                           ask a running gateway whether it is ready
      drawbridge version

    'drawbridge COMMAND --help' says more. Every setting is explained in config/drawbridge.yaml; each can also be given as an
    environment variable (upstream.url is DRAWBRIDGE_UPSTREAM_URL), and the common ones as flags.
    """

  private static func flags(of command: Invocation.Command) -> String {
    var lines = ["Flags:", "  --config FILE            settings from a YAML file (also DRAWBRIDGE_CONFIG)"]
    for setting in Setting.all {
      guard let flag = setting.flag, command.flags.contains(flag) else { continue }
      let name = "--\(flag) VALUE"
      lines.append("  \(name)\(String(repeating: " ", count: max(1, 25 - name.count)))\(setting.summary)")
    }
    return lines.joined(separator: "\n") + "\n"
  }

  static func demoLines(client: SocketAddress, management: SocketAddress?, upstream: SocketAddress) -> String {
    let (curl, base) = curl(client)
    var lines = """

      The gateway is up, bridged to a built-in upstream at ws://\(upstream)/ that sends everything back and ticks.
      Try, in another terminal:

        \(curl) -d 'hello' \(base)/v1/messages
        \(curl) '\(base)/v1/messages?cursor=earliest'
        \(curl) '\(base)/v1/messages'                      # waits for the next push
        \(curl) \(base)/v1/session

      """
    if let management {
      let (curl, base) = Self.curl(management)
      lines += "  \(curl) \(base)/metrics\n"
    }
    return lines + "\nCtrl-C ends it.\n"
  }

  /// The curl command for a listener, and the start of its URLs.
  private static func curl(_ address: SocketAddress) -> (command: String, base: String) {
    if case .unix(let path) = address { return ("curl --unix-socket '\(path)'", "http://localhost") }
    return ("curl", "http://\(address)")
  }
}
