import ByteStreams
import HTTPCodec
import Metrics
import Reactor

/// Waiting for new data. A held request, and a stream between two batches, wait as the channel's input target. The
/// response or the next batch is usually sent during this wait, without a task (`processInput()`).
extension HTTPConnection {
  /// Called when `waiting` is ready, waits for another notifier, or must end because the server drains.
  func notified() {
    if !channel.processInput() { channel.wake() }
  }

  /// Ends the hold. A request gets its response; for a stream, `advance()` follows.
  @inline(never)
  func finishHolding() {
    endHolding()
    respondAfterWait()
    handled += 1
  }

  /// Responds to the request in `waiting`. If the response is a stream, it is in `waiting` afterwards.
  func respondAfterWait() {
    if case .body(let work) = waiting {
      waiting = .none
      return endPreparation(work)
    }
    guard case .request(let request) = waiting else { return }
    waiting = .none
    if !isReady { _ = request.advance(.end, at: worker.loop.now) }
    if !heldRequestID.isEmpty {
      worker.response.requestID.append(heldRequestID)
      heldRequestID = []
    }
    if let source = request.beginStream(at: worker.loop.now, into: &worker.response) {
      waiting = .stream(source)
      return beginStream()
    }
    request.finish(at: worker.loop.now, into: &worker.response)
    writeResponse()
  }

  /// Advances `waiting`. Returns the notifier that it waits for; nil if it is ready or its wait is over.
  func advanceWaiting() -> Notifier? {
    let now = worker.loop.now
    let step: WaitStep =
      switch waiting {
      case .none: .ready
      case .request(let request): request.advance(.news, at: now)
      case .stream(let source): source.advance(at: now)
      case .body(let work): work.isDone ? .ready : .wait(work.notifier, until: work.deadline, endsAtDrain: false)
      }
    switch step {
    case .ready:
      isReady = true
      return nil
    case .wait(let notifier, let deadline, let endsAtDrain):
      isReady = false
      waitDeadline = endsAtDrain ? min(deadline, worker.drainEnd(of: channel)) : deadline
      return waitDeadline > now ? notifier : nil
    }
  }

  /// Advances `waiting` after a notification. Returns whether this changes or ends its wait.
  func advanceAfterNotification(of notifier: Notifier) -> Bool {
    let deadline = waitDeadline
    return advanceWaiting() !== notifier || waitDeadline != deadline
  }

  /// Called before each wait. Returns false when it is time to respond or the connection is closed.
  ///
  /// A notification removes the registration, even if input from the client has already ended that wait. So the
  /// registration of an earlier wait may be void. Therefore every wait registers again and then advances once more. If
  /// the request now waits for another notifier, this is repeated.
  @inline(never)
  func canWait() -> Bool {
    guard !channel.isClosed, receiveWhileHeld(), !isReady else { return false }
    var registered: Notifier?
    while let notifier = advanceWaiting() {
      if notifier === registered { return true }
      if let registration { worker.heldRequests.unregister(registration) }
      registration = worker.heldRequests.register(self, for: notifier)
      registered = notifier
    }
    return false
  }

  @inline(never)
  func beginHolding() {
    hasHeldRequest = true
    isReady = false
    releaseIdleInput()
    layers?.releaseIdleStorage()
    if case .request(let request) = waiting { request.heldCount?.add(1) }
    if case .body = waiting { return }
    access?.hold(at: worker.loop.now)
  }

  private func releaseIdleInput() {
    // The head of an unfinished request is still needed, for example for its id.
    if case .body = waiting { return }
    http.releaseStorageIfIdle()
  }

  @inline(never)
  func endHolding() {
    hasHeldRequest = false
    if case .request(let request) = waiting { request.heldCount?.add(-1) }
    if let registration { worker.heldRequests.unregister(registration) }
    registration = nil
    isProbed = false
    access?.resume(at: worker.loop.now)
  }

  /// Buffers pipelined input up to its limit. Returns false if the request cannot be held any longer.
  private func receiveWhileHeld() -> Bool {
    let channel = channel
    let layers = layers
    while http.remainingPipelineBytes > 0, channel.isReadable || layers?.hasBufferedInput == true {
      let limit = http.remainingPipelineBytes
      let result = if let layers { receive(through: layers, atMost: limit) } else { channel.receive(atMost: limit) }
      switch result {
      case .bytes:
        if layers == nil { http.receive(channel.received) } else { receivePlaintext() }
        releaseIdleInput()
      case .wouldBlock:
        // If the kernel does not accept a TLS message of this side, such as a reply to a key update, the socket is not
        // read and remains readable. The loop would not end.
        if let layers, layers.hasBufferedInput || layers.pendingBytes > 0 { return true }
      case .endOfStream: http.receiveEndOfInput()
      case .failed:
        channel.close()
        return false
      }
    }
    if channel.isBroken {
      channel.close()
      return false
    }
    // After close_notify a client reads nothing more (RFC 5246 §7.2.1). TLS 1.3 would allow it to read, but no client
    // does.
    if layers?.isClosedByPeer == true {
      close()
      return false
    }
    return !channel.isHungUp || probeHalfClosed()
  }

  /// Detects whether a client that has closed its sending side is gone. Such a client may still be waiting for its
  /// response, and TCP shows that a client is gone only when the server sends something. So the server sends `100
  /// Continue` once. A live client must ignore it (RFC 9110 §15.2), and the kernel of a dead client responds with a
  /// reset. Without the probe, polls that clients or proxies have aborted would be held until their deadlines.
  ///
  /// Returns false for an HTTP/1.0 client. It must not get an interim response, so it gets its final response now.
  private func probeHalfClosed() -> Bool {
    switch waiting {
    // Each batch of a stream is also a probe, and the preparation of a body ends soon.
    case .stream, .body: return true
    case .none, .request: break
    }
    guard !isProbed else { return true }
    guard http.canSendInterimResponse else { return false }
    isProbed = true
    withOutput { http, output in http.writeInterimContinue(into: &output) }
    if case .failed = flushNow() {
      channel.close()
      return false
    }
    return true
  }
}
