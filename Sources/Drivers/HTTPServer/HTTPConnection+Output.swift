import ByteStreams
import Glibc
import HTTPCodec
import Host
import Logging
import Metrics
import Reactor
import Threading

/// Writing responses and sending them at the pace of the client.
extension HTTPConnection {
  /// Maximum size of a rendering that is kept for further requests, in bytes. A larger response is rendered again for
  /// each request; all these renderings share the content.
  private static var largestRendering: Int { 256 * 1024 }

  /// Lets `write` append to the responses collected in this turn.
  func withOutput(_ write: (inout HTTPServerConnection, inout ByteQueue) -> Void) {
    worker.output.withText { output in write(&http, &output) }
  }

  // MARK: Writing

  /// Writes `worker.response` and empties it, so that it does not keep its shared content alive until the next
  /// response.
  func writeResponse() {
    let worker = worker
    if worker.isDraining || worker.response.closesConnection { http.closeAfterThisResponse() }
    if !worker.response.refusal.isEmpty { logRefusal() }
    if let access { recordResponse(in: access) }
    worker.responder = worker.response.principal
    let start = worker.output.count
    if let prepared = worker.response.prepared {
      write(prepared)
      worker.response.reset()
    } else {
      worker.response.move(to: &worker.output, with: &http, date: worker.date)
    }
    worker.response.requestID.removeAll()
    if let access {
      access.addBytes(worker.output.count - start)
      access.finish()
    }
  }

  /// One push can wake thousands of polls that get identical responses. All of them send one rendering from the same
  /// memory.
  private func write(_ prepared: PreparedResponse) {
    let second = worker.wallSecond
    let canSendRendering = http.canSendPreparedResponse && worker.response.additionalFields.isEmpty
    if canSendRendering, let rendering = prepared.rendering(at: second) {
      http.completePreparedResponse()
      worker.output.append(ByteSlice(rendering))
      return
    }
    // Only an output that contains nothing but this response can be kept.
    let isAlone = worker.output.isEmpty
    worker.response.write(prepared, to: &worker.output, with: &http, date: worker.date)
    if canSendRendering, isAlone, worker.output.count <= Self.largestRendering {
      prepared.keep(worker.output, at: second)
    }
  }

  /// Logs a refusal with the `request_id` of its response.
  private func logRefusal() {
    let status = worker.response.status
    let isOfInterest = status.rawValue >= 500 || status == .tooManyRequests
    let suppressed = isOfInterest ? worker.server.refusalLog.admit(at: worker.loop.now) : nil
    let id = String(decoding: worker.response.requestID.copyBytes(), as: UTF8.self)
    var fields: [LogField] = [.text("request_id", id)] + worker.response.refusal
    if http.hasRequest {
      // The query may contain secrets, and the client determines the length of the path.
      fields.append(.text("method", http.request.methodBytes.excerpt()))
      fields.append(.text("path", http.request.path.excerpt()))
      if let trace = http.request.traceID { fields.append(.text("trace_id", trace.text)) }
    }
    if let client = clientText { fields.append(.text("client", client)) }
    if let suppressed, suppressed > 0 { fields.append(.number("suppressed", suppressed)) }
    worker.server.logger.log(suppressed == nil ? .debug : .info, "request refused", fields)
  }

  /// Logs that the connection begins with a protocol other than HTTP: a client or a proxy may be configured for another
  /// port.
  func logOtherProtocol(_ error: HTTPProtocolError) {
    let limiter: LogLineLimiter
    switch error {
    case .tlsHandshake: limiter = worker.server.tlsOnPlainLog
    case .proxyHeader: limiter = worker.server.proxyHeaderLog
    default: return
    }
    logMismatch("a connection does not speak HTTP", error.description, limiter)
  }

  /// Logs at `info` that a client uses a protocol which this port does not accept. The usual cause is a wrong
  /// configuration. Returns whether the limiter has admitted the line.
  @discardableResult
  func logMismatch(_ what: StaticString, _ reason: String, _ limiter: LogLineLimiter) -> Bool {
    guard let suppressed = limiter.admit(at: worker.loop.now) else { return false }
    var fields: [LogField] = [.text("reason", reason)]
    if let client = connectionAddress { fields.append(.text("client", client.description)) }
    if suppressed > 0 { fields.append(.number("suppressed", suppressed)) }
    worker.server.logger.log(.info, what, fields)
    return true
  }

  // MARK: Sending

  /// Defers sending to the end of the turn, when the responses of all connections are sent one after another. A client
  /// that reads many of them is then woken once, not once per response. Returns false if responses must be sent now.
  @inline(never)
  func deferOutput(until need: Need) -> Bool {
    switch need {
    case .input, .newData: guard !hasUnsent else { return false }
    case .wait, .output, .turn, .end: return false
    }
    if worker.output.isEmpty { return true }
    guard worker.deferOutput(of: self) else { return false }
    deferredParts += 1
    return true
  }

  /// Sends the deferred responses at the end of the turn. Bytes that the kernel does not accept are queued, and a task
  /// waits for room.
  func sendDeferred(_ bytes: Span<UInt8>) {
    deferredParts -= 1
    guard !channel.isClosed else { return }
    var sent = 0
    if !hasUnsent {
      if let layers, layers.isSecure { return sendDeferred(bytes, through: layers) }
      switch channel.send(bytes) {
      case .bytes(let count) where count == bytes.count:
        // The access record cannot assign responses to parts, so it reports all responses after the last part.
        if access != nil, deferredParts == 0 { reportSent() }
        return
      case .bytes(let count): sent = count
      case .wouldBlock: break
      case .failed, .endOfStream:
        channel.close()
        return
      }
    }
    pending.withText { $0.append(bytes.extracting(sent...)) }
    worker.noteResponder(of: self)
    isIdleWait = false
    channel.wake()
  }

  /// Sends all output, and waits while the client does not read. Returns false when the connection is over.
  func flush() async -> Bool {
    switch flushNow() {
    case .done: true
    case .failed: false
    case .blocked: await flushPending()
    case .paused: await flushPending(afterPause: true)
    }
  }

  @inline(never)
  func flushNow() -> OutputQueue.FlushResult {
    if deferredParts > 0 {
      // `sendDeferred` changes `responder`, which belongs to the responses in `output`.
      let responder = worker.responder
      worker.sendDeferred()
      worker.responder = channel.isClosed ? 0 : responder
      // If the client is gone, the channel must not be written to, and the output is for this client only.
      guard !channel.isClosed else {
        worker.output.removeAll()
        return .failed(EPIPE)
      }
    }
    guard !hasUnsent else {
      if !worker.output.isEmpty {
        pending.takeAll(from: &worker.output)
        worker.noteResponder(of: self)
      }
      return .blocked
    }
    guard !worker.output.isEmpty else { return .done }
    let result =
      if let layers { flush(&worker.output, through: layers) } else { worker.output.flush(to: channel) }
    switch result {
    case .done:
      if access != nil { reportSent() }
      worker.releaseLargeOutput()
    case .failed:
      worker.output.removeAll()
      worker.releaseLargeOutput()
    case .blocked, .paused:
      pending.takeAll(from: &worker.output)
      worker.noteResponder(of: self)
    }
    return result
  }

  /// Adds to the total of unsent responses the output that the kernel has not accepted. Returns nil if the client must
  /// be reset because of this.
  @inline(never)
  private func addUnsent() -> LoopPart? {
    let admission = worker.slowReaders.add(channel, unsentBytes, by: origin, worker.responder(of: self))
    guard case .admitted(let part) = admission else { return nil }
    return part
  }

  /// - Parameter afterPause: whether this turn has already passed as many bytes to the kernel as one turn may pass.
  @inline(never)
  func flushPending(afterPause: Bool = false) async -> Bool {
    var pace = ReaderPace(at: worker.loop.now, unacknowledged: channel.unacknowledgedBytes)
    var isPaused = afterPause
    while true {
      let before = sentPosition
      let result: OutputQueue.FlushResult =
        if isPaused {
          .paused
        } else if let layers {
          flush(&pending, through: layers)
        } else {
          pending.flush(to: channel)
        }
      isPaused = false
      switch result {
      case .done:
        pending.releaseStorage()
        worker.forgetResponder(of: self)
        if access != nil { reportSent() }
        return true
      case .failed:
        return false
      case .blocked, .paused:
        pace.advance(sent: sentPosition - before, unacknowledged: channel.unacknowledgedBytes, at: worker.loop.now)
        var deadline = pace.deadline(worker.timeouts)
        // A handshake must be complete by the deadline of the first head.
        if layers?.isHandshaking == true { deadline = min(deadline, phase.deadline(worker.timeouts)) }
        guard worker.loop.now < deadline else {
          worker.server.metrics.slowReaders.add()
          channel.reset()
          return false
        }
        pending.releaseSpareCapacity()
        guard let part = addUnsent() else {
          channel.reset()
          return false
        }
        if result == .paused { await worker.loop.yieldTurn() }
        let outcome = await channel.writable(until: deadline)
        guard worker.slowReaders.remove(part) else {
          channel.reset()
          return false
        }
        // The deadline alone does not end the connection: the client may have taken bytes since the last check
        // (`ReaderPace`).
        guard outcome != .closed, !channel.isClosed else { return false }
      }
    }
  }
}
