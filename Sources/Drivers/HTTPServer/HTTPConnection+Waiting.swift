import ByteStreams
import HTTPCodec
import Metrics
import Reactor

/// Waiting for news: one path for all requests that are held, and for streams between two batches.
extension HTTPConnection {
  /// Waits until `waiting` has news, its deadline comes, the client is gone, or the server drains. It owns next to nothing
  /// meanwhile: the frames of this wait are what ten thousand held polls cost, so all work is done in functions that are not
  /// inlined into it.
  func hold() async {
    beginHolding()
    var outcome = WaitOutcome.ready
    while canWait(after: outcome) { outcome = await channel.readEvent(until: waitingDeadline()) }
    endHolding()
  }

  /// The wait is over: responds with what there is.
  @inline(never)
  func respondAfterWait() {
    guard case .request(let request) = waiting else { return }
    waiting = .none
    request.finish(at: worker.loop.now, into: &worker.response)
    writeResponse()
  }

  @inline(never)
  private func waitingDeadline() -> MonotonicTime {
    switch waiting {
    case .none: worker.loop.now
    case .request(let request): request.deadline
    case .stream(let source): source.deadline
    }
  }

  private var hasNews: Bool {
    switch waiting {
    case .none: true
    case .request(let request): request.hasNews
    case .stream(let source): source.hasNews
    }
  }

  /// Whether `hold()` would return without having waited, and so without a turn for others.
  var isWaitOver: Bool { hasNews || waitingDeadline() <= worker.loop.now }

  /// Whether a ring of the bell is reason to resume the task.
  var isConcernedByRing: Bool {
    guard case .request(let request) = waiting, request.sharesBell else { return true }
    return request.hasNews
  }

  private var bell: Bell? {
    switch waiting {
    case .none: nil
    case .request(let request): request.bell
    case .stream(let source): source.bell
    }
  }

  /// Called before each wait. False: it is time to respond, or the connection is closed.
  ///
  /// A wake-up removes the connection from the room, also where bytes from the client had ended the wait already, in the same turn.
  /// So each wait begins with a new entry and a look for news behind it, whatever ended the last.
  @inline(never)
  private func canWait(after outcome: WaitOutcome) -> Bool {
    if outcome == .deadline || channel.isClosed { return false }
    guard takeInputWhileHeld(), !worker.room.isDraining, let bell else { return false }
    if let place {
      if hasNews { return false }
      worker.room.leave(place)
    }
    place = worker.room.enter(self, for: bell)
    return !hasNews
  }

  @inline(never)
  private func beginHolding() {
    http.releaseStorageIfIdle()
    if case .request(let request) = waiting { request.heldCount?.add(1) }
  }

  @inline(never)
  private func endHolding() {
    if case .request(let request) = waiting { request.heldCount?.add(-1) }
    if let place { worker.room.leave(place) }
    place = nil
    isProbed = false
  }

  /// Keeps what a client sends ahead of its response, within the limit of pipelining. False where the request cannot be held.
  private func takeInputWhileHeld() -> Bool {
    let channel = channel
    while http.pipelineRoom > 0, channel.isReadable {
      switch channel.receive(atMost: http.pipelineRoom) {
      case .bytes: http.receive(channel.received)
      case .wouldBlock: break
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
    return !channel.isHungUp || probeHalfClosed()
  }

  /// The client has ended its stream. It may still read, and then waits for its response; or it is gone, which looks the same: TCP
  /// reports a gone peer only to a sender. So it is sent `100 Continue` once, which a client that reads must skip (RFC 9110 §15.2),
  /// and which the kernel of one that is gone answers with a reset. Else polls that clients or proxies have aborted would
  /// all be held to their end. False: an HTTP/1.0 client takes no such response, and gets its final one now.
  private func probeHalfClosed() -> Bool {
    // Each batch of a stream probes as well.
    if case .stream = waiting { return true }
    guard !isProbed else { return true }
    guard http.takesInterimResponse else { return false }
    isProbed = true
    withOutput { http, output in http.writeInterimContinue(into: &output) }
    if case .failed = flushNow() {
      channel.close()
      return false
    }
    return true
  }
}
