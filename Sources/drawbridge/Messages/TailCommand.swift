import ByteStreams
import Glibc
import Host
import Reactor

/// Follows the pushes of a session across lost connections and restarts of the gateway. Each stream continues after the
/// last line of the previous stream.
final class TailCommand {
  /// The heartbeat interval if the response does not state one. A connection on which no byte arrives for three
  /// intervals is treated as lost.
  private static let usualHeartbeat = TimeSpan.seconds(15)
  /// The longest heartbeat that a gateway can have (`delivery.stream_heartbeat`).
  private static let longestHeartbeat = TimeSpan.minutes(10)
  private static let pauses = (first: TimeSpan.milliseconds(500), longest: TimeSpan.seconds(10))
  /// Maximum length of a line in bytes. With the default `upstream.message_bytes` of 16 MiB, a line has at most about
  /// 100 MiB, even if every byte of the message is escaped.
  private static let lineBytes = 512 << 20
  /// Maximum number of bytes of a refusal that are read.
  private static let problemBytes = 64 << 10
  private static let signals: [Int32] = [SIGINT, SIGTERM]

  static let command = Command(
    "tail",
    operands: [.init("URL")],
    usage: "[URL]",
    summary: "follow the pushes of a running gateway",
    purpose: "follow the pushes of a running gateway, until Ctrl-C.",
    examples: [
      "drawbridge tail                                     the gateway at http://127.0.0.1:8080",
      "drawbridge tail --last 10 --topic 'orders.*'",
      "drawbridge tail https://gateway.example --session market --token-file market.token",
      "drawbridge tail unix:/run/drawbridge/api.sock --since 10m",
      "drawbridge tail | jq -c .data                       a JSON object per line",
      "drawbridge tail --exec 'jq .price >>\"$PUSH_TOPIC.prices\"'",
    ],
    text: """
      Each push is a line: its time (UTC), its topic and its payload. A line '-- 3 messages are missing (retention)' is
      in place of pushes that the gateway no longer has. After a lost connection or a restart of the gateway, the command
      reconnects by itself and continues after the last line. Other messages go to standard error.

      With --exec, the shell runs the command for each push, one after another. The payload is its standard input. Its
      environment has PUSH_ID, PUSH_TIME, PUSH_TYPE, PUSH_TOPIC and PUSH_SESSION. If the command fails, this is reported,
      and the command runs for the next push. To handle a push again after a failure, use 'drawbridge work'.
      """,
    flags: TailOptions.flags,
    exitCodes: [
      Command.ExitCode(
        ExitCode.ok,
        "ended by Ctrl-C or SIGTERM, or because nobody reads the output. While the command connects, or its output is "
          + "blocked, the exit code is 130 after Ctrl-C and 143 after SIGTERM"), .usage,
      Command.ExitCode(ExitCode.noInput, "the file of the token cannot be read"),
      Command.ExitCode(ExitCode.unavailable, "the gateway refuses the request; the reason is on standard error"),
      Command.ExitCode(ExitCode.output, "standard output cannot be written"),
    ]
  ) { (arguments) throws(UsageError) in
    let options = try TailOptions(arguments)
    ProcessSignals.block(handled(options))
    return CommandFailure.report { () throws(CommandFailure) in try TailCommand(options).run() }
  }

  /// Why the command ends.
  private enum End: Error {
    /// A signal has arrived, or the output has no reader any more.
    case stopped
    case refused(String)
    case file(String)
    /// Writing to standard output has failed.
    case output(String)
    case command(String)
  }

  /// How a stream has ended. In both cases another stream follows.
  private enum Stream {
    /// The stream has ended completely, because its lifetime has ended or the gateway is shutting down.
    case ended
    case failed(String, retryAfter: TimeSpan?)
  }

  private let options: TailOptions
  private let client: GatewayClient
  /// The position after the last line; nil before the first response.
  private var cursor: String?
  /// Whether the last attempt has failed and a note about this was printed.
  private var hasFailed = false
  /// Whether a stream has already begun, which shows that the command line is valid.
  private var hasConnected = false

  private static func handled(_ options: TailOptions) -> [Int32] { signals + (options.exec == nil ? [] : [SIGCHLD]) }

  private init(_ options: TailOptions) throws(CommandFailure) {
    self.options = options
    client = try GatewayClient(options.client, handling: Self.handled(options))
  }

  private func run() -> Int32 {
    var pause = Self.pauses.first
    client.warnOfExposure()
    do throws(End) {
      while true {
        let began = ProcessInformation.monotonicTime()
        let before = cursor
        switch try follow() {
        case .ended:
          // The pause prevents a busy loop if streams end at once.
          if ProcessInformation.monotonicTime() - began < .seconds(1) { try wait(for: Self.pauses.first) }
          pause = Self.pauses.first
        case .failed(let reason, let retryAfter):
          if cursor != before { pause = Self.pauses.first }
          let time = retryAfter.map { " in \(Int($0.seconds)) s" } ?? ""
          if !hasFailed || retryAfter != nil { Terminal.note("\(reason). Trying again\(time)") }
          hasFailed = true
          try wait(for: retryAfter ?? pause / 1024 * Int64.random(in: 768...1280))
          pause = min(pause * 2, Self.pauses.longest)
        }
      }
    } catch {
      return end(error)
    }
  }

  private func end(_ end: End) -> Int32 {
    switch end {
    case .stopped:
      if options.output.format == .text || options.exec != nil, let cursor, !TailOutput.isClosed {
        Terminal.note("stopped. Continue with --cursor \(cursor)")
      }
      return ExitCode.ok
    case .refused(let reason):
      Terminal.note("the gateway refuses the request: \(reason)")
      return ExitCode.unavailable
    case .file(let reason):
      Terminal.note(reason)
      return ExitCode.noInput
    case .output(let reason):
      Terminal.note("standard output cannot be written: \(reason)")
      return ExitCode.output
    case .command(let reason):
      Terminal.note(reason)
      return ExitCode.unavailable
    }
  }

  private func wait(for span: TimeSpan) throws(End) {
    let deadline = ProcessInformation.monotonicTime() + span
    while true {
      switch client.events.wait(until: deadline) {
      case .deadline: return
      case .signal(let signal) where signal != SIGCHLD: throw .stopped
      default: break
      }
    }
  }

  /// The consequence of a failure of the client.
  private func outcome(of failure: GatewayClient.Failure) throws(End) -> Stream {
    switch failure {
    case .stopped: throw .stopped
    case .connection(let reason): return .failed(reason, retryAfter: nil)
    case .file(let reason):
      // The file of the token may be about to be replaced, so the command tries again if it has connected before.
      guard hasConnected else { throw .file(reason) }
      return .failed(reason, retryAfter: nil)
    }
  }

  // MARK: One stream

  private func follow() throws(End) -> Stream {
    // The server has chosen the text of the cursor, which may need encoding.
    let start = cursor.map { "cursor=\(PercentEncoder.encode(Array($0.utf8).span))" } ?? options.start
    let request = GatewayRequest(
      path: options.client.path("messages") + "?stream=1&\(start)\(options.filter)",
      fields: [("Accept", "application/x-ndjson")])
    let exchange: GatewayExchange
    do throws(GatewayClient.Failure) {
      exchange = try client.send(request)
    } catch {
      return try outcome(of: error)
    }
    let deadline = ProcessInformation.monotonicTime() + .seconds(Int64(GatewayConnection.timeoutSeconds))
    while !exchange.hasHead {
      do throws(GatewayClient.Failure) {
        try client.receive(exchange, until: deadline)
      } catch {
        return try outcome(of: error)
      }
    }
    guard exchange.status == 200 else { return try refused(exchange, until: deadline) }
    // The type is checked before the content is read: content of another type may have any length, and no lines.
    if let type = exchange.field("Content-Type"), !type.lowercased().hasPrefix("application/x-ndjson") {
      throw Self.noStream
    }
    if hasFailed {
      Terminal.note("connected again")
    } else if !hasConnected, options.output.isTerminal, options.output.format == .text || options.exec != nil {
      let place = "session '\(options.client.session)' at \(options.client.url.text)"
      Terminal.note("following \(place)\(Words.filter(options.topics)). Ctrl-C ends it")
    }
    hasFailed = false
    hasConnected = true
    // If a gap follows, the position is known only after its line.
    if cursor == nil, exchange.field("Gateway-Gap") == nil { cursor = exchange.field("Gateway-Cursor") }
    return try readLines(of: exchange, silence: Self.silence(of: exchange))
  }

  /// Reads the problem of a response other than 200.
  private func refused(_ exchange: GatewayExchange, until deadline: MonotonicTime) throws(End) -> Stream {
    // If the content is incomplete, the status suffices.
    reading: while !exchange.isComplete, exchange.input.count < Self.problemBytes {
      do throws(GatewayClient.Failure) {
        try client.receive(exchange, until: deadline)
      } catch {
        if case .stopped = error { throw .stopped }
        break reading
      }
    }
    let response = GatewayResponse(exchange)
    let reason = client.reason(of: response)
    // A token that has expired will probably be replaced in its file, so the command tries again.
    let canChange = response.status == 401 && hasConnected && options.client.tokenFile != nil
    guard response.status >= 500 || response.status == 429 || response.status == 408 || canChange else {
      throw .refused(reason)
    }
    return .failed(reason, retryAfter: response.retryAfter)
  }

  // MARK: Lines

  /// Returns how long a stream may be without a byte.
  private static func silence(of exchange: GatewayExchange) -> TimeSpan {
    guard let seconds = exchange.field("Gateway-Heartbeat").flatMap({ Int32($0) }), seconds > 0 else {
      return usualHeartbeat * 3
    }
    return min(.seconds(Int64(seconds)), longestHeartbeat) * 3
  }

  private func readLines(of exchange: GatewayExchange, silence: TimeSpan) throws(End) -> Stream {
    var scanned = 0
    // Bytes that arrive with the end of the response, or before the connection is lost, are used, too.
    var end: Stream? = exchange.isComplete ? .ended : nil
    while true {
      while let end = exchange.input.bytes.firstIndex(of: UInt8(ascii: "\n"), from: scanned) {
        let line = [UInt8](copying: exchange.input.bytes.extracting(first: end))
        exchange.input.consume(end + 1)
        try take(line)
        scanned = 0
      }
      scanned = exchange.input.count
      guard scanned < Self.lineBytes else { throw .refused("a line has more than \(Self.lineBytes) bytes") }
      if let end { return end }
      if TailOutput.isClosed { throw .stopped }
      switch client.events.wait(
        until: ProcessInformation.monotonicTime() + silence, orReadable: exchange.connection.descriptor)
      {
      case .signal(SIGCHLD), .woken: continue
      case .signal: throw .stopped
      case .deadline: return .failed("no byte for \(Int(silence.seconds)) s", retryAfter: nil)
      case .readable: break
      }
      do throws(ConnectionFailure) {
        // A line that is incomplete at the end of this stream is repeated by the next stream.
        try exchange.receive()
        if exchange.isComplete { end = .ended }
      } catch {
        end = .failed("the connection was lost: \(error.reason)", retryAfter: nil)
      }
    }
  }

  private static var noStream: End {
    .refused("the response is not a stream of pushes: is this the address of a gateway?")
  }

  private func take(_ bytes: [UInt8]) throws(End) {
    guard let line = Document(bytes) else { throw Self.noStream }
    if let exec = options.exec {
      try run(exec, for: line)
    } else {
      try write(options.output.render(line))
    }
    // The position after this line.
    cursor = line.text("cursor") ?? line.text("id") ?? cursor
  }

  /// Runs the command for a push, and waits for its end. A signal is passed on to the command, and ends this process
  /// after the command has ended.
  private func run(_ command: String, for line: Document) throws(End) {
    if line.text("type") == "gap" { Terminal.note(options.output.gapText(line)) }
    guard line.text("id") != nil else { return }
    let process: PushProcess
    do throws(SystemError) {
      process = try PushProcess(["/bin/sh", "-c", command], for: Push(document: line), of: options.client.session)
    } catch {
      throw .command("the command cannot be started: \(error)")
    }
    var isStopped = false
    while true {
      if let end = process.end() {
        if !end.isSuccess, !isStopped { Terminal.note("the command \(end.text) for push \(line.text("id") ?? "")") }
        break
      }
      if case .signal(let signal) = client.events.wait(), signal != SIGCHLD {
        isStopped = true
        process.signal(signal)
      }
    }
    if isStopped { throw .stopped }
  }

  /// Writes to standard output. As long as the output is not read, the stream is not read either, and the gateway keeps
  /// the pushes.
  private func write(_ bytes: [UInt8]) throws(End) {
    var rest = bytes[...]
    while !rest.isEmpty {
      var interest = pollfd(fd: STDOUT_FILENO, events: Int16(POLLOUT), revents: 0)
      if unsafe poll(&interest, 1, 0) == 0 {
        // As long as the write would block, signals have their default action, so that they end the process.
        ProcessSignals.unblock(Self.signals)
        _ = unsafe poll(&interest, 1, -1)
        ProcessSignals.block(Self.signals)
      }
      // A pipe that is writable accepts this many bytes without blocking.
      let piece = rest.prefix(Int(PIPE_BUF))
      let count = unsafe piece.withUnsafeBytes { unsafe Glibc.write(STDOUT_FILENO, $0.baseAddress, $0.count) }
      if count < 0, errno == EINTR || errno == EAGAIN { continue }
      guard count > 0 else { throw errno == EPIPE ? .stopped : .output(SystemError.reason(of: errno)) }
      rest = rest.dropFirst(count)
    }
  }
}
