import ByteStreams
import Gateway
import Glibc
import HTTPCodec
import Host
import JSONCodec
import Reactor
import Threading

/// Follows the pushes of a session across lost connections and restarts of the gateway. Each stream continues after the
/// last line of the previous one.
final class TailCommand {
  /// The heartbeat interval if the response does not state one. A connection without a byte for three intervals counts
  /// as lost.
  private static let usualHeartbeat = TimeSpan.seconds(15)
  /// The longest heartbeat that a gateway can have (`delivery.stream_heartbeat`).
  private static let longestHeartbeat = TimeSpan.minutes(10)
  private static let pauses = (first: TimeSpan.milliseconds(500), longest: TimeSpan.seconds(10))
  /// A longer line cannot be a message: a message has at most `upstream.message_bytes`, 16 MiB by default.
  private static let lineBytes = 512 << 20
  /// Maximum bytes that are read of a refusal.
  private static let problemBytes = 64 << 10
  private static let longestToken = 8 << 10
  private static let signals: [Int32] = [SIGINT, SIGTERM]

  /// Why the command ends.
  private enum End: Error {
    /// A signal arrived, or the output has no reader any more.
    case stopped
    case refused(String)
    case file(String)
    /// Standard output cannot be written.
    case output(String)
    case usage(String)
  }

  /// How a stream ended. In both cases another stream follows.
  private enum Stream {
    /// The stream was complete: its lifetime is over, or the gateway shuts down.
    case ended
    case failed(String, retryAfter: TimeSpan?)
  }

  private let options: TailOptions
  private let events: ProcessEvents
  private let resolver = Resolver()
  /// The position after the last line; nil before the first response.
  private var cursor: String?
  /// Whether the last attempt has failed, and a note says so.
  private var hasFailed = false
  /// Whether a stream has begun. Then the command line is valid, and a later error may be temporary.
  private var hasConnected = false

  static func run(_ invocation: Invocation) -> Int32 {
    do throws(UsageError) {
      let options = try TailOptions(invocation)
      ProcessSignals.block(signals)
      do throws(SystemError) {
        return try TailCommand(options).run()
      } catch {
        Terminal.printError("drawbridge: \(error)")
        return DrawbridgeCommand.ExitCode.unavailable
      }
    } catch {
      Terminal.printError("drawbridge: \(error.message)")
      return DrawbridgeCommand.ExitCode.usage
    }
  }

  private init(_ options: TailOptions) throws(SystemError) {
    self.options = options
    events = try ProcessEvents(signals: Self.signals)
  }

  private func run() -> Int32 {
    var pause = Self.pauses.first
    if options.tokenFile != nil, options.url.isExposed {
      note("others on the network can read the token, because the URL is not one of https")
    }
    do throws(End) {
      while true {
        let began = ProcessInformation.monotonicTime()
        let before = cursor
        switch try follow() {
        case .ended:
          // Streams that end at once must not cause a busy loop.
          if ProcessInformation.monotonicTime() - began < .seconds(1) { try wait(for: Self.pauses.first) }
          pause = Self.pauses.first
        case .failed(let reason, let retryAfter):
          if cursor != before { pause = Self.pauses.first }
          let time = retryAfter.map { " in \(Int($0.seconds)) s" } ?? ""
          if !hasFailed || retryAfter != nil { note("\(reason). Trying again\(time)") }
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
      if options.output.format == .text, let cursor, !TailOutput.isClosed {
        note("stopped. Continue with --cursor \(cursor)")
      }
      return DrawbridgeCommand.ExitCode.ok
    case .refused(let reason):
      note("the gateway refuses the request: \(reason)")
      return DrawbridgeCommand.ExitCode.unavailable
    case .file(let reason):
      note(reason)
      return DrawbridgeCommand.ExitCode.noInput
    case .output(let reason):
      note("standard output cannot be written: \(reason)")
      return DrawbridgeCommand.ExitCode.output
    case .usage(let reason):
      note(reason)
      return DrawbridgeCommand.ExitCode.usage
    }
  }

  private func note(_ text: String) { Terminal.printError("drawbridge: \(Terminal.oneLine(text))") }

  private func wait(for span: TimeSpan) throws(End) {
    if case .signal = events.wait(until: ProcessInformation.monotonicTime() + span) { throw .stopped }
  }

  // MARK: One stream

  private func follow() throws(End) -> Stream {
    let request: String
    do throws(End) {
      request = try self.request()
    } catch {
      // The file may be about to be replaced.
      if hasConnected, case .file(let reason) = error { return .failed(reason, retryAfter: nil) }
      throw error
    }
    var decoder = HTTPResponseHeadDecoder()
    var input = ByteQueue()
    let connection: GatewayConnection
    let addresses: [SocketAddress]
    switch try resolve() {
    case .success(let found): addresses = found
    case .failure(let error): return .failed("\(error)", retryAfter: nil)
    }
    func noResponse(_ failure: ConnectionFailure) -> Stream {
      .failed("no response from \(options.url.text): \(failure.reason)", retryAfter: nil)
    }
    do throws(ConnectionFailure) {
      // Each step blocks for a few seconds, and signals have their default action.
      ProcessSignals.unblock(Self.signals)
      defer { ProcessSignals.block(Self.signals) }
      connection = try GatewayConnection(to: options.url, at: addresses, options.context)
      try connection.send(request)
    } catch {
      return noResponse(error)
    }
    let deadline = ProcessInformation.monotonicTime() + .seconds(Int64(GatewayConnection.timeoutSeconds))
    if let failure = try readHead(&decoder, from: connection, &input, until: deadline) { return noResponse(failure) }
    guard decoder.status == .ok else { return try refused(decoder, connection, &input, until: deadline) }
    // Checked before the content is read: other content may have any length, and no lines.
    if let type = Self.field("Content-Type", of: decoder), !type.lowercased().hasPrefix("application/x-ndjson") {
      throw Self.noStream
    }
    if hasFailed { note("connected again") }
    hasFailed = false
    hasConnected = true
    // If a gap follows, the position is known only after its line.
    if cursor == nil, Self.field("Gateway-Gap", of: decoder) == nil {
      cursor = Self.field("Gateway-Cursor", of: decoder)
    }
    return try readLines(from: connection, &input, silence: Self.silence(of: decoder))
  }

  private func request() throws(End) -> String {
    // The server chooses the text of a cursor, so it is encoded.
    let start = cursor.map { "cursor=\(PercentEncoder.encode(Array($0.utf8).span))" } ?? options.start
    var request =
      "GET \(options.url.path)/v1/sessions/\(options.session)/messages?stream=1&\(start)\(options.topics) HTTP/1.0\r\n"
    request +=
      "Host: \(options.url.hostField)\r\nAccept: application/x-ndjson\r\nUser-Agent: drawbridge/\(DrawbridgeVersion.text)\r\n"
    if let token = try token() { request += "Authorization: Bearer \(token)\r\n" }
    return request + "\r\n"
  }

  private func token() throws(End) -> String? {
    guard let path = options.tokenFile else { return nil }
    let bytes: [UInt8]
    do throws(FileError) {
      bytes = try SystemFile.contents(of: path, atMost: Self.longestToken + 1, within: .seconds(10))
    } catch {
      throw .file("--token-file \(path) cannot be read: \(error)")
    }
    let token = bytes.split { $0 <= 0x20 }
    guard token.count == 1, bytes.count <= Self.longestToken, token[0].allSatisfy({ $0 > 0x20 && $0 < 0x7F }) else {
      throw .file("--token-file \(path) is not valid: it contains one token, of at most 8 KiB, and no other text")
    }
    return String(decoding: token[0], as: UTF8.self)
  }

  private func resolve() throws(End) -> Resolver.Resolution {
    guard case .network(let host, let port) = options.url.place else {
      if case .unix(let path) = options.url.place { return .success([.unix(path: path)]) }
      return .success([])
    }
    let result = Locked<Resolver.Resolution?>(nil)
    Task { [resolver, events] in
      let resolution = await resolver.resolve(host: host, port: port)
      result.withLock { $0 = resolution }
      events.wake()
    }
    while true {
      if let resolution = result.withLock({ $0 }) { return resolution }
      if case .signal = events.wait() { throw .stopped }
    }
  }

  /// Receives more bytes of the response's head or problem. Returns why there are no more. Throws after a signal.
  private func receive(
    from connection: GatewayConnection, _ input: inout ByteQueue, until deadline: MonotonicTime
  ) throws(End) -> ConnectionFailure? {
    if connection.isAtEnd { return ConnectionFailure("the connection was closed") }
    switch events.wait(until: deadline, orReadable: connection.descriptor) {
    case .signal: throw .stopped
    case .woken: return nil
    case .deadline: return ConnectionFailure("no response within \(GatewayConnection.timeoutSeconds) s")
    case .readable: break
    }
    do throws(ConnectionFailure) {
      _ = try connection.receive(into: &input)
      return nil
    } catch {
      return error
    }
  }

  /// Reads the head of the response. Returns why there is no usable response.
  private func readHead(
    _ decoder: inout HTTPResponseHeadDecoder, from connection: GatewayConnection, _ input: inout ByteQueue,
    until deadline: MonotonicTime
  ) throws(End) -> ConnectionFailure? {
    while true {
      do throws(HTTPProtocolError) {
        if try decoder.take(from: &input) { break }
      } catch {
        return ConnectionFailure("the response is not valid HTTP: \(error)")
      }
      if let failure = try receive(from: connection, &input, until: deadline) { return failure }
    }
    guard Self.field("Transfer-Encoding", of: decoder) == nil else {
      return ConnectionFailure("the response to HTTP/1.0 is chunked: a proxy in between is at fault")
    }
    return nil
  }

  private static func field(_ name: String, of decoder: borrowing HTTPResponseHeadDecoder) -> String? {
    for index in 0..<decoder.fields.count where decoder.fields.name(at: index).equalsIgnoringCase(Array(name.utf8).span)
    {
      return decoder.fields.value(at: index).text()
    }
    return nil
  }

  /// Reads the problem of a response other than 200.
  private func refused(
    _ decoder: borrowing HTTPResponseHeadDecoder, _ connection: GatewayConnection, _ input: inout ByteQueue,
    until deadline: MonotonicTime
  ) throws(End) -> Stream {
    // If the content is incomplete, the status suffices.
    while input.count < Self.problemBytes, try receive(from: connection, &input, until: deadline) == nil {}
    let status = decoder.status.rawValue
    let detail = StreamLine(input.bytes.text().split(whereSeparator: \.isNewline).last.map { Array($0.utf8) } ?? [])?
      .text("detail")
    let reason = "status \(status)" + (detail.map { ": \($0)" } ?? "")
    // An expired token will probably be replaced.
    let canChange = status == 401 && hasConnected && options.tokenFile != nil
    guard status >= 500 || status == 429 || status == 408 || canChange else { throw .refused(reason) }
    let retryAfter = Self.field("Retry-After", of: decoder).flatMap { Int64($0) }.map {
      TimeSpan.seconds(min(max(1, $0), 3600))
    }
    return .failed(reason, retryAfter: retryAfter)
  }

  // MARK: Lines

  /// Returns how long a stream may be without a byte.
  private static func silence(of decoder: borrowing HTTPResponseHeadDecoder) -> TimeSpan {
    guard let seconds = field("Gateway-Heartbeat", of: decoder).flatMap({ Int32($0) }), seconds > 0 else {
      return usualHeartbeat * 3
    }
    return min(.seconds(Int64(seconds)), longestHeartbeat) * 3
  }

  private func readLines(
    from connection: GatewayConnection, _ input: inout ByteQueue, silence: TimeSpan
  ) throws(End) -> Stream {
    var scanned = 0
    // Bytes that arrive with the end of the response, or before the connection is lost, are used, too.
    var end: Stream? = connection.isAtEnd ? .ended : nil
    while true {
      while let end = input.bytes.firstIndex(of: UInt8(ascii: "\n"), from: scanned) {
        try take([UInt8](copying: input.bytes.extracting(first: end)))
        input.consume(end + 1)
        scanned = 0
      }
      scanned = input.count
      guard input.count < Self.lineBytes else { throw .refused("a line has more than \(Self.lineBytes) bytes") }
      if let end { return end }
      if TailOutput.isClosed { throw .stopped }
      switch events.wait(until: ProcessInformation.monotonicTime() + silence, orReadable: connection.descriptor) {
      case .signal: throw .stopped
      case .woken: continue
      case .deadline: return .failed("no byte for \(Int(silence.seconds)) s", retryAfter: nil)
      case .readable: break
      }
      do throws(ConnectionFailure) {
        // The next stream repeats an incomplete line.
        if try !connection.receive(into: &input) { end = .ended }
      } catch {
        end = .failed("the connection was lost: \(error.reason)", retryAfter: nil)
      }
    }
  }

  private static var noStream: End {
    .refused("the response is no stream of pushes: is this the address of a gateway?")
  }

  private func take(_ bytes: [UInt8]) throws(End) {
    guard let line = StreamLine(bytes) else {
      throw Self.noStream
    }
    try write(options.output.render(line))
    cursor = line.cursor ?? cursor
  }

  /// Writes to standard output. If its reader stops, the stream is not read either, and the gateway keeps the pushes.
  private func write(_ bytes: [UInt8]) throws(End) {
    var rest = bytes[...]
    while !rest.isEmpty {
      var interest = pollfd(fd: STDOUT_FILENO, events: Int16(POLLOUT), revents: 0)
      if unsafe poll(&interest, 1, 0) == 0 {
        // While the write would block, signals have their default action.
        ProcessSignals.unblock(Self.signals)
        _ = unsafe poll(&interest, 1, -1)
        ProcessSignals.block(Self.signals)
      }
      // A pipe that is writable takes this many bytes without blocking.
      let piece = rest.prefix(Int(PIPE_BUF))
      let count = unsafe piece.withUnsafeBytes { unsafe Glibc.write(STDOUT_FILENO, $0.baseAddress, $0.count) }
      if count < 0, errno == EINTR || errno == EAGAIN { continue }
      guard count > 0 else { throw errno == EPIPE ? .stopped : .output(SystemError.reason(of: errno)) }
      rest = rest.dropFirst(count)
    }
  }
}
