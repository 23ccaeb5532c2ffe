import ByteStreams
import HTTPServer
import Reactor
import Sessions

/// A request that waits here because this gateway is the holder of its session.
protocol HolderRequest: WaitingRequest {
  var api: API { get }
  var session: Session { get }
  /// Whether the response would also be true at the next holder. Read before `conclude`.
  var isFact: Bool { get }

  /// Writes the response, like `finish`, while this gateway is the holder of the session.
  func conclude(at now: MonotonicTime, into response: inout Response)
}

extension HolderRequest {
  /// Whether the session was lost is checked after its state was read: if not, that state was true until then.
  func finish(at now: MonotonicTime, into response: inout Response) {
    let (api, session, isFact) = (api, session, isFact)
    conclude(at: now, into: &response)
    guard !isFact, session.hasLeft else { return }
    response.reset()
    api.respond(with: API.holderUnavailable, into: &response)
  }
}

extension PendingRequest {
  /// The session whose holder must execute the request; nil if every gateway can. Every gateway can show the state of a
  /// session, with what it knows of the holder, and can serve polls, since it has the pushes.
  var sessionOfHolder: Session? {
    switch self {
    case .send(_, let session), .delivery(_, let session, _), .call(_, let session), .change(let session): session
    case .consumer(let request): request.target.session
    case .fromPeer, .movable, .poll, .putSession, .closeSession, .listSessions, .read, .forward, .misdirected,
      .preflight, .refused, .missing:
      nil
    }
  }

  /// Whether an immediate response stays true if this gateway has lost the session. If not, the request can be executed
  /// at the next holder.
  func isFact(isRefused: Bool) -> Bool {
    switch self {
    // A call ends with the connection that carries it. No other gateway sends it.
    case .call: true
    // Accepted messages are stored. The receipt does not show states that were read after the loss.
    case .send: !isRefused
    case .consumer(let request):
      switch request.target.action {
      case .settle, .retryDeadLetters: !isRefused
      case .list, .show, .put, .remove, .receive, .deadLetters, .removeDeadLetters: false
      }
    default: false
    }
  }
}
