import ByteStreams
import Configuration
import HTTPCodec
import Metrics
import Reactor

/// One client connection, from its acceptance to its end: reads a request, responds, and begins again.
///
/// One task, pinned to one loop. Every wait has a deadline: for the head (absolute, from its first byte, or from the acceptance
/// of the connection), for the body and for a client that does not read (see `TransferPace`), and between requests.
///
/// The class is in four files: its life and its requests (this one), reading (`+Input`), writing (`+Output`), and waiting for news
/// (`+Waiting`). An object of its own for each would be a further allocation for each held request.
final class HTTPConnection: LoopTask {
  /// Requests responded to before other connections get their turn, so that pipelining does not starve them.
  private static var requestsPerTurn: Int { 64 }
  /// Bytes read before other connections get their turn, so that a client which sends faster than we read does not starve them.
  private static var inputPerTurn: Int { 64 * 1024 }
  /// Bytes of responses collected before they are written out, within one turn.
  private static var outputPerFlush: Int { 64 * 1024 }

  let channel: Channel
  let origin: ClientOrigin
  let listener: HTTPListener
  unowned let worker: HTTPWorker
  var http: HTTPServerConnection
  private var current = Current.none
  /// What `hold()` waits for.
  var waiting = Waiting.none
  /// Whether a client that has ended its stream was sent something, to learn whether it is gone. Here, it takes no memory of its own.
  var isProbed = false
  /// Where `hold()` waits.
  var place: WaitingRoom.Place?
  /// Responses that the kernel has not taken yet.
  var pending = OutputQueue()
  var phase: RequestPhase
  var isIdleWait = false
  /// Responses of this turn wait for its end.
  var isPostponed = false
  /// Requests responded to, and bytes read, since others had their turn.
  var handled = 0
  var taken = 0
  /// Bytes of memory of the body in `current` that are counted in `pendingBodyBytes`.
  private var countedBodyBytes = 0

  /// The request that is arriving.
  private enum Current {
    case none
    case accepted(Exchange)
    /// Gets this refusal once it has ended.
    case refused(HTTPServerRefusal)
  }

  /// A request that has been read and whose response is not complete.
  enum Waiting {
    case none
    case request(any WaitingRequest)
    case stream(any Source)
  }

  init(channel: Channel, origin: ClientOrigin, listener: HTTPListener, worker: HTTPWorker) {
    self.channel = channel
    self.origin = origin
    self.listener = listener
    self.worker = worker
    http = HTTPServerConnection(pool: worker.pool)
    phase = .head(worker.loop.now)
  }

  var settings: GatewaySettings.HTTP { worker.server.settings }

  func run() async {
    await serve()
    if isPostponed { worker.sendPostponed() }
    abandon()
    channel.close()
    worker.remove(self)
  }

  /// The process is ending: close as soon as no response is owed.
  func drain() {
    if isIdleWait { channel.close() }
  }

  // MARK: The life of a connection

  /// What `advance()` cannot go on without.
  enum Need {
    /// More bytes from the client.
    case input
    /// News, for the request in `waiting`.
    case news
    /// The rest of the content of the stream in `waiting`.
    case content
    /// The responses so far written out, before more are made.
    case output
    /// As `output`, and a turn for all other tasks.
    case turn
    /// The responses written out, and then the end; `lingering` for what the client is still sending.
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
        respondAfterWait()
        handled += 1
      case .content:
        guard await stream() else { return }
        handled += 1
      case .end(let lingering):
        if lingering { await linger() }
        return
      }
    }
  }

  /// Reads requests and responds to them for as long as nothing has to be waited for.
  @inline(never)
  private func advance() -> Need {
    while true {
      let event: HTTPRequestEvent?
      do throws(HTTPProtocolError) {
        event = try http.nextEvent()
      } catch {
        worker.server.metrics.malformedRequests.add()
        if http.canAnswer { refuse(.malformed(error)) }
        return .end(lingering: true)
      }
      switch event {
      case .head:
        if worker.isDraining { http.closeAfterThisResponse() }
        current = .accepted(worker.application.begin(http.request, on: listener))
        phase = .body(TransferPace(at: worker.loop.now))
        if http.shouldSendContinue, !finishBeforeContent() {
          withOutput { http, output in http.writeContinue(into: &output) }
        }
      case .content(let count):
        phase.advance(by: count, at: worker.loop.now)
        collectContent()
      case .trailers:
        break
      case .end:
        forgetBody()
        phase = .idle(worker.loop.now)
        finish()
        switch waiting {
        case .none: break
        case .request: return .news
        case .stream: return .content
        }
        handled += 1
        if handled >= Self.requestsPerTurn { return .turn }
        if worker.output.count > Self.outputPerFlush { return .output }
      case .endOfInput:
        return .end(lingering: false)
      case nil:
        if case .stream = waiting { return .content }
        if http.isClosed { return .end(lingering: true) }
        countBody()
        return taken >= Self.inputPerTurn ? .turn : .input
      }
    }
  }

  // MARK: One request

  private func collectContent() {
    guard case .accepted(var exchange) = current, exchange.body != nil else { return }
    // Out of the enum while the body grows, so that its buffer is not copied.
    current = .none
    exchange.body?.append(http.content)
    current = .accepted(exchange)
  }

  /// Finishes a request whose content is not wanted, for a client that waits for `100 Continue` before it sends it. False: the
  /// content is wanted, or the response has to wait. The wait begins once the request has ended, since only then what the
  /// client may send meanwhile is limited, by `http.pipelined_bytes`.
  private func finishBeforeContent() -> Bool {
    guard case .accepted(let exchange) = current, exchange.body == nil else { return false }
    finish()
    guard case .request = waiting else { return true }
    guard worker.isDraining else { return false }
    respondAfterWait()
    return true
  }

  /// Passes the request on to the application. `waiting` says whether the response is complete.
  private func finish() {
    switch current {
    case .none: return
    case .refused(let refusal):
      current = .none
      refuse(refusal)
    case .accepted(let exchange):
      current = .none
      switch worker.application.finish(exchange, at: worker.loop.now, into: &worker.response) {
      case .respond: writeResponse()
      case .wait(let request): waiting = .request(request)
      case .stream(let source):
        waiting = .stream(source)
        beginStream()
      }
    }
  }

  /// The client is gone, too slow or wrong: the request that it has sent, wholly or in part, gets no response of the application.
  func abandon() {
    forgetBody()
    if case .accepted(let exchange) = current { worker.application.abandon(exchange) }
    current = .none
    switch waiting {
    case .none: break
    case .request(let request): request.abandon()
    case .stream(let source): source.close()
    }
    waiting = .none
  }

  func refuse(_ refusal: HTTPServerRefusal) {
    worker.application.refuse(refusal, into: &worker.response)
    writeResponse()
  }

  // MARK: Bodies, all connections together

  /// Counts what has arrived of a body that goes on; a body that arrives whole is gone again before another could add to it. Where
  /// all connections together hold too much, this one's is dropped, and its rest will be as it arrives.
  private func countBody() {
    guard case .accepted(let exchange) = current, let body = exchange.body else { return }
    let total = worker.server.metrics.pendingBodyBytes
    total.add(body.heldBytes - countedBodyBytes)
    countedBodyBytes = body.heldBytes
    guard total.current > settings.pendingBodyBytes else { return }
    abandon()
    current = .refused(.tooManyBodies)
  }

  private func forgetBody() {
    guard countedBodyBytes > 0 else { return }
    worker.server.metrics.pendingBodyBytes.add(-countedBodyBytes)
    countedBodyBytes = 0
  }
}
