import ByteStreams
import HTTPCodec

/// `drawbridge send`.
enum SendCommand {
  private static let defaultWait = TimeSpan.seconds(25)
  /// How much longer the response may take than the wait that was requested.
  private static let margin = TimeSpan.seconds(10)

  private static let topic = Flag(
    "topic", .text("TOPIC"), "replacement key: replace a queued message with the same TOPIC")
  private static let ttl = Flag(
    "ttl", .duration, "how long the message may be queued (0: send it now, or fail; default: the gateway's)")
  private static let wait = Flag(
    "wait", .choice(["queued", "written", "confirmed"]), "wait until the message has this state (default: queued)")
  private static let timeout = Flag("timeout", .duration, "with --wait: the maximum wait (default: 25s)")
  private static let type = Flag(
    "type", .choice(["text", "binary"]), "the kind of message (default: text if it is UTF-8)")
  private static let key = Flag(
    "key", .text("KEY"), "idempotency key: a repetition with this key within 10 minutes sends no second message")
  static let event = Flag(
    "event", .text("NAME"), "for a Socket.IO upstream: emit this event, with TEXT as its argument")
  static let namespace = Flag("namespace", .text("NAME"), "with --event: the namespace of the event (default: /)")

  static let command = Command(
    "send",
    operands: [.init("TEXT")],
    usage: "[TEXT | -]",
    summary: "send a message to the upstream",
    purpose: "send a message to the upstream of a running gateway.",
    examples: [
      "drawbridge send hello",
      "drawbridge send '{\"op\":\"subscribe\"}' --wait confirmed",
      "date | drawbridge send - --ttl 10s --topic clock",
      "drawbridge send --url https://gateway.example --token-file me.token <picture.png",
    ],
    text: """
      Without TEXT, or with -, the message is standard input. The text is sent as it is. The output is the id and the
      state of the message, or the JSON of the gateway if standard output is no terminal.
      """,
    flags: [topic, ttl, wait, timeout, type, key, event, namespace] + ClientOptions.flags + [ResultFormat.flag],
    exitCodes: [
      Command.ExitCode(ExitCode.ok, "the gateway has accepted the message; with --wait: the message has the state"),
      Command.ExitCode(
        ExitCode.failed, "with --wait: the message has another final state (expired, replaced, rejected or unknown)"),
    ] + ClientOptions.exitCodes
  ) { (arguments) throws(UsageError) in
    let options = try ClientOptions(arguments)
    if arguments.has(timeout), !isWaiting(arguments) {
      throw UsageError(message: "--timeout has no effect without --wait: give --wait written or --wait confirmed.")
    }
    return CommandFailure.report { () throws(CommandFailure) in try send(arguments, options) }
  }

  private static func isWaiting(_ arguments: Arguments) -> Bool { arguments[wait].map { $0 != "queued" } ?? false }

  private static func send(_ arguments: Arguments, _ options: ClientOptions) throws(CommandFailure) -> Int32 {
    let content = try MessageInput.content(arguments.operands.first, of: command)
    let client = try GatewayClient(options)
    client.warnOfExposure()
    let awaited = isWaiting(arguments) ? arguments[wait] : nil
    let span = arguments.duration(timeout) ?? defaultWait
    var query = Query()
    query.add("topic", arguments[topic])
    query.add("ttl", arguments[ttl])
    query.add("type", arguments[type])
    query.add("event", arguments[event])
    query.add("namespace", arguments[namespace])
    query.add("until", awaited)
    query.add("wait", awaited == nil ? nil : span.text)
    var request = GatewayRequest(method: "POST", path: options.path("messages") + query.text, body: content)
    if let key = arguments[key] {
      guard key.utf8.allSatisfy({ $0 > 0x20 && $0 < 0x7F }) else {
        throw CommandFailure(ExitCode.usage, "'--key \(key)' is not valid: use visible ASCII characters")
      }
      request.fields.append(("Idempotency-Key", key))
    }
    let response = try client.success(of: request, within: (awaited == nil ? .zero : span) + margin)
    guard let receipt = response.document, let state = receipt.text("state") else { throw GatewayClient.noGateway }
    if ResultFormat.isText(arguments) {
      try Terminal.output(line(for: receipt))
    } else {
      try Terminal.output(json: receipt.bytes)
    }
    guard let awaited else { return ExitCode.ok }
    return exitCode(for: state, awaiting: awaited, isFinal: response.status == 200)
  }

  /// `queued d-9d6f63e417f6.1`, and why it is not sent now.
  static func line(for receipt: Document) -> String {
    var line = "\(receipt.text("state") ?? "") \(receipt.text("id") ?? "")"
    if let reason = receipt.text("reason") { line += " (\(reason))" }
    if let seconds = receipt.number("next_attempt_in_seconds") {
      line += ": the upstream is not connected, and the gateway tries again in \(Words.age(seconds))"
    }
    return line
  }

  /// - Parameter isFinal: whether the message has reached the requested state or a final state.
  static func exitCode(for state: String, awaiting awaited: String, isFinal: Bool) -> Int32 {
    if state == "confirmed" || state == awaited { return ExitCode.ok }
    return isFinal ? ExitCode.failed : ExitCode.temporary
  }
}
