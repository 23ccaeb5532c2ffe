import ByteStreams
import Glibc
import HTTPCodec
import ProxyCodec
import Reactor
import TLSEngine
import UpstreamSession
import WebSocketCodec

/// From a URL to an open WebSocket. Time limits are the session's: when one passes, it discards the link, and the wait
/// at hand ends.
extension UpstreamLink {
  func open() async throws(OpeningEnd) {
    try await prepare()
    var destination: SOCKSHandshake.Destination?
    if let proxy { destination = try await self.destination(for: proxy) }
    let channel = try await connect(to: try await resolve(peer))
    let transport = UpstreamTransport(channel)
    self.transport = transport
    var input = ByteQueue()
    if let proxy { try await openTunnel(through: proxy, to: destination, over: transport, &input) }
    if url.isSecure {
      driver.advanced(self, to: .securing)
      try await secure(transport, &input)
    }
    driver.advanced(self, to: .upgrading)
    try await upgrade(over: transport, &input)
  }

  func resolve(_ peer: Peer) async throws(OpeningEnd) -> [SocketAddress] {
    let answer = await driver.resolver.resolve(host: peer.host, port: peer.port)
    guard !isDiscarded else { throw .discarded }
    switch answer {
    case .success(let addresses): return addresses
    case .failure(let error):
      throw .failed(OpeningReport(.resolving, .nameNotResolved, error.description))
    }
  }

  private func connect(to addresses: [SocketAddress]) async throws(OpeningEnd) -> Channel {
    driver.advanced(self, to: .connecting)
    let race = ConnectRace(addresses, userTimeout: settings.userTimeout, loop: loop)
    self.race = race
    let outcome = await race.run()
    self.race = nil
    switch outcome {
    case .connected(let channel, _):
      guard !isDiscarded else {
        channel.close()
        throw .discarded
      }
      return channel
    case .failed(let error, let hasRoute):
      let detail = (proxy.map { "the proxy \($0.redacted) cannot be reached: " } ?? "") + error.description
      throw .failed(OpeningReport(.connecting, hasRoute ? .network : .noRoute, detail))
    case .cancelled:
      throw .discarded
    }
  }

  // MARK: TLS

  /// `input`: what came through a proxy's tunnel before it was used.
  private func secure(_ transport: UpstreamTransport, _ input: inout ByteQueue) async throws(OpeningEnd) {
    do throws(TLSSettingsError) {
      guard let tlsContext else { preconditionFailure("no context for a wss URL") }
      transport.secure(with: try TLSConnection(to: url.host, context: tlsContext), received: input.bytes)
      input.removeAll()
    } catch {
      throw .failed(OpeningReport(.securing, .preparation, error.description))
    }
    while true {
      var outcome = Result<Bool, TLSError>.success(false)
      do throws(TLSError) { outcome = .success(try transport.advanceHandshake()) } catch { outcome = .failure(error) }
      try await flushAll(of: transport, in: .securing)
      switch outcome {
      case .success(true): return
      case .failure(let error): throw .failed(OpeningReport(.securing, .tls, "TLS: \(error)\(error.hint)"))
      case .success(false): break
      }
      try await receiveHandshake(over: transport)
    }
  }

  private func receiveHandshake(over transport: UpstreamTransport) async throws(OpeningEnd) {
    while true {
      let outcome = await transport.channel.readable()
      guard !isDiscarded, outcome == .ready else { throw .discarded }
      switch transport.receiveHandshake() {
      case .bytes, .endOfStream: return
      case .wouldBlock: continue
      case .failed(let code): throw .failed(broken(code, transport, in: .securing))
      }
    }
  }

  // MARK: Upgrade

  private func upgrade(over transport: UpstreamTransport, _ input: inout ByteQueue) async throws(OpeningEnd) {
    var request = ClientHandshake.Request(target: url.target, host: url.hostField)
    request.subprotocols = settings.subprotocols
    request.compression = dial.offersCompression ? settings.compression : nil
    request.fields = settings.fields(for: url)
    try addCredential(to: &request)
    // Credentials come from files, and a redirection's target from a server.
    if let problem = request.problem {
      throw .failed(OpeningReport(.upgrading, .handshake, "the request cannot be written: \(problem)"))
    }
    var handshake = ClientHandshake(request, using: &driver.entropy)
    handshake.write(into: &transport.output)
    try await flushAll(of: transport, in: .upgrading)

    var hint = ""
    while true {
      let result: ClientHandshake.Result?
      if handshake.hasReceivedNothing { hint = self.hint(for: input.bytes) }
      do throws(HandshakeError) {
        result = try handshake.receive(&input)
      } catch {
        var report = OpeningReport(.upgrading, .handshake, error.description + hint)
        if let answer = handshake.answer { report.tell(of: answer) }
        throw .failed(report)
      }
      switch result {
      case .accepted(let agreement):
        socket = WebSocketConnection(role: .client, limits: settings.limits, compression: agreement.compression)
        socket.receive(input.bytes)
        isOpen = true
        driver.upgraded(self, agreement)
        return
      case .refused(let refusal):
        try await refused(refusal, over: transport, &input)
      case nil:
        try await receive(into: &input, over: transport, in: .upgrading)
      }
    }
  }

  func flushAll(of transport: UpstreamTransport, in phase: OpeningPhase) async throws(OpeningEnd) {
    while true {
      switch transport.flush() {
      case .done: return
      case .blocked:
        let outcome = await transport.channel.writable()
        guard !isDiscarded, outcome == .ready else { throw .discarded }
      case .failed(let code):
        throw .failed(broken(code, transport, in: phase))
      }
    }
  }

  /// Waits for bytes and reads some; the end of the stream is a failure here.
  func receive(
    into input: inout ByteQueue, over transport: UpstreamTransport, in phase: OpeningPhase
  ) async throws(OpeningEnd) {
    while true {
      let outcome = await transport.channel.readable()
      guard !isDiscarded, outcome == .ready else { throw .discarded }
      switch transport.receive(into: &input, atMost: 4_096) {
      case .bytes: return
      case .wouldBlock: continue
      case .endOfStream:
        let detail =
          phase == .proxying
          ? "the proxy closed the connection before it opened a tunnel"
          : "the upstream closed the connection without a response to the opening request" + hintForEnd
        throw .failed(OpeningReport(phase, .network, detail))
      case .failed(let code): throw .failed(broken(code, transport, in: phase))
      }
    }
  }

  private func broken(_ code: Int32, _ transport: UpstreamTransport, in phase: OpeningPhase) -> OpeningReport {
    // A TLS 1.3 server refuses a client's certificate only after the handshake.
    if let failure = transport.failure { return OpeningReport(phase, .tls, "TLS: \(failure)") }
    return OpeningReport(
      phase, .network,
      "the connection broke while \(phase.state.name): \(SystemError.reason(of: code))"
        + (phase == .upgrading ? hintForEnd : ""))
  }

  /// An answer other than 101: a redirection to follow, or the end of this dial, reported with the body's beginning.
  private func refused(
    _ refusal: HTTPRefusal, over transport: UpstreamTransport, _ input: inout ByteQueue
  ) async throws(OpeningEnd) -> Never {
    if [301, 302, 303, 307, 308].contains(refusal.status), let location = refusal.field("location") {
      let target: UpstreamURL
      do throws(RedirectionError) {
        target = try url.redirected(to: location)
      } catch {
        var report = OpeningReport(.upgrading, .redirect, error.description)
        report.tell(of: refusal)
        throw .failed(report)
      }
      throw .redirected(target)
    }
    let body = try await readBody(of: refusal, over: transport, &input)
    let retryAfter = refusal.field("retry-after").flatMap {
      RetryAfter.read($0, date: refusal.field("date"), now: loop.wallClock / 1_000)
    }
    let hint = hint(for: refusal, body: body)
    throw .failed(OpeningReport(refusal, body: body, retryAfter: retryAfter, hint: hint))
  }

  /// The beginning of a refusal's body. What comes within a second is enough for a person; the answer itself is known already.
  func readBody(
    of refusal: HTTPRefusal, over transport: UpstreamTransport, _ input: inout ByteQueue
  ) async throws(OpeningEnd) -> String {
    var body = RefusalBody(of: refusal)
    let patience = loop.now + .seconds(1)
    body.receive(&input)
    while !body.isComplete {
      let outcome = await transport.channel.readable(until: patience)
      guard !isDiscarded else { throw .discarded }
      guard outcome == .ready else { break }
      switch transport.receive(into: &input, atMost: 4_096) {
      case .bytes, .wouldBlock: body.receive(&input)
      case .endOfStream, .failed: body.receiveEndOfInput()
      }
    }
    return body.bytes.text()
  }
}
