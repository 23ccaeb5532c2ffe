import ByteStreams
import HTTPCodec
import Metrics
import Reactor
import Totals

/// One client connection, from accept to close: reads a request, responds, and repeats.
///
/// A connection waits for input and for new data without a task (`InputTarget`), and processes most requests during
/// this wait. It has a task only while it waits for anything else: for room for its output, for another turn, or for
/// the end of the client's input. All of it runs on one loop.
///
/// Every wait has a deadline. The time for a head counts from its first byte, or from accept, and further bytes do not
/// extend it. `TransferPace` has the rules for a body and for a client that does not read. Between requests, the idle
/// timeout applies.
///
/// The class is split into seven files: life cycle and requests (this file), reading (`+Input`), writing (`+Output`),
/// streams (`+Stream`), waiting for new data (`+Waiting`), the layers below HTTP (`+Layers`), and the access log
/// (`+Access`). These parts are not separate objects, since each object would cost an allocation per held request.
final class HTTPConnection: LoopTask {
  /// Requests per turn, so that a pipelining client does not starve other connections. A batch of a stream counts as a
  /// request.
  static var requestsPerTurn: Int32 { 64 }
  /// Bytes read per turn, so that a client which sends faster than the server reads does not starve other connections.
  private static var inputPerTurn: Int32 { 64 * 1024 }
  /// Bytes of responses collected within one turn before they are sent.
  private static var outputPerFlush: Int { 64 * 1024 }

  let channel: Channel
  /// The origin for which the connection is counted.
  var origin: ClientOrigin
  let listener: HTTPListener
  /// Strong, since an unowned reference costs an atomic operation per use. `end` ends the cycle: it removes the
  /// connection.
  let worker: HTTPWorker
  /// The PROXY protocol and TLS; nil for a connection without them.
  let layers: ConnectionLayers?
  /// The connection's part of the total of connections; nil if it is not counted.
  var place: LoopPart?
  /// The index in the worker's table of connections.
  var index: Int
  var http: HTTPServerConnection
  private var current = Current.none
  /// The request or stream that waits for new data.
  var waiting = Waiting.none
  /// Whether a half-closed client was probed (`probeHalfClosed`). Stored here, where padding makes it free.
  var isProbed = false
  /// Whether the connection has ended, and was removed from the worker.
  var isOver = false
  /// Whether the request or stream in `waiting` has reported that it is ready.
  var isReady = false
  /// Whether the peer is a proxy that is trusted to name the client of each request.
  var isBehindProxy: Bool
  /// The client's own id of the request in `waiting`, for a problem document. Empty if there is none, so that it takes
  /// no memory.
  var heldRequestID: [UInt8] = []
  /// When the wait of `waiting` ends, while `hasHeldRequest`.
  var waitDeadline = MonotonicTime.zero
  /// The registration in `HeldRequests` while `hasHeldRequest`.
  var registration: HeldRequests.Registration?
  /// Responses that the kernel has not accepted yet.
  var pending = OutputQueue()
  var phase: RequestPhase
  var isIdleWait = false
  /// Whether the request or stream in `waiting` is held.
  var hasHeldRequest = false
  /// The condition that the wait for input has left to `serve()`.
  var openNeed: Need?
  /// How many parts of the worker's deferred output are responses of this connection.
  var deferredParts: Int32 = 0
  /// Whether the body in `current` has arrived and was prepared, but its request is not finished.
  var isPrepared = false
  /// Whether preparing the last collected body may take long. It is stored here, since reading it from `current` would
  /// copy the whole exchange.
  private var mayTakeLong = false
  /// Requests responded to and bytes read in this turn.
  var handled: Int32 = 0
  var taken: Int32 = 0
  /// nil while the access log is off.
  var access: AccessRecord?
  /// Memory of the body in `current` that is counted, in bytes; 0 if it is not counted.
  private var countedBodyBytes = 0
  /// The part of the body in `current` in the total of pending bodies. Set while `countedBodyBytes` is above 0.
  private var bodyPart: LoopPart?

  /// The request being received.
  private enum Current {
    case none
    case accepted(Exchange)
    /// A request that gets this refusal when its content has arrived.
    case refused(HTTPServerRefusal)
  }

  /// A request that was received completely and whose response is not complete.
  enum Waiting {
    case none
    case request(any WaitingRequest)
    case stream(any Source)
    /// The request in `current` will be finished when its body is prepared.
    case body(BodyWork)
  }

  init(
    channel: Channel, origin: ClientOrigin, listener: HTTPListener, layers: ConnectionLayers? = nil,
    isBehindProxy: Bool = false, worker: HTTPWorker, place: LoopPart? = nil, index: Int
  ) {
    self.channel = channel
    self.layers = layers
    self.isBehindProxy = isBehindProxy
    self.origin = origin
    self.listener = listener
    self.worker = worker
    self.place = place
    self.index = index
    http = HTTPServerConnection(pool: worker.pool(for: listener.role))
    phase = .head(worker.loop.now)
  }

  /// Begins to serve a new connection, whose first request may have arrived.
  func begin() {
    beginReceiving()
    waitForInput()
  }

  /// The task.
  func run() async {
    if await !serve() { end() }
  }

  /// Processes the input that has arrived, and then waits for more, unless the task has work to do first.
  func waitForInput() {
    guard processInput() else { return worker.loop.spawn(self) }
    if channel.isClosed { end() } else { channel.wait(for: self) }
  }

  /// Ends the connection. Does nothing if it has already ended.
  func end() {
    guard !isOver else { return }
    isOver = true
    if hasHeldRequest { endHolding() }
    if deferredParts > 0 { worker.sendDeferred() }
    if access != nil { reportAborted() }
    abandon()
    if let layers { reportLayers(layers) }
    close()
    worker.remove(self)
  }

  /// Sets the timer for the new deadline if the connection is idle. Called when the server begins to drain. Closing the
  /// connection here could lose a request that has arrived in this turn. Such requests are processed before the timer
  /// fires.
  func drain() { if isIdleWait { channel.processInput() } }

  // MARK: Life cycle

  /// What `advance()` needs before it can continue.
  enum Need {
    /// More bytes from the client.
    case input
    /// New data for the request or stream in `waiting`.
    case newData
    /// The wait for input or new data that was interrupted because the responses so far must be sent first.
    case wait
    /// Room for output: the responses so far must be sent first.
    case output
    /// Like `output`, and then all other tasks run once.
    case turn
    /// Send the responses, then close; `lingering` if the client may still be sending.
    case end(lingering: Bool)
  }

  /// Continues until the connection waits for input or new data, without a task, or until it is over. Returns false if
  /// it is over.
  ///
  /// Only this function and its callees `flush` and `linger` wait as a task. All other code runs synchronously.
  private func serve() async -> Bool {
    while !channel.isClosed {
      let need = openNeed.take() ?? advance()
      if !deferOutput(until: need) { guard await flush() else { return false } }
      switch need {
      case .output: continue
      case .turn:
        (handled, taken) = (0, 0)
        await worker.loop.yieldTurn()
        continue
      case .input: beginReceiving()
      case .newData: beginHolding()
      case .wait: break
      case .end(let lingering):
        let lingers = lingering || shouldLinger
        if layers != nil { guard await closeLayers() else { return false } }
        if lingers { await linger() }
        return false
      }
      guard processInput() else { continue }
      guard !channel.isClosed else { return false }
      channel.wait(for: self)
      return true
    }
    return false
  }

  /// Processes requests, and continues a stream, until a wait is necessary.
  @inline(never)
  func advance() -> Need {
    while true {
      // A stream may begin before the rest of its request has arrived (`finishBeforeContent`), so it comes first.
      if case .stream = waiting, let need = continueStream() { return need }
      if isPrepared {
        if let need = finishRequest() { return need }
        continue
      }
      let event: HTTPRequestEvent?
      do throws(HTTPProtocolError) {
        event = try http.nextEvent()
      } catch {
        worker.server.metrics.malformedRequests.add()
        logOtherProtocol(error)
        if http.canRespond { refuse(.malformed(error)) }
        return .end(lingering: true)
      }
      switch event {
      case .head:
        if worker.isDraining { http.closeAfterThisResponse() }
        if let access { recordRequest(in: access) }
        let exchange = worker.application.begin(http.request, on: listener, from: client)
        if let access { access.setPrincipal(worker.application.principal(of: exchange)) }
        current = .accepted(exchange)
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
        if beginPreparation() { return .newData }
        if let need = finishRequest() { return need }
      case .endOfInput:
        return .end(lingering: false)
      case nil:
        if http.isClosed { return .end(lingering: !http.expectsNoInput) }
        countBody()
        return taken >= Self.inputPerTurn ? .turn : .input
      }
    }
  }

  // MARK: Requests

  private var client: ClientConnection {
    if layers != nil || isBehindProxy { return identifiedClient() }
    return ClientConnection(origin: origin, socket: channel.descriptor, certificate: nil, isSecure: false)
  }

  /// Passes a large body to another thread for preparation. Returns whether the request waits for it.
  private func beginPreparation() -> Bool {
    guard mayTakeLong, case .accepted(let exchange) = current, let body = exchange.body, body.mayTakeLong,
      let preparation = worker.application.preparation(of: exchange)
    else { return false }
    countBody()
    // `countBody` may have dropped the body, to make room for other bodies.
    guard case .accepted(var exchange) = current else { return false }
    exchange.body?.preparation = preparation
    current = .accepted(exchange)
    let principal = worker.application.principal(of: exchange) ?? ""
    // All addresses of one principal take turns as one client.
    let user = TotalUser(principal, at: principal.isEmpty ? client.origin : .local)
    let work = BodyWork(
      preparation, body.bytes, of: user, notifying: worker.preparedBodies,
      until: worker.loop.now + worker.server.preparationWait)
    waiting = .body(work)
    worker.bodyThread.add(work)
    return true
  }

  /// Ends the wait for the preparation of the body in `current`.
  func endPreparation(_ work: BodyWork) {
    isPrepared = true
    guard !work.isDone else { return }
    worker.bodyThread.cancel(work)
    giveUpBody(.slowPreparation)
  }

  /// Finishes a request whose body is complete. Returns the condition that must be met first; nil if `advance()` can
  /// continue.
  private func finishRequest() -> Need? {
    isPrepared = false
    forgetBody()
    phase = .idle(worker.loop.now)
    finish()
    if case .request = waiting { return .newData }
    handled += 1
    if handled >= Self.requestsPerTurn { return .turn }
    return worker.output.count > Self.outputPerFlush ? .output : nil
  }

  private func collectContent() {
    guard case .accepted(var exchange) = current, exchange.body != nil else { return }
    // Moved out of the enum, so that appending does not copy the buffer.
    current = .none
    exchange.body?.append(http.content)
    mayTakeLong = exchange.body?.mayTakeLong == true
    current = .accepted(exchange)
  }

  /// Finishes a request whose content is not needed, while the client still waits for `100 Continue`. Returns false if
  /// the content is needed or the response is not ready. In both cases the content is received first. Only after the
  /// content does the connection wait for the response, because only then `http.pipelined_bytes` limits further input.
  private func finishBeforeContent() -> Bool {
    guard case .accepted(let exchange) = current, exchange.body == nil else { return false }
    finish()
    guard case .request = waiting else { return true }
    guard advanceWaiting() == nil else { return false }
    respondAfterWait()
    return true
  }

  /// Passes the request to the application. Afterwards `waiting` is `.none` if the response is complete.
  private func finish() {
    switch current {
    case .none: return
    case .refused(let refusal):
      current = .none
      refuse(refusal)
    case .accepted(let exchange):
      current = .none
      noteRequestID()
      switch worker.application.finish(exchange, at: worker.loop.now, into: &worker.response) {
      case .respond: writeResponse()
      case .wait(let request):
        if !worker.response.requestID.isEmpty {
          heldRequestID = worker.response.requestID.copyBytes()
          worker.response.requestID.removeAll()
        }
        waiting = .request(request)
      case .stream(let source):
        waiting = .stream(source)
        beginStream()
      }
    }
  }

  /// Abandons the current request, received completely or in part. It gets no response from the application.
  func abandon() {
    forgetBody()
    if case .accepted(let exchange) = current { worker.application.abandon(exchange) }
    current = .none
    switch waiting {
    case .none: break
    case .request(let request): request.abandon()
    case .stream(let source): source.close()
    case .body(let work): worker.bodyThread.cancel(work)
    }
    waiting = .none
    heldRequestID = []
  }

  func refuse(_ refusal: HTTPServerRefusal) {
    noteRequestID()
    if http.hasRequest { worker.application.addFields(to: &worker.response, for: http.request, on: listener) }
    worker.application.refuse(refusal, into: &worker.response)
    writeResponse()
  }

  // MARK: Memory of partially received bodies

  /// Adds the received part of an unfinished body to the total over all connections. A body that arrives completely in
  /// one turn is not counted, since it is freed before other bodies are added to the total. The memory of a body
  /// doubles when it grows, so few reads change the total.
  private func countBody() {
    guard case .accepted(let exchange) = current, let bytes = exchange.body?.memoryBytes, bytes != countedBodyBytes
    else {
      return
    }
    countedBodyBytes = bytes
    if let bodyPart {
      guard !worker.pendingBodies.change(bodyPart, to: bytes) else { return }
      self.bodyPart = nil
    } else {
      let principal = TotalUser.principal(worker.application.principal(of: exchange) ?? "")
      if case .admitted(let part) = worker.pendingBodies.add(self, bytes, by: client.origin, principal) {
        bodyPart = part
        return
      }
    }
    dropBody()
  }

  /// Drops the received part of the body, because its client uses the most memory. The rest of the body is dropped when
  /// it arrives, and the request is then refused.
  func dropBody() {
    // Cancelling wakes the connection, which finishes the request.
    if case .body(let work) = waiting { worker.bodyThread.cancel(work) }
    giveUpBody(.tooManyBodies)
  }

  private func giveUpBody(_ refusal: HTTPServerRefusal) {
    guard case .accepted(let exchange) = current else { return }
    forgetBody()
    current = .refused(refusal)
    worker.application.abandon(exchange)
  }

  private func forgetBody() {
    countedBodyBytes = 0
    if let bodyPart { worker.pendingBodies.remove(bodyPart) }
    bodyPart = nil
  }
}
