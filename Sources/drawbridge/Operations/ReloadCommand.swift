import ByteStreams
import Host
import Reactor

/// `drawbridge reload`.
enum ReloadCommand {
  /// How long a reload may take. It reads files, which may be on a network file system.
  private static let limit = TimeSpan.seconds(30)
  private static let interval = TimeSpan.milliseconds(50)

  static let command = Command(
    "reload",
    summary: "let a running gateway read its configuration again",
    purpose:
      "let a running gateway read its configuration again, as SIGHUP does, and say whether the configuration is in effect.",
    examples: ["drawbridge reload", "drawbridge reload --url https://gateway.example --token-file admin.token"],
    text: """
      If the new configuration is not valid, the old one remains in effect, and the log of the gateway has the errors.
      With authentication, the token needs the scope admin and all sessions.

      Only sessions whose upstream settings have changed get a new connection. If no setting has changed since the start
      or the last reload by SIGHUP or this command, every session gets a new connection, which replaces the old connection
      when it is ready. So certificates and credentials that are read for each connection take effect: the gateway does
      not know whether their files have changed.
      """,
    flags: ClientOptions.connectionFlags,
    exitCodes: [Command.ExitCode(ExitCode.ok, "the configuration is in effect")] + ClientOptions.exitCodes + [
      Command.ExitCode(ExitCode.configuration, "the configuration is not valid; the old one remains in effect")
    ]
  ) { (arguments) throws(UsageError) in
    let options = try ClientOptions(arguments)
    return CommandFailure.report { () throws(CommandFailure) in
      let client = try GatewayClient(options)
      client.warnOfExposure()
      return try reload(client)
    }
  }

  private static func reload(_ client: GatewayClient) throws(CommandFailure) -> Int32 {
    let path = client.options.url.path + "/v1/reload"
    let begun = try client.success(of: GatewayRequest(method: "POST", path: path, body: []))
    guard let before = begun.document?.integer("reloads") else { throw GatewayClient.noGateway }
    let deadline = ProcessInformation.monotonicTime() + limit
    while ProcessInformation.monotonicTime() < deadline {
      let state = try client.document(at: path)
      if state.integer("reloads") ?? 0 > before {
        guard state.isTrue("valid") else {
          Terminal.note("the new configuration is not valid: the old one remains in effect. The gateway's log says why")
          return ExitCode.configuration
        }
        try Terminal.output("reloaded")
        return ExitCode.ok
      }
      _ = client.events.wait(until: ProcessInformation.monotonicTime() + interval)
    }
    throw CommandFailure(ExitCode.temporary, "the gateway has not reloaded within \(Int(limit.seconds)) s")
  }
}
