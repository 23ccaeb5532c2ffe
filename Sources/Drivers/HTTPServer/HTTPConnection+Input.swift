import ByteStreams
import Configuration
import HTTPCodec
import Metrics
import Reactor

/// Bytes from the client: read for as long as it may take over them.
extension HTTPConnection {
  /// What one try to read has led to.
  private enum ReadProgress {
    /// There is something for `advance()`.
    case input
    /// Nothing has arrived yet.
    case none
    /// The connection is over.
    case over
  }

  /// Reads once, waiting for as long as the phase allows. False: the connection is over.
  func receive() async -> Bool {
    beginReceiving()
    while true {
      switch read() {
      case .input: return true
      case .over: return false
      case .none: break
      }
      let outcome = await channel.readEvent(until: deadline())
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
  private func deadline() -> MonotonicTime { phase.deadline(settings) }

  @inline(never)
  private func beginReceiving() {
    phase.restart(at: worker.loop.now, isReceiving: http.isReceivingRequest)
  }

  /// Never inlined, as everything that the waits of a connection call: what a frame does not name while it waits takes no
  /// memory while it waits.
  @inline(never)
  private func read() -> ReadProgress {
    let channel = channel
    switch channel.receive() {
    case .bytes(let count):
      http.receive(channel.received)
      taken += count
      phase.beginHead(at: worker.loop.now)
      return .input
    case .endOfStream:
      http.receiveEndOfInput()
      return .input
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

  // MARK: Slow and unread

  /// The client has used up its time. Ends the request with a response where one can be given, and does not wait for the rest
  /// of it. False: the client has sent nothing, and so gets no response.
  @inline(never)
  func timeOut() -> Bool {
    if http.isIdle { return false }
    worker.server.metrics.slowRequests.add()
    http.abandonRequest()
    guard http.canAnswer else { return true }
    abandon()
    if case .body(let pace) = phase { refuse(.slowBody(received: pace.bytes)) } else { refuse(.slowHead) }
    return true
  }

  /// Reads and drops what still arrives, for a while, so that the client gets to read the last response: closing with unread
  /// bytes would reset the connection under it (RFC 9112 §9.6).
  func linger() async {
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
