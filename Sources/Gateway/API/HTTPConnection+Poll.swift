import ByteStreams
import Inbox
import HTTPCodec
import Metrics
import Reactor
import Sessions
import Upstream

/// A poll that waits: all that is kept of its request.
struct HeldPoll {
  let start: ReadStart
  let deadline: MonotonicTime
  let limit: Int
  let maxBytes: Int
  /// Whether a client that has ended its stream was sent something, to learn whether it is gone.
  var isProbed = false
  /// Where it waits, once it does.
  var place: PollRoom.Place?
}

extension HTTPConnection {
  /// `GET /v1/messages`: answers with what lies after the cursor. True: there is nothing yet, and `held` says how long to wait.
  func poll(_ parameters: PollParameters) -> Bool {
    shared.session.upstream.noteReader()
    let loop = worker.loop
    let start: ReadStart
    do throws(CursorAheadError) {
      start = try shared.session.inbox.resolve(parameters.start, now: loop.now)
    } catch {
      answer(
        Problem(
          .invalidParameter,
          detail: "'cursor' lies ahead of everything that was ever given; use one from an earlier answer, or 'latest'"))
      return false
    }
    held = HeldPoll(
      start: start, deadline: loop.now + parameters.wait, limit: parameters.limit, maxBytes: parameters.maxBytes)
    if parameters.wait > .zero, !shared.session.inbox.hasNews(after: start), !worker.room.isDraining { return true }
    finishPoll()
    return false
  }

  /// Answers `held` with what there is.
  func finishPoll() {
    guard let poll = held else { return }
    held = nil
    // One answer after another: what is in the output then is this answer alone.
    guard worker.output.isEmpty, http.takesPreparedResponse, !worker.isDraining else {
      write(read(poll))
      return
    }
    let key = PreparedAnswers.Key(
      start: poll.start, limit: poll.limit, maxBytes: poll.maxBytes, revision: shared.session.inbox.revision,
      second: worker.wallSecond)
    if let answer = worker.preparedAnswers.find(key) {
      countAnswer(of: answer.messages)
      http.passPreparedResponse()
      worker.output.append(SharedSlice(answer.bytes))
    } else {
      let result = read(poll)
      write(result)
      worker.preparedAnswers.note(key, worker.output, messages: result.messages.count)
    }
  }

  private func read(_ poll: HeldPoll) -> ReadResult {
    shared.session.inbox.read(after: poll.start, limit: poll.limit, maxBytes: poll.maxBytes)
  }

  private func countAnswer(of messages: Int) {
    shared.answeredPolls.add()
    shared.deliveredMessages.add(messages)
  }

  /// Waits until `held` has news, or its deadline, the client's end, or ours. It owns next to nothing meanwhile: the frames of
  /// this wait are what ten thousand held polls cost, so all work is done in functions that are not inlined into it.
  func hold() async {
    http.releaseStorageIfIdle()
    shared.heldPolls.add(1)
    var outcome = WaitOutcome.ready
    while canWait(after: outcome) { outcome = await channel.readEvent(until: heldDeadline) }
    leaveRoom()
  }

  private var heldDeadline: MonotonicTime { held?.deadline ?? worker.loop.now }

  /// Called before each wait. False: it is time to respond, or the connection is closed.
  ///
  /// A wake-up takes the place in the room away, also where bytes from the client had ended the wait already, in the same turn. So
  /// each wait begins with a place of its own and a look for news behind it, whatever ended the last.
  @inline(never)
  private func canWait(after outcome: WaitOutcome) -> Bool {
    if outcome == .deadline || channel.isClosed { return false }
    guard takeInputWhileHeld(), let start = held?.start else { return false }
    if let place = held?.place { worker.room.leave(place) }
    held?.place = worker.room.enter(channel)
    return !shared.session.inbox.hasNews(after: start) && !worker.room.isDraining
  }

  @inline(never)
  private func leaveRoom() {
    if let place = held?.place { worker.room.leave(place) }
    shared.heldPolls.add(-1)
  }

  /// Keeps what a client sends ahead of its response, within the limit of pipelining. False where the poll is not to be held on.
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
  /// says so only to who sends something. So it is sent `100 Continue` once, which a client that reads must skip (RFC 9110 §15.2),
  /// and which the kernel of one that is gone answers with a reset. Else polls that clients or proxies have aborted would
  /// all be held to their end. False: an HTTP/1.0 client takes no such response, and gets its final one now.
  private func probeHalfClosed() -> Bool {
    guard held?.isProbed == false else { return true }
    guard http.takesInterimResponse else { return false }
    held?.isProbed = true
    withOutput { http, output in http.writeInterimContinue(into: &output) }
    if case .failed = flushNow() {
      channel.close()
      return false
    }
    return true
  }

  private func write(_ result: ReadResult) {
    countAnswer(of: result.messages.count)
    var closing = ByteQueue()
    swap(&closing, &worker.scratch)
    closing.removeAll()
    AnswerJSON.writeClosing(of: result, into: &closing)
    respond(.ok, .length(AnswerJSON.contentLength(of: result, closing: closing.count))) { output in
      output.append("Content-Type: application/json\r\nGateway-Cursor: " as StaticString)
      result.cursor.write(into: &output)
      output.append("\r\n" as StaticString)
    }
    if http.responseTakesContent { writeContent(of: result, closing: closing.bytes) }
    withOutput { http, output in http.finishResponse(into: &output) }
    swap(&closing, &worker.scratch)
  }

  private func writeContent(of result: ReadResult, closing: Span<UInt8>) {
    let length = AnswerJSON.contentLength(of: result, closing: closing.count)
    withOutput { http, output in
      // One piece as far as framing goes: its length has been announced.
      _ = http.beginContent(length, into: &output)
      output.append(AnswerJSON.opening)
    }
    var isFirst = true
    for message in result.messages {
      if !isFirst { worker.output.withText { $0.append(AnswerJSON.separator) } }
      isFirst = false
      worker.output.append(SharedSlice(message.rendered))
    }
    withOutput { http, output in
      output.append(closing)
      http.endContent(into: &output)
    }
  }
}
