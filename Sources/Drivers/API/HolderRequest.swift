import ByteStreams
import HTTPServer
import Reactor
import Sessions

/// A request that waits here, because this gateway holds its session.
protocol HolderRequest: WaitingRequest {
  var api: API { get }
  var session: Session { get }
  /// Whether the response would be true at the next holder, too. Read before `conclude`.
  var isFact: Bool { get }

  /// Writes the response, as `finish`, for as long as this gateway holds the session.
  func conclude(at now: MonotonicTime, into response: inout Response)
}

extension HolderRequest {
  /// The session is checked after what was read of it: what was read until then is true.
  func finish(at now: MonotonicTime, into response: inout Response) {
    let (api, session, isFact) = (api, session, isFact)
    conclude(at: now, into: &response)
    guard !isFact, session.hasLeft else { return }
    response.reset()
    api.respond(with: API.holderUnavailable, into: &response)
  }
}

extension PendingRequest {
  /// The session whose holder alone can execute the request; nil if every gateway can. The state of a session is shown with what the gateway
  /// knows of its holder, and a poll reads the pushes that each gateway has.
  var heldSession: Session? {
    switch self {
    case .send(_, let session), .delivery(_, let session, _), .call(_, let session), .change(let session): session
    case .consumer(let request): request.target.session
    case .fromPeer, .movable, .poll, .putSession, .closeSession, .listSessions, .read, .forward, .misdirected,
      .preflight, .refused, .missing:
      nil
    }
  }

  /// Whether a response that was written at once is true whoever holds the session now. If not, the request can be executed at the next holder.
  func isFact(isRefused: Bool) -> Bool {
    switch self {
    // What ends a call is the fate of the connection that has it. No other gateway sends it.
    case .call: true
    // Accepted messages are stored. The receipt does not show states that were read too late.
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
