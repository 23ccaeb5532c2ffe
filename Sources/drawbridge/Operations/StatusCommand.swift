import ByteStreams
import Glibc
import Host
import Reactor

/// `drawbridge status`.
enum StatusCommand {
  private static let defaultInterval = TimeSpan.seconds(2)
  /// Maximum number of sessions on one screen.
  private static let sessionLimit = 20
  private static let signals: [Int32] = [SIGINT, SIGTERM]

  private static let watch = Flag("watch", .none, "show the state again and again, until Ctrl-C")
  private static let interval = Flag("interval", .duration, "with --watch: how often (default: 2s)")

  static let command = Command(
    "status",
    summary: "show the state of a running gateway on one screen",
    purpose: "show the state of a running gateway on one screen.",
    examples: [
      "drawbridge status", "drawbridge status --watch",
      "drawbridge status --session market --url https://gateway.example --token-file me.token",
      "drawbridge status | jq -r .state",
    ],
    text: """
      Shows the session, its upstream, its queue, its pushes and its consumers. If there are several sessions and none
      is named, shows a line for each. If standard output is no terminal, prints the JSON of GET /v1/session, or of
      GET /v1/sessions.
      """,
    flags: [watch, interval] + ClientOptions.flags + [ResultFormat.flag],
    exitCodes: [.ok] + ClientOptions.exitCodes
  ) { (arguments) throws(UsageError) in
    let options = try ClientOptions(arguments)
    if arguments.has(interval), !arguments.has(watch) {
      throw UsageError(message: "--interval has no effect without --watch.")
    }
    return CommandFailure.report { () throws(CommandFailure) in
      let isWatching = arguments.has(watch)
      if isWatching { ProcessSignals.block(signals) }
      let client = try GatewayClient(options, handling: isWatching ? signals : [])
      client.warnOfExposure()
      guard isWatching else {
        try show(try screen(client, arguments), arguments)
        return ExitCode.ok
      }
      return try repeated(client, arguments)
    }
  }

  private static func repeated(_ client: GatewayClient, _ arguments: Arguments) throws(CommandFailure) -> Int32 {
    let span = max(arguments.duration(interval) ?? defaultInterval, .milliseconds(100))
    let isScreen = Terminal.isTerminal && ResultFormat.isText(arguments)
    while true {
      var lines: [String]
      do throws(CommandFailure) {
        lines = try screen(client, arguments)
      } catch {
        if error.message.isEmpty { return ExitCode.ok }
        // Only these failures are repeated: the gateway may become reachable again. If the gateway refuses the request,
        // it would refuse a repetition, too.
        guard error.code == ExitCode.unavailable || error.code == ExitCode.temporary,
          !error.message.hasPrefix("the gateway refuses") || error.code == ExitCode.temporary
        else { throw error }
        lines = ["drawbridge: \(Terminal.oneLine(error.message))"]
        if !isScreen {
          Terminal.printError(lines[0])
          lines = []
        }
      }
      if isScreen {
        // The text overwrites the screen from the top left. It clears the rest of each line, and at its end the rest of
        // the screen.
        let text = lines.map { Terminal.printable($0) + "\u{1B}[K\n" }.joined()
        try Terminal.output(Array(("\u{1B}[H" + text + "\u{1B}[J").utf8))
      } else if !lines.isEmpty {
        try show(lines, arguments)
      }
      let deadline = ProcessInformation.monotonicTime() + span
      if case .signal = client.events.wait(until: deadline) { return ExitCode.ok }
    }
  }

  private static func show(_ lines: [String], _ arguments: Arguments) throws(CommandFailure) {
    let text = lines.joined(separator: "\n")
    if ResultFormat.isText(arguments) { try Terminal.output(text) } else { try Terminal.output(json: Array(text.utf8)) }
  }

  private static func screen(_ client: GatewayClient, _ arguments: Arguments) throws(CommandFailure) -> [String] {
    let isText = ResultFormat.isText(arguments)
    let options = client.options
    if !arguments.has(ClientOptions.session) {
      let list = try client.document(at: options.url.path + "/v1/sessions?limit=\(sessionLimit + 1)")
      let sessions = list.objects("sessions")
      let isDefault = sessions.count == 1 && sessions[0].text("session") == options.session
      if !isDefault {
        guard isText else { return [String(decoding: list.bytes, as: UTF8.self)] }
        let more = sessions.count > sessionLimit ? ["and more: 'drawbridge sessions' lists all"] : []
        return ["gateway  \(options.url.text)", ""] + SessionText.table(Array(sessions.prefix(sessionLimit))) + more
      }
    }
    let session = try client.document(at: options.path(""))
    guard isText else { return [String(decoding: session.bytes, as: UTF8.self)] }
    return try lines(of: session, at: options.url.text) + consumers(client)
  }

  static func lines(of session: Document, at url: String) -> [String] {
    var rows = [
      ["gateway", url], ["session", "\(session.text("session") ?? ""): \(SessionText.state(of: session))"],
      ["upstream", session.text("upstream") ?? ""],
    ]
    if let seconds = session.number("round_trip_seconds") { rows.append(["round trip", Words.shortTime(seconds)]) }
    rows.append(["queue", SessionText.queue(of: session)])
    rows.append(["pushes", SessionText.pushes(of: session)])
    if let failure = session.text("last_failure") {
      let age = session.number("last_failure_seconds_ago").map { " (\(Words.age($0)) ago)" } ?? ""
      rows.append(["last failure", Terminal.oneLine(failure) + age])
    }
    if let store = session.object("store"), store.text("state") == "failed" {
      rows.append(["store", "does not work: \(Terminal.oneLine(store.text("failure") ?? ""))"])
    }
    return SessionText.columns(rows)
  }

  /// The consumers; empty if the credentials do not allow them.
  private static func consumers(_ client: GatewayClient) throws(CommandFailure) -> [String] {
    let request = GatewayRequest(
      path: client.options.path("consumers"), fields: [("Accept", "application/json")])
    let found = try client.success(of: request, accepting: [403])
    let consumers = found.document?.objects("consumers") ?? []
    guard !consumers.isEmpty else { return [] }
    var rows = [["CONSUMER", "LAG", "LEASES", "DEAD LETTERS"]]
    for consumer in consumers {
      rows.append([
        Terminal.oneLine(consumer.text("name") ?? ""), consumer.json("lag") ?? "", consumer.json("leases") ?? "",
        consumer.object("dead")?.json("messages") ?? "",
      ])
    }
    return [""] + SessionText.columns(rows)
  }
}
