import ByteStreams
import HTTPCodec
import Reactor

/// Sends a stream batch by batch. Between two batches the stream is held like a poll: new data is usually sent without
/// a task. The next batch is requested only after the kernel has accepted the previous one.
extension HTTPConnection {
  /// Writes the head of the response that `waiting` streams.
  func beginStream() {
    if worker.isDraining { http.closeAfterThisResponse() }
    if let access { recordResponse(in: access) }
    // The heartbeats of a quiet stream never fill the kernel's buffer, so `flushPending` does not detect that the
    // client is gone. The kernel detects this with a user timeout of twice `write`. A client that is still there but
    // does not read is thus counted and reset by `flushPending` first.
    if !channel.isClosed { channel.setUserTimeout(worker.timeouts.write * 2) }
    let start = worker.output.count
    let date = worker.date
    withOutput { http, output in
      http.beginResponse(
        worker.response.status, worker.response.endsWithConnection ? .untilClose : .stream, date: date.bytes,
        into: &output)
      worker.response.writeFields(into: &output)
      output.endFields()
    }
    worker.response.reset()
    worker.response.requestID.removeAll()
    access?.addBytes(worker.output.count - start)
  }

  /// Writes the next batch of the stream in `waiting`. Returns the condition for the next batch; nil if the stream has
  /// ended.
  @inline(never)
  func continueStream() -> Need? {
    guard case .stream(let source) = waiting else { return nil }
    let start = worker.output.count
    var step = SourceStep.end
    // A response to HEAD has no content.
    if http.responseHasContent {
      if worker.drainEnd(of: channel) <= worker.loop.now {
        source.writeLast(at: worker.loop.now, into: &worker.response.content)
      } else {
        step = source.next(at: worker.loop.now, into: &worker.response.content)
      }
      writeContent()
      worker.responder = source.principal
    }
    if case .end = step { endStream(source) }
    if let access {
      access.addBytes(worker.output.count - start)
      if case .end = step { access.finish() }
    }
    handled += 1
    switch step {
    case .end: return nil
    case .more: return .turn
    // Other connections get a turn even if new data always arrives in time.
    case .wait: return handled >= Self.requestsPerTurn ? .turn : .newData
    }
  }

  private func writeContent() {
    var hasContent = false
    withOutput { http, output in hasContent = http.beginContent(worker.response.content.count, into: &output) }
    if hasContent {
      worker.response.content.write(into: &worker.output)
      withOutput { http, output in http.endContent(into: &output) }
    }
    worker.response.content.removeAll()
  }

  private func endStream(_ source: any Source) {
    waiting = .none
    source.close()
    // The head may have been sent before the drain. The connection then ends without `Connection: close`.
    if worker.isDraining { http.closeAfterThisResponse() }
    withOutput { http, output in http.finishResponse(into: &output) }
  }
}
