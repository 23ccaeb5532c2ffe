import ByteStreams
import HTTPCodec
import Metrics
import Reactor

/// Reading from the client, with a deadline for each phase of a request.
extension HTTPConnection: InputTarget {
  /// The result of one read.
  private enum ReadProgress {
    /// `advance()` has input to process.
    case input
    /// No bytes are available.
    case none
    /// The connection has failed.
    case ended
    /// TLS or the PROXY protocol has failed. An alert or a response that names the reason may have been sent.
    case refused
  }

  /// What follows a need that was met as far as possible without a wait.
  private enum Progress {
    /// The next wait is for input or new data.
    case waits
    /// The need is in `openNeed`, and the task continues with it.
    case needsTask
    /// The channel is closed.
    case closed
  }

  func inputWaitEnded(_ outcome: WaitOutcome) {
    switch outcome {
    case .ready: worker.loop.spawn(self)
    case .woken:
      // If `processInput` has just set a need, the output is sent before this need is met.
      if openNeed == nil { openNeed = .wait }
      worker.loop.spawn(self)
    // A task, since the channel may have been closed while the worker's deferred output is being sent.
    case .closed: if !isOver { worker.loop.spawn(self) }
    case .deadline: deadlinePassed()
    }
  }

  @inline(never)
  private func deadlinePassed() {
    if hasHeldRequest { finishHolding() } else if !timeOut() { return end() }
    switch meet(advance()) {
    case .waits: waitForInput()
    case .needsTask: worker.loop.spawn(self)
    case .closed: end()
    }
  }

  var inputDeadline: MonotonicTime {
    if hasHeldRequest { return waitDeadline }
    // Idle connections of peers stay open during a drain: other gateways send requests until they know the next holder.
    if listener.role == .peer { return phase.deadline(worker.peerTimeouts) }
    let deadline = phase.deadline(worker.timeouts)
    guard worker.isDraining, http.isIdle else { return deadline }
    let end = worker.drainEnd(of: channel)
    return phase.idleStart.map { min(deadline, max($0 + HTTPWorker.drainIdle, end)) } ?? deadline
  }

  /// Does the work that `serve()` would do after the wait, as long as it needs no other wait. So the usual request, the
  /// usual batch of a stream, and the usual end of a connection need no task.
  func processInput() -> Bool {
    isIdleWait = false
    while true {
      let need: Need
      if hasHeldRequest {
        let isWaiting = canWait()
        if channel.isClosed { return true }
        if layers != nil, hasUnsent {
          // TLS's own replies are sent like a response, at the pace of the client. Then the wait begins again.
          endHolding()
          openNeed = .newData
          return false
        }
        if isWaiting { return true }
        finishHolding()
        need = advance()
      } else {
        switch read() {
        case .none:
          guard layers != nil, hasUnsent else { return true }
          need = .input
        case .ended:
          // Sends the deferred output. Closing the channel ends the wait.
          _ = flushNow()
          close()
          return true
        case .refused:
          if let layers { reportLayers(layers) }
          need = .end(lingering: true)
        case .input: need = advance()
        }
      }
      switch meet(need) {
      case .waits: break
      case .needsTask: return false
      case .closed: return true
      }
    }
  }

  /// Meets a need, unless this requires a wait of the task.
  private func meet(_ need: Need) -> Progress {
    if !deferOutput(until: need) {
      // All connections use the same output, so it must not keep anything of this connection.
      switch flushNow() {
      case .done: break
      case .blocked, .paused:
        openNeed = need
        return .needsTask
      case .failed:
        channel.close()
        return .closed
      }
    }
    switch need {
    case .input: beginReceiving()
    case .newData: beginHolding()
    case .end(let lingering) where endsNow(lingering: lingering): return .closed
    case .wait, .output, .turn, .end:
      openNeed = need
      return .needsTask
    }
    return .waits
  }

  /// Ends a connection whose responses the kernel has accepted. Returns false if a wait is necessary first: for the end
  /// of the client's input, or for room for close_notify.
  private func endsNow(lingering: Bool) -> Bool {
    if !channel.hasReadEnd, lingering || shouldLinger { return false }
    if let layers, layers.sendClose(to: channel) == .blocked { return false }
    end()
    return true
  }

  @inline(never)
  func beginReceiving() {
    phase.restart(at: worker.loop.now, isReceiving: http.isReceivingRequest)
  }

  @inline(never)
  private func read() -> ReadProgress {
    let channel = channel
    let layers = layers
    let result =
      if let layers { receive(through: layers, atMost: LoopContext.receiveBufferSize) } else { channel.receive() }
    switch result {
    case .bytes(let count):
      if worker.accessLog.isOn || access != nil { recordInput() }
      if layers == nil { http.receive(channel.received) } else { receivePlaintext() }
      taken += Int32(count)
      phase.beginHead(at: worker.loop.now)
      return .input
    case .endOfStream:
      http.receiveEndOfInput()
      return .input
    case .failed:
      return layers?.failure == nil ? .ended : .refused
    case .wouldBlock:
      (handled, taken) = (0, 0)
      http.releaseStorageIfIdle()
      layers?.releaseIdleStorage()
      isIdleWait = http.isIdle
      return .none
    }
  }

  // MARK: Timeout and lingering close

  /// Handles a passed deadline: ends the request, with a 408 if a response is still possible, and does not wait for the
  /// rest of the request. Returns false if no request has begun; then there is no response.
  @inline(never)
  func timeOut() -> Bool {
    if http.isIdle { return false }
    worker.server.metrics.slowRequests.add()
    http.abandonRequest()
    guard http.canRespond else { return true }
    abandon()
    if case .body(let pace) = phase { refuse(.slowBody(received: pace.bytes)) } else { refuse(.slowHead) }
    return true
  }

  /// Whether closing now could lose a response, even if the client sends no further request. Unread or later input
  /// makes the kernel reset the connection and discard unsent bytes.
  var shouldLinger: Bool { !channel.isClosed && (channel.isReadable || channel.unsentBytes > 0) }

  /// Reads and drops further input, within a limit of time and bytes, so that the client can read the last response.
  /// Closing with unread bytes would make the kernel reset the connection and discard that response (RFC 9112 §9.6).
  func linger() async {
    // After the client's FIN, there is nothing to drop, and closing sends the server's FIN.
    guard !channel.isClosed, !channel.hasReadEnd else { return }
    channel.shutdownWriting()
    let end = worker.loop.now + worker.timeouts.linger
    var dropped = 0
    while dropped < worker.server.settings.lingerBytes {
      switch channel.receive() {
      case .bytes(let count): dropped += count
      case .endOfStream, .failed: return
      case .wouldBlock:
        guard await channel.readable(until: end) == .ready else { return }
      }
    }
  }
}
