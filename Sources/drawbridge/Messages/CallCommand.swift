import ByteStreams

/// `drawbridge call`.
enum CallCommand {
  private static let defaultWait = TimeSpan.seconds(10)
  private static let margin = TimeSpan.seconds(10)

  private static let timeout = Flag("timeout", .duration, "how long to wait for the reply (default: 10s)")
  private static let ttl = Flag(
    "ttl", .duration, "how long the request may be queued while the upstream is not connected")

  static let command = Command(
    "call",
    operands: [.init("JSON")],
    usage: "[JSON | -]",
    summary: "send a request to the upstream and print its reply",
    purpose: "send a request to the upstream of a running gateway, and print the reply.",
    examples: [
      "drawbridge call '{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"add\",\"params\":[1,2]}'",
      "drawbridge call - --timeout 30s <request.json | jq .result",
      "drawbridge call hello --event chat          (a Socket.IO upstream)",
    ],
    text: """
      Without JSON, or with -, the request is standard input. The request has an id at the place that upstream.correlation
      of the gateway's configuration names, and the reply has the same id. If the reply is an error of the upstream, it is
      printed like any other reply. docs/calls.md explains calls.
      """,
    flags: [timeout, ttl, SendCommand.event, SendCommand.namespace] + ClientOptions.flags,
    exitCodes: [Command.ExitCode(ExitCode.ok, "the reply is on standard output")] + ClientOptions.exitCodes
  ) { (arguments) throws(UsageError) in
    let options = try ClientOptions(arguments)
    return CommandFailure.report { () throws(CommandFailure) in try call(arguments, options) }
  }

  private static func call(_ arguments: Arguments, _ options: ClientOptions) throws(CommandFailure) -> Int32 {
    let content = try MessageInput.content(arguments.operands.first, of: command)
    let client = try GatewayClient(options)
    client.warnOfExposure()
    let span = arguments.duration(timeout) ?? defaultWait
    var query = Query()
    query.add("wait", span.text)
    query.add("ttl", arguments[ttl])
    query.add("event", arguments[SendCommand.event])
    query.add("namespace", arguments[SendCommand.namespace])
    let request = GatewayRequest(method: "POST", path: options.path("call") + query.text, body: content)
    let response = try client.success(of: request, within: span + margin)
    guard response.isJSON else { throw GatewayClient.noGateway }
    try Terminal.output(json: response.body)
    return ExitCode.ok
  }
}
