import ByteStreams
import Glibc
import Host
import Reactor

/// Runs a command for each push of a work-sharing consumer.
///
/// One thread waits for signals, for the ends of commands, for the response to the held receive, and for the time of
/// the next extension of a lease.
final class WorkCommand {
  private static let receiveWait = TimeSpan.seconds(25)
  /// How much longer the response may take than the wait that was requested.
  private static let margin = TimeSpan.seconds(10)
  private static let pauses = (first: TimeSpan.milliseconds(500), longest: TimeSpan.seconds(10))
  /// The time that the gateway has, after a signal, to end the held receive and to accept the last settlements.
  private static let farewell = TimeSpan.seconds(5)
  private static let parallelLimit = 256

  private static let parallel = Flag("parallel", .number(1...parallelLimit), "commands at a time (default: 1)")
  private static let topic = Flag(
    "topic", .text("TOPIC"), "only pushes with this topic; a final * selects all topics with this beginning",
    isRepeatable: true)
  private static let start = Flag(
    "start", .text("POSITION"), "where a new consumer starts: earliest, latest (the default), or a cursor")
  private static let visibility = Flag(
    "visibility", .duration, "how long a lease lasts without an extension (default: 30s)")
  private static let maxDeliveries = Flag(
    "max-deliveries", .number(1...1000), "number of failures after which a push becomes a dead letter (default: 5)")
  private static let orderBy = Flag(
    "order-by", .text("KEY"), "handle pushes of the same key one after another: all, topic, or a JSON pointer")

  static let command = Command(
    "work",
    operands: [.init("NAME")],
    runsCommand: true,
    usage: "NAME -- COMMAND",
    summary: "run a command for each push",
    purpose: "run a command for each push of the consumer NAME. Any number of workers can use the same consumer.",
    examples: [
      "drawbridge work orders -- ./handle-order",
      "drawbridge work orders --topic 'orders.*' --parallel 4 -- python3 handle.py",
      "drawbridge work mail --start earliest -- sh -c 'mail -s \"$PUSH_TOPIC\" me@example.org'",
    ],
    text: """
      Creates the consumer if it does not exist. A new consumer begins with the next push, or at --start. The payload of
      the push is the standard input of the command, and the environment of the command has PUSH_ID, PUSH_TIME, PUSH_TYPE,
      PUSH_TOPIC, PUSH_SESSION and PUSH_DELIVERIES. A push is acknowledged when the command exits with 0. Otherwise the
      push is delivered again after 1 s, 2 s, 4 s, up to 5 min, and becomes a dead letter after --max-deliveries. While the
      command runs, the lease of the push is extended. Each push is handled at least once: let the command skip a PUSH_ID
      that it has already handled, if handling a push twice does harm.

      After SIGTERM or Ctrl-C, no further push is received, the running commands end, and their pushes are settled. A
      second signal is passed on to the commands; a third kills them. Pushes that were not handled are delivered again.
      """,
    flags: [ClientOptions.session, parallel, topic, start, visibility, maxDeliveries, orderBy]
      + ClientOptions.connectionFlags,
    notes: """
      Flags for the settings of the consumer also change a consumer that exists, with two exceptions: --start has no effect
      then, and a different --order-by is refused. Without such flags, the consumer keeps its settings. docs/consumers.md
      explains consumers.
      """,
    exitCodes: [
      Command.ExitCode(ExitCode.ok, "ended by a signal; every received push is settled"), .usage,
      Command.ExitCode(ExitCode.noInput, "the file of the token cannot be read"),
      Command.ExitCode(ExitCode.unavailable, "the gateway refuses the request, or the command cannot be started"),
      Command.ExitCode(ExitCode.temporary, "ended by a signal; some settlements did not reach the gateway"),
    ]
  ) { (arguments) throws(UsageError) in
    let options = try ClientOptions(arguments)
    guard let name = arguments.operands.first, !arguments.commandToRun.isEmpty else {
      throw UsageError(
        message: "'drawbridge work' needs a name and a command, as in 'drawbridge work orders -- ./handle-order'.")
    }
    guard !name.isEmpty, name.utf8.allSatisfy({ $0 > 0x20 && $0 < 0x7F && $0 != UInt8(ascii: "/") }) else {
      throw UsageError(
        message: "'\(name)' is not the name of a consumer: use letters, digits, dots, hyphens and underscores.")
    }
    let program = arguments.commandToRun[0]
    if let code = PushProcess.obstacle(to: program) {
      // The program is checked before the first push is leased: without the program, no push could be handled.
      Terminal.note("'\(program)' cannot be started: \(SystemError.reason(of: code))")
      return ExitCode.unavailable
    }
    ProcessSignals.block(signals)
    return CommandFailure.report { () throws(CommandFailure) in
      try WorkCommand(name, arguments, GatewayClient(options, handling: signals, isInterruptible: false)).run()
    }
  }

  private static let signals: [Int32] = [SIGINT, SIGTERM, SIGCHLD]

  private let client: GatewayClient
  private let name: String
  private let words: [String]
  private let arguments: Arguments
  private let path: String
  private var queue = WorkQueue(parallel: 1, visibility: .seconds(30))
  private var processes: [Int32: PushProcess] = [:]
  /// The request that waits for pushes.
  private var held: (exchange: GatewayExchange, deadline: MonotonicTime)?
  /// The number of signals so far.
  private var stops = 0
  /// The time of the next request after a failure.
  private var retryAt = MonotonicTime.zero
  private var pause = WorkCommand.pauses.first
  private var hasFailed = false
  /// The deadline after a signal. At this time this process ends, even if the gateway has not responded.
  private var endsAt = MonotonicTime.distantFuture

  private init(_ name: String, _ arguments: Arguments, _ client: GatewayClient) {
    self.client = client
    self.name = name
    self.arguments = arguments
    words = arguments.commandToRun
    path = client.options.path("consumers/\(PercentEncoder.encode(Array(name.utf8).span))")
  }

  // MARK: The consumer

  /// Creates the consumer. If it exists, changes the settings for which there are flags. Returns the consumer, and
  /// whether it is new.
  private func prepare() throws(CommandFailure) -> (consumer: Document, isNew: Bool) {
    let request = GatewayRequest(path: path, fields: [("Accept", "application/json")])
    let found = try client.success(of: request, accepting: [404])
    let problem = found.status == 404 ? found.document?.text("detail") ?? "" : ""
    // The 404 may mean that not only the consumer but also the session does not exist.
    if found.status == 404, problem.hasPrefix("session") { throw client.refusal(found) }
    let existing = found.status == 404 ? nil : found.document
    guard existing != nil || found.status == 404 else { throw GatewayClient.noGateway }
    if let existing, !existing.isTrue("share") {
      throw CommandFailure(
        ExitCode.unavailable, "the consumer exists and has one reader: use another name, or remove it")
    }
    let flags = [Self.topic, Self.visibility, Self.maxDeliveries, Self.orderBy]
    if let existing, !flags.contains(where: arguments.has) { return (existing, false) }
    let put = GatewayRequest(
      method: "PUT", path: path, fields: [("Content-Type", "application/json")],
      body: Array(Self.settings(arguments, existing).utf8))
    let response = try client.success(of: put)
    guard let document = response.document else { throw GatewayClient.noGateway }
    // Another worker may have created the consumer since the request above, so the status code of this response
    // decides.
    return (document, response.status == 201)
  }

  /// If standard output is a terminal, prints where the worker begins.
  private func introduce(_ consumer: Document, isNew: Bool) {
    guard Terminal.isTerminal else { return }
    let place = "consumer '\(name)' of session '\(client.options.session)' at \(client.options.url.text)"
    let start = arguments[Self.start]
    let position: String
    if !isNew {
      let lag = consumer.integer("lag") ?? 0
      let rest = lag == 0 ? "no push" : Words.count(lag, "push", "pushes")
      position = "continues at its position, with \(rest) to handle"
    } else {
      switch start ?? "latest" {
      case "latest": position = "is new, and begins with the next push"
      case "earliest": position = "is new, and begins with the oldest push that is kept"
      case let cursor: position = "is new, and begins after \(cursor)"
      }
    }
    Terminal.note("\(place) \(position)\(Words.filter(consumer.texts("topics"))). Ctrl-C ends the worker")
    if !isNew, start != nil {
      Terminal.note(
        "--start has no effect, since the consumer exists: to begin elsewhere, use another name, or remove it")
    }
  }

  /// The settings of the consumer: the values of the flags, and for the other settings their present values.
  static func settings(_ arguments: Arguments, _ existing: Document?) -> String {
    var members = ["\"share\":true"]
    func add(_ name: String, _ given: String?, _ kept: String?) {
      if let value = given ?? kept, value != "null" { members.append("\"\(name)\":\(value)") }
    }
    let topics = arguments.all(topic)
    add("start", existing == nil ? arguments[start].map(Document.string) : nil, nil)
    add(
      "topics", topics.isEmpty ? nil : "[\(topics.map { Document.string($0) }.joined(separator: ","))]",
      existing?.json("topics"))
    add("visibility", arguments[visibility].map(Document.string), existing?.json("visibility"))
    add("max_deliveries", arguments[maxDeliveries], existing?.json("max_deliveries"))
    add("order_by", arguments[orderBy].map(Document.string), existing?.json("order_by"))
    add("idle", nil, existing?.json("idle"))
    return "{\(members.joined(separator: ","))}"
  }

  // MARK: The loop

  private func run() throws(CommandFailure) -> Int32 {
    client.warnOfExposure()
    let (consumer, isNew) = try prepare()
    introduce(consumer, isNew: isNew)
    // A signal does not end the wait for a response, since the request may already have been executed.
    client.whenSignalled = { [unowned self] signal in
      if signal != SIGCHLD { stop(signal) }
      return true
    }
    let visibility = consumer.text("visibility").flatMap { TimeSpan($0) } ?? .seconds(30)
    queue = WorkQueue(parallel: arguments.number(Self.parallel) ?? 1, visibility: visibility)
    while true {
      try collectEnded()
      let now = ProcessInformation.monotonicTime()
      if stops > 0, held == nil, queue.isEmpty { return ExitCode.ok }
      if now >= endsAt, queue.running.isEmpty {
        guard queue.hasSettlements else { return ExitCode.ok }
        Terminal.note("some settlements did not reach the gateway: those pushes will be delivered again")
        return ExitCode.temporary
      }
      if now >= retryAt {
        let request = queue.request(at: now)
        if !request.isEmpty {
          try settle(request)
          continue
        }
        if stops == 0, held == nil, queue.free > 0 {
          try hold()
          continue
        }
      }
      try wait(now)
    }
  }

  private func wait(_ now: MonotonicTime) throws(CommandFailure) {
    let isIdle = stops == 0 && held == nil && queue.free > 0
    let isDue = queue.hasSettlements || isIdle ? retryAt : max(retryAt, queue.nextExtension)
    var deadline = min(isDue, held?.deadline ?? .distantFuture)
    if queue.running.isEmpty { deadline = min(deadline, endsAt) }
    switch client.events.wait(until: deadline, orReadable: held?.exchange.connection.descriptor) {
    case .signal(SIGCHLD), .woken: break
    case .signal(let signal): stop(signal)
    case .deadline:
      if let held, held.deadline <= ProcessInformation.monotonicTime() {
        self.held = nil
        if stops == 0 { fail("no response from \(client.options.url.text) in time", nil) }
      }
    case .readable: try receive()
    }
  }

  private func stop(_ signal: Int32) {
    stops += 1
    if stops == 1 {
      let count = queue.running.count
      Terminal.note(
        count == 0 ? "stopping" : "stopping when \(Words.count(count, "command")) \(count == 1 ? "has" : "have") ended")
      endsAt = ProcessInformation.monotonicTime() + Self.farewell
      if let exchange = held?.exchange { release(exchange) }
    } else {
      for process in processes.values { process.signal(stops == 2 ? signal : SIGKILL) }
    }
  }

  /// Makes the gateway respond to the held request at once, so that it leases no push that this process would not
  /// handle.
  private func release(_ exchange: GatewayExchange) {
    exchange.connection.finishSending()
    held = (exchange, endsAt)
  }

  /// Called when the gateway cannot be reached, or cannot serve the request now.
  private func fail(_ reason: String, _ retryAfter: TimeSpan?) {
    if !hasFailed { Terminal.note("\(reason). Trying again") }
    hasFailed = true
    retryAt = ProcessInformation.monotonicTime() + (retryAfter ?? pause / 1024 * Int64.random(in: 768...1280))
    pause = min(pause * 2, Self.pauses.longest)
  }

  private func succeed() {
    if hasFailed { Terminal.note("the gateway responds again") }
    hasFailed = false
    retryAt = .zero
    pause = Self.pauses.first
  }

  /// Returns whether the request has succeeded. Throws if a repetition would be refused, too.
  private func check(_ response: GatewayResponse) throws(CommandFailure) -> Bool {
    if response.isSuccess || response.status == 409 { return true }
    guard response.status >= 500 || response.status == 429 || response.status == 408 else {
      throw client.refusal(response)
    }
    fail(client.reason(of: response), response.retryAfter)
    return false
  }

  // MARK: Receiving

  private func hold() throws(CommandFailure) {
    var query = Query()
    query.add("limit", "\(queue.free)")
    query.add("wait", Self.receiveWait.text)
    do throws(GatewayClient.Failure) {
      let exchange = try client.send(
        GatewayRequest(method: "POST", path: path + "/receive" + query.text, body: []))
      held = (exchange, ProcessInformation.monotonicTime() + Self.receiveWait + Self.margin)
      // A signal has arrived while the request was being sent.
      if stops > 0 { release(exchange) }
    } catch {
      try handle(error)
    }
  }

  private func handle(_ failure: GatewayClient.Failure) throws(CommandFailure) {
    switch failure {
    // A signal stops the client only before `run` sets `whenSignalled`, and so before the first push.
    case .stopped: throw CommandFailure(failure)
    case .connection(let reason): fail(reason, nil)
    case .file(let reason):
      // The file of the token may be about to be replaced, so the request is repeated.
      fail(reason, nil)
    }
  }

  private func receive() throws(CommandFailure) {
    guard let (exchange, deadline) = held else { return }
    let began = deadline - (Self.receiveWait + Self.margin)
    do throws(ConnectionFailure) {
      try exchange.receive()
    } catch {
      held = nil
      if stops == 0 { fail("no response from \(client.options.url.text): \(error.reason)", nil) }
      return
    }
    guard exchange.isComplete else { return }
    held = nil
    let response = GatewayResponse(exchange)
    // The consumer was removed, together with its position and leases, so it is created again.
    if response.status == 404, stops == 0 {
      let (consumer, isNew) = try prepare()
      introduce(consumer, isNew: isNew)
      return
    }
    guard try check(response) else { return }
    guard response.isSuccess, let document = response.document else {
      return fail(client.reason(of: response), response.retryAfter)
    }
    succeed()
    if let gap = document.object("gap") {
      let missed = gap.integer("missed")
      Terminal.note(
        "\(missed.map { Words.count($0, "push", "pushes") } ?? "some pushes") missing (\(gap.text("reason") ?? ""))")
    }
    let messages = document.objects("messages")
    for message in messages { try handle(message) }
    // A gateway that is shutting down responds to a receive at once, so the next receive is delayed.
    let now = ProcessInformation.monotonicTime()
    if messages.isEmpty, !document.isTrue("more"), now - began < .seconds(1) { retryAt = now + Self.pauses.first }
  }

  private func handle(_ message: Document) throws(CommandFailure) {
    guard let lease = message.text("lease") else { return }
    guard stops == 0 else {
      queue.giveBack(lease)
      return
    }
    do throws(SystemError) {
      let process = try PushProcess(words, for: Push(document: message), of: client.options.session)
      processes[process.id] = process
      queue.start(
        process.id, lease: lease, push: message.text("id") ?? "", deliveries: message.integer("deliveries") ?? 1,
        at: ProcessInformation.monotonicTime())
    } catch {
      // The command cannot be started, so no push can be handled.
      Terminal.note("'\(words.first ?? "")' cannot be started: \(SystemError.reason(of: error.code))")
      queue.giveBack(lease)
      _ = try? settle(queue.request(at: ProcessInformation.monotonicTime()))
      throw CommandFailure(ExitCode.unavailable, "")
    }
  }

  // MARK: Settling

  private func collectEnded() throws(CommandFailure) {
    for process in processes.values {
      guard let end = process.end() else { continue }
      processes[process.id] = nil
      guard let (job, delay) = queue.end(process.id, isSuccess: end.isSuccess), let delay else { continue }
      Terminal.note(
        "the command \(end.text) for push \(job.push), delivery \(job.deliveries): released for \(delay.text)")
    }
    if stops > 0, queue.running.isEmpty {
      endsAt = min(endsAt, ProcessInformation.monotonicTime() + Self.farewell)
    } else if stops > 0 {
      endsAt = ProcessInformation.monotonicTime() + Self.farewell
    }
  }

  private func settle(_ request: WorkQueue.Request) throws(CommandFailure) {
    let response: GatewayResponse
    do throws(GatewayClient.Failure) {
      response = try client.response(
        to: GatewayRequest(
          method: "POST", path: path + "/settle", fields: [("Content-Type", "application/json")],
          body: Array(request.body.utf8)))
    } catch {
      return try handle(error)
    }
    // A 404 means that the consumer was removed with its leases, which need no settlement.
    if response.status != 404 {
      guard try check(response) else { return }
    }
    succeed()
    let all = request.acknowledged + request.released + request.extended
    let results = response.document?.objects("results") ?? []
    let lost =
      response.isSuccess
      ? Set(results.filter { $0.integer("status") == 409 }.compactMap { $0.text("lease") }) : Set(all)
    if !lost.isEmpty {
      Terminal.note(
        "\(Words.count(lost.count, "lease")) had ended before the settlement, so pushes may be delivered again")
    }
    queue.sent(request, lost: lost, at: ProcessInformation.monotonicTime())
  }
}
