import ByteStreams
import Configuration
import Glibc
import HTTPCodec
import Metrics
import Reactor

/// One client connection, from its acceptance to its end: read a request, answer it, again.
///
/// One task, pinned to one loop. Every wait has a deadline: for the head (absolute, from its first byte, or from the acceptance
/// of the connection), for the body and for a client that does not read (see `TransferPace`), and between requests.
final class HTTPConnection: LoopTask {
  enum Role { case client, management }

  /// Requests answered before other connections get their turn: pipelining must not starve them.
  private static var requestsPerTurn: Int { 64 }
  /// Bytes read before other connections get their turn: who sends faster than we read must not starve them.
  private static var inputPerTurn: Int { 64 * 1024 }
  /// Bytes of answers collected before they are written out, within one turn.
  private static var outputPerFlush: Int { 64 * 1024 }

  let channel: Channel
  let origin: ClientOrigin
  let role: Role
  let reach: ListenerReach
  unowned let worker: HTTPWorker
  var http: HTTPServerConnection
  var exchange = Exchange.none
  /// The poll that waits for news.
  var held: HeldPoll?
  /// Answers that the kernel has not taken yet.
  private var pending = OutputQueue()
  private var phase: Phase
  private var isIdleWait = false
  /// Answers of this turn wait for its end.
  private var isPostponed = false
  /// Requests answered, and bytes read, since others had their turn.
  private var handled = 0
  private var taken = 0
  /// Bytes of memory of the content in `exchange` that are counted in `shared.pendingBodyBytes`.
  private var countedBodyBytes = 0

  /// What is waited for, which tells the deadline.
  private enum Phase {
    /// A further request, since then.
    case idle(MonotonicTime)
    /// The rest of a head, since its first byte, or since the connection was accepted.
    case head(MonotonicTime)
    case body(TransferPace)
  }

  init(channel: Channel, origin: ClientOrigin, role: Role, reach: ListenerReach, worker: HTTPWorker) {
    self.channel = channel
    self.origin = origin
    self.role = role
    self.reach = reach
    self.worker = worker
    http = HTTPServerConnection(pool: worker.pool)
    phase = .head(worker.loop.now)
  }

  var shared: GatewayShared { worker.shared }
  var settings: GatewayShared.HTTPSettings { worker.shared.settings.http }

  func run() async {
    await serve()
    if isPostponed { worker.sendPostponed() }
    forgetBody()
    channel.close()
    worker.farewell(self)
  }

  /// The process is ending: close as soon as nothing is owed.
  func drain() {
    if isIdleWait { channel.close() }
  }

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
  /// frames of a held poll inside one slab of its task (1 KiB), which is most of what it costs.
  private func serve() async {
    while !channel.isClosed {
      let need = advance()
      if !postpone(until: need) { guard await flush() else { return } }
      switch need {
      case .output: continue
      case .turn:
        (handled, taken) = (0, 0)
        await worker.loop.yieldTurn()
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
        phase = .body(TransferPace(at: worker.loop.now))
        if http.shouldSendContinue, !respondBeforeContent() {
          withOutput { http, output in http.writeContinue(into: &output) }
        }
      case .content(let count):
        if case .body(var pace) = phase {
          pace.advance(by: count, at: worker.loop.now)
          phase = .body(pace)
        }
        takeContent()
      case .trailers:
        break
      case .end:
        forgetBody()
        phase = .idle(worker.loop.now)
        if finishExchange() { return .news }
        handled += 1
        if handled >= Self.requestsPerTurn { return .turn }
        if worker.output.count > Self.outputPerFlush { return .output }
      case .endOfInput:
        return .end(lingering: false)
      case nil:
        if http.isClosed { return .end(lingering: true) }
        countBody()
        return taken >= Self.inputPerTurn ? .turn : .input
      }
    }
  }

  private var deadline: MonotonicTime {
    switch phase {
    case .idle(let since): since + settings.idleTimeout
    case .head(let since): since + settings.headTimeout
    case .body(let pace): pace.deadline(pause: settings.bodyTimeout, minimumRate: settings.bodyMinimumRate)
    }
  }

  // MARK: Bodies, all connections together

  /// Counts what has come of a body that goes on: what arrives whole is gone again before anybody else could add to it. Where
  /// all connections together hold too much, this one's is dropped, and its rest will be as it comes.
  private func countBody() {
    guard case .sending(let message) = exchange else { return }
    shared.pendingBodyBytes.add(message.heldBytes - countedBodyBytes)
    countedBodyBytes = message.heldBytes
    guard shared.pendingBodyBytes.current > settings.pendingBodyBytes else { return }
    exchange = .simple(
      .problem(
        Problem(
          .tooManyBodies,
          detail:
            "the bodies being received hold more than \(settings.pendingBodyBytes) bytes (the setting http.pending_body_bytes); try again after the time in Retry-After",
          retryAfter: 1)))
    forgetBody()
  }

  private func forgetBody() {
    guard countedBodyBytes > 0 else { return }
    shared.pendingBodyBytes.add(-countedBodyBytes)
    countedBodyBytes = 0
  }

  // MARK: Reading

  /// What one try to read has come to.
  private enum Intake {
    /// There is something for `advance()`.
    case news
    /// Nothing has come yet.
    case none
    /// The connection is over.
    case over
  }

  /// Reads once, waiting for as long as the phase allows. False: the connection is over.
  private func receive() async -> Bool {
    beginReceiving()
    while true {
      switch take() {
      case .news: return true
      case .over: return false
      case .none: break
      }
      let outcome = await channel.readEvent(until: deadline)
      isIdleWait = false
      switch outcome {
      case .ready: continue
      case .woken: guard await flush() else { return false }
      case .closed: return false
      case .deadline: return timeOut()
      }
    }
  }

  @inline(never)
  private func beginReceiving() {
    // A head that has begun to come behind the last request, or the time in which one may: both count from now.
    if case .idle = phase { phase = http.isReceivingRequest ? .head(worker.loop.now) : .idle(worker.loop.now) }
  }

  /// Never inlined, as everything that the waits of a connection call: what a frame does not name while it waits takes no
  /// memory while it waits.
  @inline(never)
  private func take() -> Intake {
    let channel = channel
    switch channel.receive() {
    case .bytes(let count):
      http.receive(channel.received)
      taken += count
      if case .idle = phase { phase = .head(worker.loop.now) }
      return .news
    case .endOfStream:
      http.receiveEndOfInput()
      return .news
    case .failed:
      return .over
    case .wouldBlock:
      if worker.isDraining, http.isIdle { return .over }
      (handled, taken) = (0, 0)
      http.releaseStorageIfIdle()
      isIdleWait = http.isIdle
      return .none
    }
  }

  // MARK: Writing

  /// Lets `write` append to the answers of this turn.
  func withOutput(_ write: (inout HTTPServerConnection, inout ByteQueue) -> Void) {
    worker.output.withText { output in write(&http, &output) }
  }

  /// Leaves the answers for the end of the turn, when those of all connections go out one after the other: a client that
  /// reads them all is then woken once and not for each. False where they cannot wait.
  @inline(never)
  private func postpone(until need: Need) -> Bool {
    guard case .input = need, pending.isEmpty else { return false }
    isPostponed = worker.postpone(self)
    return isPostponed
  }

  /// The turn has ended: what was postponed goes out. What the kernel does not take wakes the task, which waits for it.
  func sendPostponed(_ bytes: Span<UInt8>) {
    isPostponed = false
    guard !channel.isClosed else { return }
    var sent = 0
    if pending.isEmpty {
      switch channel.send(bytes) {
      case .bytes(let count) where count == bytes.count: return
      case .bytes(let count): sent = count
      case .wouldBlock: break
      case .failed, .endOfStream:
        channel.close()
        return
      }
    }
    pending.withText { $0.append(bytes.extracting(sent...)) }
    isIdleWait = false
    channel.wake(0)
  }

  /// Hands everything to the kernel; waits while the client does not read. False: the connection is over.
  func flush() async -> Bool {
    switch flushNow() {
    case .done: true
    case .failed: false
    case .blocked: await flushPending()
    }
  }

  @inline(never)
  func flushNow() -> OutputQueue.FlushResult {
    if isPostponed {
      worker.sendPostponed()
      // The client may be gone: a closed channel must not be written, and what is left here is for this client only.
      guard !channel.isClosed else {
        worker.output.removeAll()
        return .failed(EPIPE)
      }
    }
    guard pending.isEmpty else {
      if !worker.output.isEmpty { pending.takeAll(from: &worker.output) }
      return .blocked
    }
    guard !worker.output.isEmpty else { return .done }
    let result = worker.output.flush(to: channel)
    switch result {
    case .done: break
    case .failed: worker.output.removeAll()
    case .blocked: pending.takeAll(from: &worker.output)
    }
    return result
  }

  @inline(never)
  private func flushPending() async -> Bool {
    var pace = ReaderPace(at: worker.loop.now, unacknowledged: channel.unacknowledgedBytes)
    while true {
      let before = pending.count
      switch pending.flush(to: channel) {
      case .done:
        pending.releaseStorage()
        return true
      case .failed:
        return false
      case .blocked:
        pace.advance(sent: before - pending.count, unacknowledged: channel.unacknowledgedBytes, at: worker.loop.now)
        let deadline = pace.deadline(settings)
        guard worker.loop.now < deadline else {
          shared.slowReaders.add()
          channel.reset()
          return false
        }
        pending.releaseSpare()
        let place = worker.slowReaders.enter(channel, bytes: pending.heldBytes)
        let outcome = await channel.writable(until: deadline)
        guard worker.slowReaders.leave(place) else {
          channel.reset()
          return false
        }
        // At the deadline the client may have taken bytes all the same (`ReaderPace`).
        guard outcome != .closed, !channel.isClosed else { return false }
      }
    }
  }

  // MARK: Endings

  private func refuse(_ error: HTTPProtocolError) {
    shared.malformedRequests.add()
    if http.canAnswer {
      let allow = error == .methodNotSupported ? Route.allMethods : nil
      answer(Problem(error.kind, detail: error.detail, allow: allow))
    }
  }

  /// The client has used up its time. Ends the request with an answer where one can be given, and what it has not sent of it
  /// is not waited for. False: it has asked nothing, and so is told nothing.
  @inline(never)
  private func timeOut() -> Bool {
    if http.isIdle { return false }
    shared.slowRequests.add()
    http.abandonRequest()
    guard http.canAnswer else { return true }
    let what: String
    if case .body(let pace) = phase {
      what =
        "the request's content stopped for \(settings.bodyTimeout.text) (the setting http.body_timeout), or came slower than \(settings.bodyMinimumRate) bytes a second (http.body_minimum_rate), after \(pace.bytes) bytes"
    } else {
      what =
        "the request's head did not arrive within \(settings.headTimeout.text) (the setting http.head_timeout)"
    }
    answer(Problem(.requestTimeout, detail: what + "; send it without pauses"))
    return true
  }

  /// Reads and drops what still comes, for a while, so that the client gets to read the last answer: closing with unread
  /// bytes would reset the connection under it (RFC 9112 §9.6).
  private func linger() async {
    guard !channel.isClosed else { return }
    channel.shutdownWriting()
    let end = worker.loop.now + settings.lingerTimeout
    var dropped = 0
    while dropped < settings.lingerBytes {
      switch channel.receive() {
      case .bytes(let count): dropped += count
      case .endOfStream, .failed: return
      case .wouldBlock:
        guard await channel.readable(until: end) == .ready else { return }
      }
    }
  }
}
