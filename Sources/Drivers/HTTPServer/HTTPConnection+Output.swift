import ByteStreams
import Glibc
import HTTPCodec
import Logging
import Metrics
import Reactor
import Threading

/// Responses: written as bytes, and sent for as long as the client takes them.
extension HTTPConnection {
  /// Larger prepared responses are not rendered as a whole: their content is shared all the same.
  private static var largestRendering: Int { 256 * 1024 }

  /// Lets `write` append to the responses of this turn.
  func withOutput(_ write: (inout HTTPServerConnection, inout ByteQueue) -> Void) {
    worker.output.withText { output in write(&http, &output) }
  }

  // MARK: Writing

  /// Writes `worker.response`, which is empty afterwards: what it refers to must not live until the next response.
  func writeResponse() {
    defer { worker.response.reset() }
    if worker.isDraining { http.closeAfterThisResponse() }
    if !worker.response.refusal.isEmpty { logRefusal() }
    if let prepared = worker.response.prepared {
      write(prepared)
      return
    }
    let (status, count) = (worker.response.status, worker.response.content.count)
    writeHead(status, status.forbidsContent ? .none : .length(count))
    if beginContent(count) {
      worker.response.content.write(into: &worker.output)
      endContent()
    }
    withOutput { http, output in http.finishResponse(into: &output) }
  }

  /// The thousands of polls that one push wakes are owed the same bytes, and are sent them from the same memory.
  private func write(_ prepared: PreparedResponse) {
    let second = worker.wallSecond
    let takesRendering = http.takesPreparedResponse
    if takesRendering, let rendering = prepared.rendering(at: second) {
      http.passPreparedResponse()
      worker.output.append(SharedSlice(rendering))
      return
    }
    // Nothing else may be in the output that is kept.
    let isAlone = worker.output.isEmpty
    writeHead(prepared.status, .length(prepared.content.count), prepared.fields)
    if beginContent(prepared.content.count) {
      worker.output.append(SharedSlice(prepared.content))
      endContent()
    }
    withOutput { http, output in http.finishResponse(into: &output) }
    if takesRendering, isAlone, worker.output.count <= Self.largestRendering {
      prepared.keep(worker.output, at: second)
    }
  }

  /// - Parameter fields: nil for those of `worker.response`.
  private func writeHead(_ status: HTTPStatus, _ content: HTTPResponseContent, _ fields: SharedBytes? = nil) {
    worker.withDate { date in
      withOutput { http, output in
        http.beginResponse(status, content, date: date, into: &output)
        if let fields { output.append(fields.bytes) } else { worker.response.writeFields(into: &output) }
        output.endFields()
      }
    }
  }

  /// False where the response takes no content: it answers HEAD, or its content is empty.
  private func beginContent(_ count: Int) -> Bool {
    var takesContent = false
    withOutput { http, output in takesContent = http.beginContent(count, into: &output) }
    return takesContent
  }

  private func endContent() { withOutput { http, output in http.endContent(into: &output) } }

  /// Logs a refusal under the `request_id` of its response.
  private func logRefusal() {
    let isServerError = worker.response.status.rawValue >= 500
    let suppressed = isServerError ? worker.server.refusalLog.withLock { $0.admit(at: worker.loop.now) } : nil
    var fields = worker.response.refusal
    if http.hasRequest {
      // The query may hold secrets, and the path is as long as the client likes.
      fields.append(.text("method", http.request.methodBytes.excerpt()))
      fields.append(.text("path", http.request.path.excerpt()))
    }
    if let client = try? Sockets.peerAddress(of: channel.descriptor) {
      fields.append(.text("client", client.description))
    }
    if let suppressed, suppressed > 0 { fields.append(.number("suppressed", suppressed)) }
    worker.server.logger.log(suppressed == nil ? .debug : .info, "request refused", fields)
  }

  // MARK: Streams

  /// Writes the head of the response whose content is the source in `waiting`.
  func beginStream() {
    if worker.isDraining { http.closeAfterThisResponse() }
    writeHead(worker.response.status, .stream)
    worker.response.reset()
  }

  /// Sends the content of the source in `waiting`. False: the connection is over. Not inlined: its frame would add to that of every
  /// held poll.
  @inline(never)
  func stream() async -> Bool {
    while true {
      let step = writeBatch()
      guard await flush() else { return false }
      switch step {
      case .more: await worker.loop.yieldTurn()
      case .wait where isWaitOver: await worker.loop.yieldTurn()
      case .wait: await hold()
      case .end: return true
      }
      if channel.isClosed { return false }
    }
  }

  @inline(never)
  private func writeBatch() -> SourceStep {
    guard case .stream(let source) = waiting else { return .end }
    var step = SourceStep.end
    defer { worker.response.content.removeAll() }
    if worker.isDraining {
      http.closeAfterThisResponse()
    } else if http.responseTakesContent {
      step = source.next(at: worker.loop.now, into: &worker.response.content)
    }
    if beginContent(worker.response.content.count) {
      worker.response.content.write(into: &worker.output)
      endContent()
    }
    if case .end = step {
      waiting = .none
      source.close()
      withOutput { http, output in http.finishResponse(into: &output) }
    }
    return step
  }

  // MARK: Sending

  /// Leaves the responses for the end of the turn, when those of all connections are sent one after the other: a client that
  /// reads them all is then woken once and not for each. False where they cannot wait.
  @inline(never)
  func postpone(until need: Need) -> Bool {
    guard case .input = need, pending.isEmpty else { return false }
    isPostponed = worker.postpone(self)
    return isPostponed
  }

  /// The turn has ended: sends what was postponed. What the kernel does not take wakes the task, which waits for it.
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
    channel.wake()
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
          worker.server.metrics.slowReaders.add()
          channel.reset()
          return false
        }
        pending.releaseSpare()
        let entry = worker.slowReaders.add(channel, bytes: pending.heldBytes)
        let outcome = await channel.writable(until: deadline)
        guard worker.slowReaders.remove(entry) else {
          channel.reset()
          return false
        }
        // At the deadline the client may have taken bytes all the same (`ReaderPace`).
        guard outcome != .closed, !channel.isClosed else { return false }
      }
    }
  }
}
