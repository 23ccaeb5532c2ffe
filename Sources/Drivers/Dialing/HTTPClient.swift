import ByteStreams
import HTTPCodec
import Host
import Metrics
import Reactor
import TLSEngine

/// Sends requests over HTTP/1.1 to one endpoint, one at a time. Keeps the connection for the next request if the
/// response permits it.
///
/// The client follows no redirections. A server may close an idle connection at any time (RFC 9112 §9.3.1). So if a
/// kept connection ends before the first byte of the response, the client repeats the request, provided that the caller
/// allows this. The client is used on one event loop only.
package final class HTTPClient: TimerTarget {
  package enum Outcome: Sendable {
    case response(HTTPResponse)
    /// The request has timed out. The text, for operators, names the missing event.
    case timeout(String)
    /// There was no complete response. The text is for operators, and contains no part of the URL except the host.
    case failed(String)
    /// The response violates HTTP or a limit. The text is for operators.
    case invalid(String)
    case cancelled
  }

  package struct Limits: Sendable {
    /// Maximum time to resolve the name, connect and negotiate TLS. An unreachable server is reported after this time,
    /// even if the time limit of the request is longer.
    package var connectTimeout = TimeSpan.seconds(10)
    /// Maximum size of the content of a response; nil if contents are not kept.
    package var contentBytes: Int?
    /// Counts the contents that are being received, and limits them; nil if they are not counted. Contents of up to 64
    /// KiB are received even above the limit.
    package var received: ReceivedContents?
    /// How long the kernel waits for the server to acknowledge sent data; nil for as long as the request may take.
    package var userTimeout: TimeSpan?

    package init() {}
  }

  /// The step of the request that is in progress.
  private enum Phase: String {
    case connecting = "no connection"
    case sending = "the request is not sent"
    case receiving = "no complete response"
    case idle
  }

  /// Bytes per read of content that is kept.
  private static var largeRead: Int { 64 << 10 }
  /// How long a connection without a request is kept.
  private static var idleTimeout: TimeSpan { .seconds(15) }
  /// How long a connection is used for further requests. After this time the name is resolved again, and the
  /// certificate is verified again.
  private static var maximumAge: TimeSpan { .minutes(5) }

  package let endpoint: HTTPEndpoint
  private let dialer: any Dialer
  private let loop: LoopContext
  private let limits: Limits
  /// The permission that is checked before each write; nil if the client may always write.
  private let permission: WritePermission?
  private var phase = Phase.idle
  private var deadline = MonotonicTime.distantFuture
  private var timer: LoopTimer?
  private var hasTimedOut = false
  /// The transport of the request in progress, and the deadline of its response. The deadline moves while the server
  /// receives the request.
  private var awaited: (response: ResponseDeadline, transport: Transport)?
  /// Whether a part of the response has arrived.
  private var hasResponse = false
  /// The time limit of the request in progress, and the client for which its response is counted.
  private var limit = TimeSpan.zero
  private var client: UInt64 = 0
  /// Ends the request in progress.
  private var cancellation: Cancellation?
  /// The connection of an earlier request, kept for the next request.
  private var kept: Transport?
  /// When the connection was opened.
  private var opened = MonotonicTime.zero
  /// Called each time that the request in progress gets more time because the server is still receiving it. Each time,
  /// the request gets at most its time limit again.
  package var whenPostponed: (() -> Void)?
  /// Whether the server may have received the last request completely, whatever its outcome. A server does not execute
  /// an incomplete request.
  package private(set) var mayHaveArrived = false

  /// - Parameter permission: the permission that is checked before each write; nil if the client may always write. A
  ///   request that fails because the permission has ended is reported as cancelled.
  package convenience init(
    _ endpoint: HTTPEndpoint, limits: Limits = Limits(), resolver: Resolver, permission: WritePermission? = nil,
    loop: LoopContext
  ) {
    self.init(
      endpoint, limits: limits, dialer: NetworkDialer(resolver: resolver, loop: loop), permission: permission,
      loop: loop)
  }

  init(
    _ endpoint: HTTPEndpoint, limits: Limits = Limits(), dialer: any Dialer, permission: WritePermission? = nil,
    loop: LoopContext
  ) {
    self.endpoint = endpoint
    self.limits = limits
    self.permission = permission
    self.dialer = dialer
    self.loop = loop
  }

  /// Whether a connection is kept for the next request.
  package var isConnected: Bool { kept != nil }

  /// Sends a request, and waits until the response is complete, for at most `limit`. This time begins again each time
  /// that the server has received more of the request.
  ///
  /// - Parameters:
  ///   - mayRepeat: whether the request may be sent a second time if a kept connection ends before the first byte of
  ///     the response. The server may already have executed the request in this case.
  ///   - client: the client for which the content of the response is counted; 0 if it is unknown.
  package func send(
    _ request: HTTPClientRequest, within limit: TimeSpan, mayRepeat: Bool = true, for client: UInt64 = 0
  ) async -> Outcome {
    precondition(cancellation == nil, "two requests at once on one connection")
    let cancellation = Cancellation()
    self.cancellation = cancellation
    (hasTimedOut, mayHaveArrived) = (false, false)
    self.limit = limit
    self.client = client
    deadline = loop.now + limit
    let outcome = await perform(request, mayRepeat: mayRepeat, cancellation)
    self.cancellation = nil
    let isBeingSent = awaited?.response.isBeingSent ?? false
    awaited = nil
    setTimer(nil)
    if kept != nil { enter(.idle, until: loop.now + Self.idleTimeout) }
    if hasTimedOut, case .cancelled = outcome {
      let time = phase == .connecting ? min(limit, limits.connectTimeout) : limit
      return .timeout("\((isBeingSent ? Phase.sending : phase).rawValue) within \(time.text)")
    }
    return outcome
  }

  /// Ends the request in progress, or closes the kept connection.
  package func cancel() {
    cancellation?.cancel()
    closeKept()
  }

  package func timerFired(_ token: Int) {
    timer = nil
    guard let cancellation else { return closeKept() }
    if let later = postponedDeadline() {
      setTimer(later)
      whenPostponed?()
      return
    }
    hasTimedOut = true
    cancellation.cancel()
  }

  /// The new deadline of the request in progress; nil if the deadline has not moved. It moves when the server
  /// acknowledges more of the request.
  private func postponedDeadline() -> MonotonicTime? {
    noteProgress()
    guard let deadline = awaited?.response.deadline, deadline > loop.now else { return nil }
    return min(deadline, loop.now + limit)
  }

  private func noteProgress() {
    // When a server responds, it has received the whole request or does not need the rest, so the deadline is not moved
    // any more.
    guard !hasResponse, let (position, time) = awaited?.transport.acknowledgedOutput else { return }
    awaited?.response.acknowledged(through: position, at: time)
  }

  private func closeKept() {
    setTimer(nil)
    kept?.close()
    kept = nil
  }

  private func enter(_ phase: Phase, until end: MonotonicTime) {
    self.phase = phase
    setTimer(end)
  }

  private func setTimer(_ deadline: MonotonicTime?) { loop.reschedule(&timer, at: deadline, self) }

  // MARK: The request

  private func perform(
    _ request: HTTPClientRequest, mayRepeat: Bool, _ cancellation: Cancellation
  ) async -> Outcome {
    do throws(RequestError) {
      if let transport = takeKept() {
        cancellation.setTransport(transport)
        do throws(RequestError) {
          return .response(try await exchange(request, over: transport))
        } catch {
          guard mayRepeat, case .unanswered = error else { throw error }
        }
      }
      let transport = try await connect(cancellation)
      return .response(try await exchange(request, over: transport))
    } catch {
      if permission?.isGiven == false { return .cancelled }
      switch error {
      case .cancelled: return .cancelled
      case .unanswered(let detail), .failed(let detail): return .failed(detail)
      case .invalid(let detail): return .invalid(detail)
      }
    }
  }

  private enum RequestError: Error {
    case cancelled
    /// The connection ended before the first byte of the response.
    case unanswered(String)
    case failed(String)
    case invalid(String)
  }

  /// The connection of an earlier request, unless the server has closed it.
  private func takeKept() -> Transport? {
    guard let transport = kept.take() else { return nil }
    var input = ByteQueue()
    if case .wouldBlock = transport.receive(into: &input, atMost: 1) { return transport }
    transport.close()
    return nil
  }

  private func connect(_ cancellation: Cancellation) async throws(RequestError) -> Transport {
    let connected = min(deadline, loop.now + limits.connectTimeout)
    enter(.connecting, until: connected)
    var input = ByteQueue()
    do throws(DialError) {
      var destination = DialDestination(
        host: endpoint.url.host, port: endpoint.url.port, authority: endpoint.url.authority, proxy: nil,
        tls: try await endpoint.tlsContext?.refreshed(until: connected, cancellation, on: loop),
        userTimeout: limits.userTimeout ?? max(deadline - loop.now, .seconds(1)), rules: endpoint.rules)
      destination.permission = permission
      let transport = try await dialer.dial(destination, cancellation, &input) { _ in }
      cancellation.setTransport(transport)
      guard !cancellation.isCancelled else { throw .cancelled }
      opened = loop.now
      return transport
    } catch {
      switch error {
      case .cancelled: throw .cancelled
      case .failed(let failure): throw .failed(failure.detail)
      }
    }
  }

  private func exchange(
    _ request: HTTPClientRequest, over transport: Transport
  ) async throws(RequestError) -> HTTPResponse {
    enter(.sending, until: deadline)
    let start = transport.end
    if request.content.count < LargeSlice.smallest {
      request.write(into: &transport.output)
    } else {
      request.writeHead(into: &transport.output)
      transport.append(LargeSlice(ByteSlice(request.content)))
    }
    hasResponse = false
    let response = ResponseDeadline(
      limit, from: deadline - limit, received: start, position: transport.end, isLimited: false)
    awaited = (response, transport)
    var sendError: TransportError?
    do throws(TransportError) {
      try await transport.flushAll()
      mayHaveArrived = true
    } catch {
      if case .closed = error { throw .cancelled }
      guard !transport.isForbidden else {
        transport.close()
        throw .cancelled
      }
      // The response is read even after this error, since a server may respond and close the connection before it has
      // read the whole request.
      sendError = error
    }
    phase = .receiving
    var reader = HTTPResponseReader(keepingContentUpTo: limits.contentBytes)
    do throws(RequestError) {
      try await receive(&reader, over: transport, after: sendError)
    } catch {
      transport.close()
      throw error
    }
    if reader.allowsReuse, sendError == nil, loop.now - opened < Self.maximumAge {
      transport.releaseIdleStorage()
      kept = transport
    } else {
      transport.close()
    }
    let retryAfter = reader.field(.retryAfter).flatMap {
      RetryAfter.parse($0, date: reader.field(.date), now: loop.wallClock / 1_000)
    }
    guard limits.contentBytes != nil else { return HTTPResponse(status: reader.status, retryAfter: retryAfter) }
    return HTTPResponse(
      status: reader.status, retryAfter: retryAfter, challenge: reader.field(.wwwAuthenticate),
      fields: reader.copyEndToEndFields { $0 == .date || $0 == .xRequestID }, content: reader.copyContent())
  }

  private func receive(
    _ reader: inout HTTPResponseReader, over transport: Transport, after sendError: TransportError?
  ) async throws(RequestError) {
    var input = ByteQueue()
    var counted = 0
    defer { _ = limits.received?.add(-counted, by: client, isSmall: true) }
    while !reader.isComplete {
      var received: TransportError?
      do throws(TransportError) {
        try await transport.receiveSome(into: &input, atMost: limits.contentBytes == nil ? nil : Self.largeRead)
      } catch {
        if case .closed = error { throw .cancelled }
        received = error
      }
      do throws(HTTPProtocolError) {
        switch received {
        case nil:
          noteProgress()
          hasResponse = true
          try reader.receive(&input)
        case .ended: try reader.receiveEndOfInput()
        case .closed, .failed: throw .truncatedMessage
        }
      } catch {
        guard let received else { throw .invalid("the response is not valid: \(error)") }
        let detail = Self.detail(of: sendError ?? received, transport)
        throw reader.isEmpty ? .unanswered(detail) : .failed(detail)
      }
      guard let received = limits.received else { continue }
      let isSmall = reader.isComplete || reader.keptBytes <= Self.largeRead
      guard received.add(reader.keptBytes - counted, by: client, isSmall: isSmall) else {
        throw .invalid("the contents of all responses together exceed \(received.limit) bytes")
      }
      counted = reader.keptBytes
    }
  }

  private static func detail(of error: TransportError, _ transport: Transport) -> String {
    switch error {
    case .closed, .ended: "the server closed the connection before the end of the response"
    case .failed(let code):
      transport.failure.map { "TLS: \($0)" } ?? "the connection failed: \(SystemError.reason(of: code))"
    }
  }
}

/// The parsed response.
package struct HTTPResponse: Equatable, Sendable {
  package let status: Int
  /// How long to wait before the next request; nil if the response contains no such time.
  package let retryAfter: TimeSpan?
  /// The value of WWW-Authenticate. This and the following properties are nil or empty if the client keeps no contents.
  package var challenge: String?
  /// The lines of the header fields, each with its CRLF, without fields about the connection or the exchange (`Date`,
  /// `X-Request-Id`).
  package var fields: [UInt8] = []
  package var content: [UInt8] = []
}
