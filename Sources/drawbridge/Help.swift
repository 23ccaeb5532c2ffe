import Configuration
import Host
import Reactor

/// The texts of `--help`. Each says what the command does, with examples, flags and exit codes.
enum Help {
  static func text(for command: Invocation.Command?) -> String {
    switch command {
    case nil: overview
    case .serve:
      """
      drawbridge serve: run the gateway, which connects HTTP clients to a WebSocket service.

        drawbridge serve --upstream wss://example.org/socket
        drawbridge serve --upstream ws://127.0.0.1:9000/ --listen 127.0.0.1:0 --loops 2
        drawbridge serve --config /etc/drawbridge/drawbridge.yaml

      Send and receive messages with any HTTP client:
        curl -d 'hello' http://127.0.0.1:8080/v1/messages
        curl 'http://127.0.0.1:8080/v1/messages?cursor=earliest'

      \(flags(of: .serve))
      A flag overrides an environment variable, which overrides the file. Every setting, with its default, is in
      config/drawbridge.yaml. Other users of the machine can read flags: keep secrets in a file or in the environment,
      and refer to them as ${file:PATH} or ${env:NAME}.

      Signals:
        SIGTERM, SIGINT  respond to held polls, send queued messages, close the upstream connection, exit;
                         a second signal exits at once
        SIGHUP           reload the configuration

      Exit codes:
        0   stopped by a signal
        64  invalid command line
        66  the configuration file cannot be read
        69  an address or another resource of the system is not available, or another process has the store open
        78  invalid configuration, or a store that is damaged or of a newer version
      """
    case .demo:
      """
      drawbridge demo: run the gateway with a built-in upstream, which echoes every message and sends a tick every five
      seconds. Prints curl commands to try.

        drawbridge demo
        drawbridge demo --listen 127.0.0.1:0
        drawbridge demo --kind socketio

      With --kind socketio, the upstream is a Socket.IO server: it sends every event back, and acknowledges events that
      want it with their arguments.

      \(flags(of: .demo))
      The other settings are read from the file and the environment, except upstream.url, upstream.fallback_urls,
      upstream.proxy and sessions: the demo connects to its own upstream only. Its status page shows payloads.

      Exit codes: the same as for 'drawbridge serve'.
      """
    case .checkConfig:
      """
      drawbridge check-config: read and check the configuration as 'drawbridge serve' does, without starting anything.
      Prints the value and the origin of each setting, or every error with its place and what is accepted instead.

        drawbridge check-config --config config/drawbridge.yaml --upstream wss://example.org/socket
        DRAWBRIDGE_UPSTREAM_URL=wss://example.org drawbridge check-config

      Secrets are not printed. For a named session, only settings that are set or differ from the defaults are printed.
      Errors and warnings go to standard error.

      \(flags(of: .checkConfig))
      Exit codes:
        0   the configuration is valid; there may be warnings
        64  invalid command line
        66  the configuration file cannot be read
        78  invalid configuration
      """
    case .healthcheck:
      """
      drawbridge healthcheck: check whether a running gateway is ready. For the health checks of containers.

        drawbridge healthcheck
        drawbridge healthcheck --management 127.0.0.1:9090

      Sends GET /readyz to the first management listener of the configuration, read as serve reads it, and prints the
      last line of the response. The listener may be a Unix socket. Waits at most three seconds for each step.

      \(flags(of: .healthcheck))
      Exit codes:
        0   ready
        64  invalid command line
        66  the configuration file cannot be read
        69  not ready, or no response
        78  invalid configuration
      """
    case .tail:
      """
      drawbridge tail [URL]: follow the pushes of a running gateway, until Ctrl-C.

        drawbridge tail                                      the gateway at http://127.0.0.1:8080
        drawbridge tail --last 10 --topic 'orders.*'
        drawbridge tail https://gateway.example --session market --token-file market.token
        drawbridge tail unix:/run/drawbridge/api.sock --since 10m
        drawbridge tail | jq -c .data                        a JSON object per line, if the output is no terminal

      Each push is a line: its time (UTC), its topic and its payload. A line '-- 3 messages are missing (retention)' is in place of pushes
      that the gateway no longer has. After a lost connection or a restart of the gateway it reconnects by itself and continues after the
      last line. Other messages go to standard error.

      Flags:
        --session NAME           the session to follow (default: default)
        --topic TOPIC            only pushes with this topic, or with a final * one that begins so (repeatable)
        --cursor CURSOR          start after this position; also earliest, or latest (the default)
        --since DURATION         start with the pushes of this time, such as 10m
        --last NUMBER            start with this many pushes
        --token-file FILE        file of the token to send; it is read again before each connection
        --ca-file FILE           PEM file of certificates to trust, besides the system's
        --certificate FILE       PEM file of the client certificate, for a gateway that requires one
        --key FILE               PEM file of its private key; it may be the same file
        --format text|ndjson     a line for people, or the JSON object (default: text on a terminal, else ndjson)
        --color auto|always|never

      Exit codes:
        0   ended by Ctrl-C or SIGTERM, or because nobody reads the output. While it connects, or its output is blocked, Ctrl-C
            ends it with 130 and SIGTERM with 143
        64  invalid command line
        66  the file of the token cannot be read
        69  the gateway refuses the request; the reason is on standard error
        74  standard output cannot be written
      """
    case .store:
      """
      drawbridge store: check, export and copy the database of a gateway with 'store.engine: sqlite'.
      (With 'store.engine: redis', use the tools of Redis.)

        drawbridge store check /var/lib/drawbridge/drawbridge.db
        drawbridge store backup /var/lib/drawbridge/drawbridge.db /backup/monday.db
        drawbridge store export /var/lib/drawbridge/drawbridge.db | jq -c .push

      check PATH          Reads the whole database and says what it contains. The gateway must be stopped.
      export PATH         Writes the retained pushes and the messages without a final state to standard output, a JSON object
                          per line. Of a damaged database, it writes what is readable. The gateway must be stopped.
      backup PATH COPY    Writes a copy. A running gateway makes the copy itself, asked on the socket PATH.sock, which only its
                          user and root can use; while it does, clients wait. Where COPY exists, nothing is written.

      No command changes the database. To restore a backup: stop the gateway, move PATH, PATH-wal and PATH.new away, copy the
      backup to PATH with the same owner, start the gateway. Clients receive a gap with the reason 'store'.

      Exit codes:
        0   done; for check: the database is sound
        64  invalid command line
        65  export: a part of the database could not be read
        66  there is no file with this name
        69  the database is open in another process, or the system refuses; nothing was done
        74  standard output cannot be written
        78  the database is damaged, of another program, or of a newer version
      """
    case .token:
      """
      drawbridge token NAME: make a static token, which a client sends in the header field Authorization.

        drawbridge token billing --scopes send,receive >>tokens
        drawbridge token dashboard --scopes receive --topics 'orders.*' >>tokens 2>dashboard.token
        drawbridge serve --config FILE      (with authentication.tokens: tokens)
        curl -H "Authorization: Bearer $TOKEN" http://127.0.0.1:8080/v1/session

      The line for the file of tokens goes to standard output, and the token to standard error. The line has only a hash of the token, which
      cannot be shown again. A running gateway reads the file when it changes. docs/access.md explains its format.

      Flags:
        --scopes LIST            what the client may do: send, receive, call, admin (default send,receive)
        --sessions LIST          sessions that it may use, or prefixes with a final * (default: all)
        --topics LIST            topics that it may receive, the same (default: all)

      Exit codes: 0, or 64 for an invalid command line.
      """
    case .version:
      """
      drawbridge version: print the version.

        drawbridge version

      Exit codes: 0, or 64 for an invalid command line.
      """
    }
  }

  private static let overview = """
    drawbridge: connect programs that speak only HTTP to services that speak only WebSocket. POST to send, long-poll to
    receive.

      drawbridge demo                                  try it with a built-in upstream
      drawbridge serve --upstream wss://example.org/   run the gateway
      drawbridge check-config --config FILE            check a configuration and print the settings
      drawbridge healthcheck                           check whether a running gateway is ready
      drawbridge store check|export|backup PATH        check, export or copy the database of a gateway
      drawbridge tail                                  follow the pushes of a running gateway
      drawbridge token NAME                            make a token for a client
      drawbridge version                               print the version

    'drawbridge COMMAND --help' explains a command, its flags and its exit codes. Every setting is explained in
    config/drawbridge.yaml. Each can also be given as an environment variable (upstream.url is DRAWBRIDGE_UPSTREAM_URL),
    and common ones as flags.
    """

  private static func flags(of command: Invocation.Command) -> String {
    var lines = ["Flags:", "  --config FILE            YAML file with settings (or DRAWBRIDGE_CONFIG)"]
    for setting in Setting.all {
      guard let flag = setting.flag, command.flags.contains(flag) else { continue }
      let name = "--\(flag) \(placeholders[flag] ?? "VALUE")"
      lines.append("  \(name)\(String(repeating: " ", count: max(2, 25 - name.count)))\(setting.summary)")
    }
    return lines.joined(separator: "\n") + "\n"
  }

  /// The placeholder in the help for a flag's value.
  private static let placeholders = [
    "kind": "websocket|socketio", "listen": "ADDRESS", "management": "ADDRESS", "loops": "NUMBER",
    "access": "auto|none", "upstream": "URL",
    "subprotocol": "NAME",
    "header": "'NAME: VALUE'", "proxy": "URL", "ca-file": "FILE", "log-level": "LEVEL", "log-format": "FORMAT",
  ]

  static func demoLines(
    client: SocketAddress, management: SocketAddress?, upstream: SocketAddress, isSocketIO: Bool
  ) -> String {
    let (curl, base) = curl(client)
    var lines =
      isSocketIO
      ? """

      The gateway is running. Its built-in Socket.IO server, ws://\(upstream)/, sends every event back, and the event
      'tick' every five seconds. Try these in another terminal:

        \(curl) -d 'hello' '\(base)/v1/messages?event=chat'
        \(curl) '\(base)/v1/messages?cursor=earliest'
        \(curl) -d 'hello' '\(base)/v1/call?event=chat'     # waits for the acknowledgement
        \(curl) \(base)/v1/session

      """
      : """

      The gateway is running. Its built-in upstream, ws://\(upstream)/, echoes every message and sends a tick every five seconds.
      Try these in another terminal:

        \(curl) -d 'hello' \(base)/v1/messages
        \(curl) '\(base)/v1/messages?cursor=earliest'
        \(curl) '\(base)/v1/messages'                      # waits for the next push
        \(curl) \(base)/v1/session

      """
    if let management {
      let (curl, base) = Self.curl(management)
      lines += "  \(curl) \(base)/metrics\n"
      if case .ip = management { lines += "\nOpen \(base)/ in a browser: the status page shows all of it.\n" }
    }
    return lines + "\nPress Ctrl-C to stop.\n"
  }

  /// The curl command for a listener, and the start of its URLs.
  private static func curl(_ address: SocketAddress) -> (command: String, base: String) {
    if case .unix(let path) = address { return ("curl --unix-socket '\(path)'", "http://localhost") }
    return ("curl", "http://\(address)")
  }
}
