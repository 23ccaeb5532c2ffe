import ByteStreams
import HTTPCodec
import HTTPServer
import Inbox
import Metrics
import Reactor
import Sessions
import Upstream

/// A `GET /v1/messages` with its cursor resolved.
struct Poll {
  let session: Session
  let start: ReadStart
  let limit: Int
  let maxBytes: Int
}

extension API {
  /// `GET /v1/messages`: responds with the pushes after the cursor, or waits for one.
  func poll(
    _ parameters: PollParameters, of session: Session, at now: MonotonicTime, into response: inout Response
  ) throws(ProblemError) -> Outcome {
    session.upstream.noteReader()
    let start: ReadStart
    do throws(CursorAheadError) {
      start = try session.inbox.resolve(parameters.start, now: now)
    } catch {
      throw ProblemError(
        .invalidParameter,
        "the cursor is ahead of the newest push: use the cursor of an earlier response, 'earliest' or 'latest'")
    }
    let poll = Poll(session: session, start: start, limit: parameters.limit, maxBytes: parameters.maxBytes)
    if parameters.wait > .zero, !session.inbox.hasNewData(after: start) {
      return .wait(HeldPoll(api: self, slot: polls.insert(poll), deadline: now + parameters.wait))
    }
    respond(to: poll, into: &response)
    return .respond
  }

  /// Responds with the pushes available now.
  fileprivate func respond(to poll: Poll, into response: inout Response) {
    let inbox = poll.session.inbox
    let key = PreparedPolls.Key(
      inbox: ObjectIdentifier(inbox), start: poll.start, limit: poll.limit, maxBytes: poll.maxBytes,
      revision: inbox.revision)
    if let entry = preparedPolls.find(key) {
      count(entry.messages)
      response.prepared = entry.response
      return
    }
    let result = inbox.read(after: poll.start, limit: poll.limit, maxBytes: poll.maxBytes)
    count(result.messages.count)
    response.begin(.ok, "application/json")
    response.fields.append("Gateway-Cursor: " as StaticString)
    result.cursor.write(into: &response.fields)
    response.fields.append("\r\n" as StaticString)
    MessagesJSON.write(result, into: &response.content)
    response.prepared = preparedPolls.note(key, response, messages: result.messages.count)
  }

  private func count(_ messages: Int) {
    shared.metrics.pollResponses.add()
    shared.metrics.deliveredMessages.add(messages)
  }
}

/// A held poll. Its `Poll` is in a table of the loop, so that this struct fits inline in the connection.
private struct HeldPoll: WaitingRequest {
  let api: API
  let slot: Int
  let deadline: MonotonicTime

  private var poll: Poll {
    guard let poll = api.polls[slot] else { preconditionFailure("a poll waits that has ended") }
    return poll
  }

  var heldCount: Gauge? { api.shared.metrics.heldPolls }
  var notifier: Notifier { poll.session.inbox.notifier }

  var hasNewData: Bool {
    let poll = poll
    return poll.session.inbox.hasNewData(after: poll.start)
  }

  func finish(at now: MonotonicTime, into response: inout Response) {
    let poll = poll
    abandon()
    api.respond(to: poll, into: &response)
  }

  func abandon() { api.polls.remove(slot) }
}
