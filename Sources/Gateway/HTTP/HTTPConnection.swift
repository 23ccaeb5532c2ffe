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
  let peerAddress: String
  let role: Role
  unowned let worker: HTTPWorker
  var http: HTTPServerConnection
  var exchange = Exchange.none
  /// Answers that the kernel has not taken yet.
  private var pending = OutputQueue()
  private var phase = Phase.idle
  private var phaseBegan: MonotonicTime
  private var bodyReceived = 0
  private var isIdleWait = false

  /// Which deadline runs.
  private enum Phase { case idle, head, body }

  init(channel: Channel, peerAddress: String, role: Role, worker: HTTPWorker) {
    self.channel = channel
    self.peerAddress = peerAddress
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

  private func serve() async {
    var handled = 0
    while !channel.isClosed {
      let event: HTTPRequestEvent?
      do throws(HTTPProtocolError) {
        event = try http.nextEvent()
      } catch {
        await refuse(error)
        return
      }
      switch event {
      case .head:
        if worker.isDraining { http.closeAfterThisResponse() }
        beginExchange()
        enter(.body)
        if http.shouldSendContinue {
          if exchange.wantsBody {
            withOutput { http, output in http.writeContinue(into: &output) }
          } else {
            await finishExchange()
          }
        }
      case .content(let count):
        bodyReceived += count
        takeContent()
      case .trailers:
        break
      case .end:
        enter(.idle)
        await finishExchange()
        handled += 1
        if worker.output.count > Self.outputPerFlush, !(await flush()) { return }
        if handled >= Self.requestsPerTurn {
          handled = 0
          guard await flush() else { return }
          await worker.loop.yieldTurn()
        }
      case .endOfInput:
        _ = await flush()
        return
      case nil:
        handled = 0
        guard await flush() else { return }
        if http.isClosed {
          await linger()
          return
        }
        guard await receive() else { return }
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
          await timeOut()
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
        let before = pending.count
        let outcome = await channel.writable(until: worker.loop.now + settings.writeTimeout)
        guard outcome == .ready else {
          if outcome == .deadline { channel.reset() }
          return false
        }
        _ = before
      }
    }
  }

  // MARK: Endings

  private func refuse(_ error: HTTPProtocolError) async {
    shared.malformedRequests.add()
    if http.canAnswer {
      answer(Problem(.protocolError, status: error.status, detail: error.description))
    }
    if await flush() { await linger() }
  }

  private func timeOut() async {
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
    if await flush() { await linger() }
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
