import ByteStreams
import HTTPServer
import Reactor
import Sessions

/// A request that waits at the holder of its session. The stage of the cluster observes the loss of the session, so the
/// request itself does not.
protocol HolderRequest: WaitingRequest {
  var api: API { get }
  var session: Session { get }
  /// What becomes of the request if this gateway loses the session now.
  var afterLoss: AfterLoss { get }

  /// Acts and decides, like `advance`.
  func proceed(_ cause: WaitCause, at now: MonotonicTime) -> WaitStep

  /// Writes the response, like `finish`. Throws only if the request may be executed again. Called instead of `abandon`,
  /// once. If the session is lost or closed, `proceed` may not have been called since then.
  func conclude(at now: MonotonicTime, into response: inout Response) throws(Problem)
}

/// What becomes of a request that waits while this gateway loses the session.
enum AfterLoss {
  /// The request ends, and can be executed at the next holder. The response would not be true there.
  case moves
  /// The request ends, and its response is also true at the next holder.
  case concludes
  /// The request continues to wait, since its outcome is determined here.
  case continues
}

extension HolderRequest {
  func advance(_ cause: WaitCause, at now: MonotonicTime) -> WaitStep {
    let session = session
    // A request must not act on the state of a lost session, and may have read an outdated state if the session is lost
    // now. It also ends if a shared session is closed: nothing changes its state any more.
    if !session.isHere, afterLoss != .continues { return .ready }
    let step = proceed(cause, at: now)
    return !session.isHere && afterLoss != .continues ? .ready : step
  }

  func finish(at now: MonotonicTime, into response: inout Response) {
    let (api, session, moves) = (api, session, afterLoss == .moves)
    if moves, session.hasLeft {
      abandon()
    } else {
      do throws(Problem) {
        try conclude(at: now, into: &response)
        // The session may have been lost while the state was read.
        guard moves, session.hasLeft else { return }
        response.reset()
      } catch {
        guard session.hasLeft else { return api.respond(with: session.cause(of: error), into: &response) }
      }
    }
    api.respond(with: API.holderUnavailable, into: &response)
  }
}
