import ByteStreams
import Gateway
import Glibc
import Host
import Reactor
import Threading

/// The HTTP client of all commands. It sends one request at a time. Each request has its own connection.
///
/// The calls block. Signals that the command handles are blocked in every thread, and end a wait of the client.
final class GatewayClient {
  enum Failure: Error {
    /// A signal has ended the wait.
    case stopped(Int32)
    /// There is no response. The value is the reason.
    case connection(String)
    /// The file of the token cannot be used. The value is the reason.
    case file(String)
  }

  /// The longest response that is kept in memory. The reader of a stream limits the length of its lines.
  private static let bodyBytes = 512 << 20
  private static let longestToken = 8 << 10

  let options: ClientOptions
  let events: ProcessEvents
  private let resolver = Resolver()
  /// Signals that have their default action while the client connects, since a connection attempt blocks and cannot be
  /// cancelled.
  private let signals: [Int32]
  /// Called with a signal that arrives during a wait. Returns whether the wait continues.
  var whenSignalled: (Int32) -> Bool = { $0 == SIGCHLD }

  /// - Parameter handled: signals that end a wait. They must be blocked.
  /// - Parameter isInterruptible: whether these signals end the process while the client connects.
  init(_ options: ClientOptions, handling handled: [Int32] = [], isInterruptible: Bool = true) throws(CommandFailure) {
    self.options = options
    signals = isInterruptible ? handled : []
    do throws(SystemError) {
      events = try ProcessEvents(signals: handled)
    } catch {
      throw CommandFailure(ExitCode.unavailable, "\(error)")
    }
  }

  /// Warns that other people can read the token.
  func warnOfExposure() {
    if options.tokenFile != nil, options.url.isExposed {
      Terminal.note("others on the network can read the token, because the URL is not https")
    }
  }

  // MARK: Requests

  /// Sends a request and returns the whole response.
  func response(
    to request: GatewayRequest, within span: TimeSpan = .seconds(Int64(GatewayConnection.timeoutSeconds))
  ) throws(Failure) -> GatewayResponse {
    let exchange = try send(request)
    let deadline = ProcessInformation.monotonicTime() + span
    while !exchange.isComplete {
      guard exchange.input.count <= Self.bodyBytes else {
        throw .connection("the response has more than \(Self.bodyBytes) bytes")
      }
      try receive(exchange, until: deadline)
    }
    return GatewayResponse(exchange)
  }

  /// Connects and sends a request.
  func send(_ request: GatewayRequest) throws(Failure) -> GatewayExchange {
    var text = "\(request.method) \(request.path) HTTP/1.0\r\nHost: \(options.url.hostField)\r\n"
    text += "User-Agent: drawbridge/\(DrawbridgeVersion.text)\r\n"
    for field in request.fields { text += "\(field.name): \(field.value)\r\n" }
    if let token = try token() { text += "Authorization: Bearer \(token)\r\n" }
    if let body = request.body { text += "Content-Length: \(body.count)\r\n" }
    let addresses = try resolve()
    do throws(ConnectionFailure) {
      // Signals can end the process during the connection attempt, since each of its steps may block for a few seconds.
      ProcessSignals.unblock(signals)
      defer { ProcessSignals.block(signals) }
      let connection = try GatewayConnection(to: options.url, at: addresses, options.context)
      try connection.send(Array((text + "\r\n").utf8) + (request.body ?? []))
      return GatewayExchange(connection)
    } catch {
      throw noResponse(error)
    }
  }

  /// Waits for bytes of the response, and reads them.
  func receive(_ exchange: GatewayExchange, until deadline: MonotonicTime) throws(Failure) {
    switch events.wait(until: deadline, orReadable: exchange.connection.descriptor) {
    case .signal(let signal):
      guard whenSignalled(signal) else { throw .stopped(signal) }
      return
    case .woken: return
    case .deadline: throw noResponse(ConnectionFailure("no response in time"))
    case .readable: break
    }
    do throws(ConnectionFailure) {
      try exchange.receive()
    } catch {
      throw noResponse(error)
    }
  }

  private func noResponse(_ failure: ConnectionFailure) -> Failure {
    .connection("no response from \(options.url.text): \(failure.reason)\(failure.hint.map { ": \($0)" } ?? "")")
  }

  private func token() throws(Failure) -> String? {
    guard let path = options.tokenFile else { return nil }
    let bytes: [UInt8]
    do throws(FileError) {
      bytes = try SystemFile.contents(of: path, atMost: Self.longestToken + 1, within: .seconds(10))
    } catch {
      throw .file("--token-file \(path) cannot be read: \(error)")
    }
    let token = bytes.split { $0 <= 0x20 }
    guard token.count == 1, bytes.count <= Self.longestToken, token[0].allSatisfy({ $0 > 0x20 && $0 < 0x7F }) else {
      throw .file("--token-file \(path) is not valid: use a file with one token of at most 8 KiB and no other text")
    }
    return String(decoding: token[0], as: UTF8.self)
  }

  private func resolve() throws(Failure) -> [SocketAddress] {
    guard case .network(let host, let port) = options.url.place else {
      if case .unix(let path) = options.url.place { return [.unix(path: path)] }
      return []
    }
    let result = Locked<Resolver.Resolution?>(nil)
    Task { [resolver, events] in
      let resolution = await resolver.resolve(host: host, port: port)
      result.withLock { $0 = resolution }
      events.wake()
    }
    while true {
      if let resolution = result.withLock({ $0 }) {
        switch resolution {
        case .success(let addresses): return addresses
        case .failure(let error): throw noResponse(ConnectionFailure("\(error)"))
        }
      }
      if case .signal(let signal) = events.wait(), !whenSignalled(signal) { throw .stopped(signal) }
    }
  }

  // MARK: Refusals

  /// Returns the reason for which the gateway refuses a request, in one line.
  func reason(of response: GatewayResponse) -> String {
    // If the response has no JSON document, it is used as text: a listener or a proxy may refuse a request with a line
    // of text.
    let detail = response.document?.text("detail") ?? response.line
    let reason = "status \(response.status)" + (detail.map { ": \($0)" } ?? "")
    return reason + (hint(for: response.status).map { ". \($0)" } ?? "")
  }

  private func hint(for status: Int) -> String? {
    guard status == 401 else { return nil }
    return options.tokenFile == nil
      ? "Give the file of a token with --token-file, or DRAWBRIDGE_TOKEN_FILE"
      : "Is the token in --token-file right?"
  }
}
