import ByteStreams
import Configuration
import HTTPCodec
import Metrics
import Reactor

/// One client connection, from its acceptance to its end: read a request, answer it, again.
///
/// One task, pinned to one loop. Every wait has a deadline: for the head (absolute, from its first byte), for the body (a
/// minimum rate), between requests, for a client that does not read.
final class HTTPConnection: LoopTask {
  enum Role { case client, management }

  /// Requests answered before other connections get their turn: pipelining must not starve them.
  private static var requestsPerTurn: Int { 64 }
  /// Bytes of answers collected before they are written out, within one turn.
  private static var outputPerFlush: Int { 64 * 1024 }

  let channel: Channel
  let origin: ClientOrigin
  let role: Role
  unowned let worker: HTTPWorker
  var http: HTTPServerConnection
  var exchange = Exchange.none
  /// The poll that waits for news.
  var held: HeldPoll?
  /// Answers that the kernel has not taken yet.
  private var pending = OutputQueue()
  private var phase = Phase.idle
  private var phaseBegan: MonotonicTime
  private var bodyReceived = 0
  private var isIdleWait = false
  /// Requests answered in this turn.
  private var handled = 0

  /// Which deadline runs.
  private enum Phase { case idle, head, body }

  init(channel: Channel, origin: ClientOrigin, role: Role, worker: HTTPWorker) {
    self.channel = channel
    self.origin = origin
    self.role = role
    self.worker = worker
    http = HTTPServerConnection(pool: worker.pool)
    phaseBegan = worker.loop.now
  }

  var shared: GatewayShared { worker.shared }
  var settings: GatewayShared.HTTPSettings { worker.shared.settings.http }

  func run() async {
    await serve()
    channel.close()
    worker.farewell(self)
  }

  /// The process is ending: close as soon as nothing is owed.
  func drain() {
    if isIdleWait { channel.close() }
  }

  func abort() { channel.reset() }

  // MARK: The life of a connection

  /// What `advance()` cannot go on without.
  private enum Need {
    /// More bytes from the client.
    case input
    /// News, for the poll in `held`.
    case news
    /// The answers so far written out, before more are made.
    case output
    /// As `output`, and a turn for everybody else.
    case turn
    /// The answers written out, and then the end; `lingering` for what the client is still sending.
    case end(lingering: Bool)
  }

  /// Waiting happens only here, and in what this calls: everything else is plain code between two waits. That keeps the
  /// frame of a held poll small, too.
  private func serve() async {
    while !channel.isClosed {
      let need = advance()
      guard await flush() else { return }
      switch need {
      case .output: continue
      case .turn: await worker.loop.yieldTurn()
      case .input:
        guard await receive() else { return }
      case .news:
        await hold()
        if channel.isClosed { return }
        finishPoll()
        handled += 1
      case .end(let lingering):
        if lingering { await linger() }
        return
      }
    }
  }

  /// Reads and answers requests for as long as nothing has to be waited for.
  @inline(never)
  private func advance() -> Need {
    while true {
      let event: HTTPRequestEvent?
      do throws(HTTPProtocolError) {
        event = try http.nextEvent()
      } catch {
        refuse(error)
        return .end(lingering: true)
      }
      switch event {
      case .head:
        if worker.isDraining { http.closeAfterThisResponse() }
        beginExchange()
        enter(.body)
        if http.shouldSendContinue {
          if exchange.wantsBody {
            withOutput { http, output in http.writeContinue(into: &output) }
          } else if finishExchange() {
            return .news
          }
        }
      case .content(let count):
        bodyReceived += count
        takeContent()
      case .trailers:
        break
      case .end:
        enter(.idle)
        if finishExchange() { return .news }
        handled += 1
        if handled >= Self.requestsPerTurn {
          handled = 0
          return .turn
        }
        if worker.output.count > Self.outputPerFlush { return .output }
      case .endOfInput:
        return .end(lingering: false)
      case nil:
        handled = 0
        return http.isClosed ? .end(lingering: true) : .input
      }
    }
  }

  private func enter(_ next: Phase) {
    guard next != phase else { return }
    phase = next
    phaseBegan = worker.loop.now
    if next == .body { bodyReceived = 0 }
  }

  private var deadline: MonotonicTime {
    switch phase {
    case .idle: return phaseBegan + settings.idleTimeout
    case .head: return phaseBegan + settings.headTimeout
    case .body:
      let earned = settings.bodyMinimumRate > 0 ? Int64(bodyReceived / settings.bodyMinimumRate) : 86_400
      return phaseBegan + settings.bodyTimeout + .seconds(earned)
    }
  }

  /// Reads once, waiting for as long as the phase allows. False: the connection is over.
  private func receive() async -> Bool {
    let channel = channel
    while true {
      switch channel.receive() {
      case .bytes:
        http.receive(channel.received)
        if phase == .idle { enter(.head) }
        return true
      case .endOfStream:
        http.receiveEndOfInput()
        return true
      case .failed:
        return false
      case .wouldBlock:
        if worker.isDraining, http.isIdle { return false }
        http.releaseStorageIfIdle()
        isIdleWait = http.isIdle
        let outcome = await channel.readable(until: deadline)
        isIdleWait = false
        switch outcome {
        case .ready, .woken: continue
        case .closed: return false
        case .deadline:
          if phase == .idle { return false }
          timeOut()
          if await flush() { await linger() }
          return false
        }
      }
    }
  }

  // MARK: Writing

  /// Lets `write` append to the answers of this turn.
  func withOutput(_ write: (inout HTTPServerConnection, inout ByteQueue) -> Void) {
    worker.output.withText { output in write(&http, &output) }
  }

  /// Hands everything to the kernel; waits while the client does not read. False: the connection is over.
  func flush() async -> Bool {
    if pending.isEmpty {
      guard !worker.output.isEmpty else { return true }
      switch worker.output.flush(to: channel) {
      case .done: return true
      case .failed:
        worker.output.removeAll()
        return false
      case .blocked: pending.takeAll(from: &worker.output)
      }
    } else {
      pending.takeAll(from: &worker.output)
    }
    while true {
      switch pending.flush(to: channel) {
      case .done:
        pending.releaseStorage()
        return true
      case .failed:
        return false
      case .blocked:
        let outcome = await channel.writable(until: worker.loop.now + settings.writeTimeout)
        guard outcome == .ready else {
          if outcome == .deadline { channel.reset() }
          return false
        }
      }
    }
  }

  // MARK: Endings

  private func refuse(_ error: HTTPProtocolError) {
    shared.malformedRequests.add()
    if http.canAnswer {
      answer(Problem(.protocolError, status: error.status, detail: error.description))
    }
  }

  private func timeOut() {
    shared.slowRequests.add()
    http.closeAfterThisResponse()
    if http.canAnswer {
      let what = phase == .head ? "head" : "content"
      answer(
        Problem(.requestTimeout, detail: "the request's \(what) did not arrive in time; send it without pauses"))
    } else if phase == .head {
      withOutput { _, output in
        output.append("HTTP/1.1 408 Request Timeout\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
      }
    }
  }

  /// Reads and drops what still comes, for a while, so that the client gets to read the last answer: closing with unread
  /// bytes would reset the connection under it (RFC 9112 §9.6).
  private func linger() async {
    guard !channel.isClosed else { return }
    channel.shutdownWriting()
    let end = worker.loop.now + settings.lingerTimeout
    var dropped = 0
    while dropped < 1 << 20 {
      switch channel.receive() {
      case .bytes(let count): dropped += count
      case .endOfStream, .failed: return
      case .wouldBlock:
        guard await channel.readable(until: end) == .ready else { return }
      }
    }
  }
}
