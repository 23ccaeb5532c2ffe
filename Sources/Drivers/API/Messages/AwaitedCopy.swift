import Access
import ByteStreams
import HTTPServer
import Inbox
import Metrics
import Reactor
import Sessions
import Upstream

/// Reads of a session that this gateway follows, while its copy cannot serve them: the copy is not read yet, is not
/// current, or does not know the cursor.
extension PollParameters {
  /// Returns the outcome of such a request, a wait or a stream; nil if the copy can serve it now.
  func hold(
    for copy: FollowedCopy, of session: Session, for grant: Grant?, until deadline: MonotonicTime, _ api: API,
    at now: MonotonicTime, into response: inout Response
  ) throws(Problem) -> Outcome? {
    copy.noteUse(at: now, wakesHolder: session.upstream.connectsOnDemand)
    let isPrompt = streamFormat == nil && self.wait == .zero
    guard let wait = copy.wait(for: start, in: session.inbox, isPrompt: isPrompt) else { return nil }
    if let format = streamFormat, let cursor = start.cursor {
      return .stream(
        stream(
          session, format, from: ReadStart(cursor), until: deadline, for: grant, awaiting: wait, api, into: &response))
    }
    // Redis cannot be reached, so there is no position to return, and none is expected soon.
    if start.cursor == nil, copy.isAway { throw api.noHolder }
    let request = ReadAwaitingCopy(
      api, self, of: session, for: grant, wait, until: deadline,
      patience: api.deadline(after: copy.isAway ? .zero : FollowedCopy.patience, for: grant, at: now))
    return .wait(request)
  }
}

/// A poll that waits until the copy can serve it, and that is then held like any other poll; or a stream that waits
/// until it has a position.
///
/// The session object may be replaced meanwhile, because the session was read for the first time or because this
/// gateway has become the holder. In that case, the session is looked up again.
private final class ReadAwaitingCopy: WaitingRequest {
  private let api: API
  private let parameters: PollParameters
  private let grant: Grant?
  private var session: Session
  /// nil once the copy can serve the request.
  private var awaited: FollowedCopy.Wait?
  /// The poll, once its position is known.
  private var poll: Poll?
  /// The deadline of the request.
  private let end: MonotonicTime
  /// Until when the request waits for the copy.
  private let patience: MonotonicTime

  init(
    _ api: API, _ parameters: PollParameters, of session: Session, for grant: Grant?, _ awaited: FollowedCopy.Wait,
    until end: MonotonicTime, patience: MonotonicTime
  ) {
    self.api = api
    self.parameters = parameters
    self.session = session
    self.grant = grant
    self.awaited = awaited
    self.end = end
    self.patience = patience
  }

  private var isStream: Bool { parameters.streamFormat != nil }

  var heldCount: Gauge? { api.common.metrics.heldPolls }

  /// The deadline of the wait for the copy.
  private var copyDeadline: MonotonicTime {
    // Without a cursor, an early response with a position is better than a long wait.
    return isStream || parameters.start.cursor == nil ? patience : max(patience, end)
  }

  func advance(_ cause: WaitCause, at now: MonotonicTime) -> WaitStep {
    if poll == nil {
      followCopy()
      if awaited == nil {
        guard !isStream, parameters.wait > .zero, let start = try? resolve(at: now) else { return .ready }
        poll = Poll(session: session, start: start, options: parameters.options)
      }
    }
    return poll?.advance(until: end) ?? .wait(session.inbox.notifier, until: copyDeadline)
  }

  private func resolve(at now: MonotonicTime) throws(Problem) -> ReadStart {
    try parameters.position(in: session, api, at: now)
  }

  /// Checks whether the copy can now serve the request.
  private func followCopy() {
    // Another client may have created a session under the same name, which this client must not read.
    if session.inbox.hasEnded, let next = api.common.sessions.find(session.name), grant?.allows(next) ?? false {
      session = next
    }
    guard let wait = awaited else { return }
    if session.copy == nil || wait.isOver(in: session.inbox) { awaited = nil }
  }

  func beginStream(at now: MonotonicTime, into response: inout Response) -> (any Source)? {
    guard let format = parameters.streamFormat, let start = try? resolve(at: now) else { return nil }
    return parameters.stream(session, format, from: start, until: end, for: grant, api, into: &response)
  }

  func finish(at now: MonotonicTime, into response: inout Response) {
    if let poll {
      if let arrival = poll.respond(api, at: now, into: &response) {
        api.latencies.note(.pushToPoll, since: arrival)
      }
      return
    }
    do throws(Problem) {
      if let awaited, awaited.isNeeded, let cursor = parameters.start.cursor, !session.inbox.isClosed {
        // Whether there are messages or a gap after the cursor is not known here.
        let poll = Poll(session: session, start: ReadStart(cursor), options: parameters.options)
        poll.write(ReadResult(nothingAt: cursor), poll.options, api, at: now, into: &response)
      } else {
        let poll = Poll(session: session, start: try resolve(at: now), options: parameters.options)
        poll.respond(api, at: now, into: &response)
      }
    } catch {
      api.respond(with: error, into: &response)
    }
  }

  func abandon() {}
}
