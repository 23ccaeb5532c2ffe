import ByteStreams
import Dialing
import HTTPCodec
import Host
import ProxyCodec
import Reactor
import TLSEngine
import UpstreamProtocol
import UpstreamSession
import WebSocketCodec

/// Opens one connection: reads the files that it needs, dials, and upgrades the connection to WebSocket (RFC 6455
/// §4.1).
///
/// The attempt is a task of its own because a task keeps the memory of its deepest call until the task ends, and the
/// calls of an attempt are four times as deep as the calls of the reading task. The session sets the timeouts and
/// cancels the attempt.
final class ConnectionAttempt: LoopTask {
  enum Event {
    /// All files have been read. The next phase is name resolution.
    case prepared(TemplateValues)
    /// The next phase has started. `upgrading` is the last phase that is reported.
    case advanced(AttemptPhase)
    /// `received`: the bytes that have arrived after the response.
    case upgraded(Transport, ClientHandshake.Agreement, received: [UInt8])
    case redirected(WebSocketURL)
    case failed(AttemptReport)
    case cancelled
  }

  let dial: Dial
  let url: WebSocketURL
  let proxy: ProxyURL?
  let preparedSettings: PreparedSettings
  let loop: LoopContext
  let cancellation = Cancellation()
  /// The secrets, for the opening request and for messages.
  var values = TemplateValues()
  /// The TLS context for a `wss` URL, which the preparation sets; nil for a `ws` URL.
  var tlsContext: TLSContext?
  private let dialer: any Dialer
  private let permission: WritePermission?
  private let report: (Event) -> Void

  /// - Parameters:
  ///   - permission: the permission to write; nil if the connection may always write.
  ///   - report: receives the events. The last is `upgraded`, `redirected`, `failed` or `cancelled`.
  init(
    _ dial: Dial, url: WebSocketURL, proxy: ProxyURL?, _ preparedSettings: PreparedSettings, dialer: any Dialer,
    permission: WritePermission?, loop: LoopContext, report: @escaping (Event) -> Void
  ) {
    self.dial = dial
    self.url = url
    self.proxy = proxy
    self.preparedSettings = preparedSettings
    self.dialer = dialer
    self.permission = permission
    self.loop = loop
    self.report = report
  }

  var settings: UpstreamSettings {
    _read { yield preparedSettings.value }
  }

  /// Masks secrets in texts of the upstream and the proxy.
  private var mask: SecretMask { SecretMask(of: values, settings, url: url, proxy: proxy) }

  /// The transport that the attempt has opened; nil if it has not opened a transport yet.
  var transport: Transport? { cancellation.transport }

  /// Cancels the attempt, whatever it waits for.
  func cancel() { cancellation.cancel() }

  func run() async {
    do throws(AttemptError) {
      try await prepare()
      report(.prepared(values))
      try await open()
    } catch {
      switch error {
      case .cancelled: report(.cancelled)
      case .redirected(let url): report(.redirected(url))
      case .failed(let failure): report(.failed(failure.masked(by: mask)))
      }
    }
  }

  private func open() async throws(AttemptError) {
    var input = ByteQueue()
    let transport: Transport
    do throws(DialError) {
      var destination = DialDestination(
        host: url.host, port: url.port, authority: url.authority, proxy: proxy, tls: tlsContext,
        userTimeout: settings.userTimeout, rules: settings.rules(for: url))
      destination.permission = permission
      transport = try await dialer.dial(destination, cancellation, &input) { report(.advanced(AttemptPhase($0))) }
    } catch {
      throw AttemptError(error)
    }
    cancellation.setTransport(transport)
    // The report of a phase may have cancelled the attempt.
    guard !cancellation.isCancelled else { throw .cancelled }
    do throws(AttemptError) {
      report(.advanced(.upgrading))
      let agreement = try await upgrade(transport, &input)
      cancellation.setTransport(nil)
      report(.upgraded(transport, agreement, received: input.copyBytes()))
    } catch {
      transport.close()
      throw error
    }
  }

  // MARK: Upgrade

  private func upgrade(
    _ transport: Transport, _ input: inout ByteQueue
  ) async throws(AttemptError) -> ClientHandshake.Agreement {
    var request = ClientHandshake.Request(target: url.target, host: url.hostField)
    request.subprotocols = settings.subprotocols
    request.compression = dial.offersCompression ? settings.compression : nil
    request.fields = settings.fields(for: url)
    try setTarget(of: &request)
    try addCredential(to: &request)
    // The credential comes from a file, and the target of a redirection comes from a server. Either of them may be
    // invalid.
    if let problem = request.problem {
      throw .failed(AttemptReport(.upgrading, .handshake, "the opening request is not valid: \(problem)"))
    }
    var handshake = ClientHandshake(request, using: &loop.entropy)
    handshake.write(into: &transport.output)
    do throws(TransportError) {
      try await transport.flushAll()
    } catch {
      throw failure(error, transport)
    }

    var hint = ""
    while true {
      let result: ClientHandshake.Result?
      if handshake.hasReceivedNothing { hint = self.hint(for: input.bytes) }
      do throws(HandshakeError) {
        result = try handshake.receive(&input)
      } catch {
        var report = AttemptReport(.upgrading, .handshake, "\(error.report)\(hint)")
        if let answer = handshake.response { report.addResponse(answer) }
        throw .failed(report)
      }
      switch result {
      case .accepted(let agreement):
        if let declaration = preparedSettings.declaration {
          try await checkRefusalAfterUpgrade(declaration, transport, &input)
        }
        return agreement
      case .refused(let refusal): throw try await error(for: refusal, over: transport, &input)
      case nil:
        do throws(TransportError) {
          try await transport.receiveSome(into: &input)
        } catch {
          throw failure(error, transport)
        }
      }
    }
  }

  func failure(_ error: TransportError, _ transport: Transport) -> AttemptError {
    switch error {
    case .closed:
      return .cancelled
    case .ended:
      return .failed(
        AttemptReport(
          .upgrading, .network,
          "the upstream closed the connection without a response to the opening request\(hintForEnd)"))
    case .failed(let code):
      // A TLS 1.3 server refuses a client's certificate only after the handshake.
      if let failure = transport.failure { return .failed(AttemptReport(.upgrading, .tls, "TLS: \(failure.report)")) }
      let reason = SystemError.reason(of: code)
      return .failed(
        AttemptReport(.upgrading, .network, "the connection failed while upgrading: \(reason)\(hintForEnd)"))
    }
  }

  /// The error for a response other than 101: a redirection to follow, or a failure with the beginning of the body.
  func error(
    for refusal: HTTPRefusal, over transport: Transport, _ input: inout ByteQueue
  ) async throws(AttemptError) -> AttemptError {
    if [301, 302, 303, 307, 308].contains(refusal.status), let location = refusal.field("location") {
      do throws(RedirectionError) {
        return .redirected(try url.redirected(to: location))
      } catch {
        var report = AttemptReport(.upgrading, .redirect, error.report)
        report.addResponse(refusal)
        return .failed(report)
      }
    }
    let body: String
    do throws(TransportError) {
      body = try await transport.receiveBody(of: refusal, &input, on: loop)
    } catch {
      throw .cancelled
    }
    let retryAfter = refusal.field("retry-after").flatMap {
      RetryAfter.parse($0, date: refusal.field("date"), now: loop.wallClock / 1_000)
    }
    let hint = hint(for: refusal, body: body)
    return .failed(AttemptReport(refusal, body: body, retryAfter: retryAfter, hint: hint))
  }
}
