import ByteStreams

/// `drawbridge sessions`.
enum SessionsCommand {
  /// Maximum number of sessions in one response.
  private static let pageSize = 1000

  private static let name = Flag(
    "name", .text("NAME"), "only the session of this name; a final * selects all names with this beginning")
  private static let ready = Flag(
    "ready", .choice(["true", "false"]), "only sessions that are connected (true), or not connected (false)")

  static let command = Command(
    "sessions",
    summary: "list the sessions of a running gateway",
    purpose: "list the sessions of a running gateway, with their states.",
    examples: ["drawbridge sessions", "drawbridge sessions --ready false", "drawbridge sessions | jq -r .session"],
    text: """
      A line per session: its name, the queued messages, the pushes since the start and its state in words. If standard
      output is no terminal, a line is a JSON object, as in GET /v1/sessions.
      """,
    flags: [name, ready] + ClientOptions.connectionFlags + [ResultFormat.flag],
    exitCodes: [.ok] + ClientOptions.exitCodes
  ) { (arguments) throws(UsageError) in
    let options = try ClientOptions(arguments)
    return CommandFailure.report { () throws(CommandFailure) in
      let client = try GatewayClient(options)
      client.warnOfExposure()
      let sessions = try all(client, name: arguments[name], ready: arguments[ready])
      if ResultFormat.isText(arguments) {
        try Terminal.output(SessionText.table(sessions).joined(separator: "\n"))
      } else {
        for session in sessions { try Terminal.output(json: session.bytes) }
      }
      return ExitCode.ok
    }
  }

  /// Returns all sessions, page by page.
  static func all(
    _ client: GatewayClient, name: String? = nil, ready: String? = nil
  ) throws(CommandFailure) -> [Document] {
    var sessions: [Document] = []
    var after: String?
    while true {
      var query = Query()
      query.add("limit", "\(pageSize)")
      query.add("after", after)
      query.add("name", name)
      query.add("ready", ready)
      let page = try client.document(at: client.options.url.path + "/v1/sessions" + query.text)
      let found = page.objects("sessions")
      sessions += found
      guard page.isTrue("more"), let last = found.last?.text("session"), last != after else { return sessions }
      after = last
    }
  }
}
