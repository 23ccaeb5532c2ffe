import ByteStreams
import Delivery
import HTTPCodec
import Metrics
import Reactor

/// A poll that waits: all that is kept of its request.
struct HeldPoll {
  let start: ReadStart
  let deadline: MonotonicTime
  let limit: Int
  let maxBytes: Int
  /// Where it waits, once it does.
  var place: PollRoom.Place?
}

extension HTTPConnection {
  /// `GET /v1/messages`: answers with what lies after the cursor. True: there is nothing yet, and `held` says how long to wait.
  func poll(_ parameters: PollParameters) -> Bool {
    let loop = worker.loop
    let start: ReadStart
    do throws(CursorAheadError) {
      start = try shared.store.resolve(parameters.start, now: loop.now)
    } catch {
      answer(
        Problem(
          .invalidParameter,
          detail: "'cursor' lies ahead of everything that was ever given; use one from an earlier answer, or 'latest'"))
      return false
    }
    held = HeldPoll(
      start: start, deadline: loop.now + parameters.wait, limit: parameters.limit, maxBytes: parameters.maxBytes)
    if parameters.wait > .zero, !shared.store.hasNews(after: start), !worker.room.isDraining { return true }
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
      start: poll.start, limit: poll.limit, maxBytes: poll.maxBytes, revision: shared.store.revision,
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
    shared.store.read(after: poll.start, limit: poll.limit, maxBytes: poll.maxBytes)
  }

  private func countAnswer(of messages: Int) {
    shared.answeredPolls.add()
    shared.deliveredMessages.add(messages)
  }

  /// Waits until `held` has news, or its deadline, the client's end, or ours. It owns next to nothing meanwhile: the frames of
  /// this wait are what ten thousand held polls cost, so all work is done in functions that are not inlined into it.
  func hold() async {
    var isWaiting = enterRoom()
    while isWaiting {
      isWaiting = goesOnWaiting(after: await channel.readEvent(until: heldDeadline))
    }
    leaveRoom()
  }

  private var heldDeadline: MonotonicTime { held?.deadline ?? worker.loop.now }

  /// False: there is no need to wait.
  @inline(never)
  private func enterRoom() -> Bool {
    http.releaseStorageIfIdle()
    guard held != nil else { return false }
    shared.heldPolls.add(1)
    return takesPlace() && takeInputWhileHeld()
  }

  /// Registers for news. False: there are some.
  private func takesPlace() -> Bool {
    guard let start = held?.start else { return false }
    held?.place = worker.room.enter(channel)
    // What came between the last look and the registration would wake nobody.
    return !shared.store.hasNews(after: start) && !worker.room.isDraining
  }

  @inline(never)
  private func leaveRoom() {
    guard let place = held?.place else { return }
    worker.room.leave(place)
    shared.heldPolls.add(-1)
  }

  @inline(never)
  private func goesOnWaiting(after outcome: WaitOutcome) -> Bool {
    switch outcome {
    // The wake-up took the place away. There may be nothing new for a poll that had seen the news when it came.
    case .woken: takesPlace()
    case .deadline, .closed: false
    case .ready: takeInputWhileHeld() && (http.wantsInput || !channel.isHungUp)
    }
  }

  /// Keeps what a client sends ahead of its answer, within the bound of pipelining. False where it has ended.
  private func takeInputWhileHeld() -> Bool {
    let channel = channel
    while http.pipelineRoom > 0, channel.isReadable {
      switch channel.receive(atMost: http.pipelineRoom) {
      case .bytes: http.receive(channel.received)
      case .wouldBlock: break
      case .endOfStream:
        // A client that has only finished sending still wants its answer; one that is gone loses nothing by it.
        http.receiveEndOfInput()
        return false
      case .failed:
        channel.close()
        return false
      }
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
