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
  /// The loss of the session is checked after its state was read. If the session is still local, the state was true
  /// when it was read.
  func finish(at now: MonotonicTime, into response: inout Response) {
    let (api, session, isFact) = (api, session, isFact)
    conclude(at: now, into: &response)
    guard !isFact, session.hasLeft else { return }
    response.reset()
    api.respond(with: API.holderUnavailable, into: &response)
  }
}
