import Access
import ByteStreams
import Forwarding
import HTTPCodec
import HTTPServer
import Journal
import Metrics
import Reactor
import Sessions
import Upstream
import UpstreamSession

/// `PATCH /v1/session`: requests the desired state and responds with the current state. The change takes time. `GET
/// /v1/session` reports its progress. If the change must be stored for the next holder, the response waits until it is
/// stored.
enum ChangeSession: Endpoint {
  static var route: Route {
    Route(
      method: .patch, path: "/v1/session", sessionPath: "/v1/sessions/{name}", scope: .admin, body: .change,
      isCompressed: true, place: .holder(HolderRules(repetition: .harmless, isDocument: true)), kind: .session)
  }

  static func execute(
    _ input: Void, of request: ReceivedRequest, _ body: RequestBody?, _ turn: Turn, into response: inout Response
  ) throws(Problem) -> Outcome {
    let (api, session) = (turn.api, request.session)
    let ticket: JournalTicket? =
      switch try SessionChange.desiredState(in: body) {
      case .up: session.upstream.open()
      case .down: session.upstream.close()
      }
    if let ticket, session.upstream.outcome(of: ticket) != .stored {
      return .wait(
        HeldDesiredState(
          api, session, ticket, for: request.grant, toPeer: request.isFromPeer, deadline: turn.now + API.storeWait))
    }
    api.respond(withStateOf: session, for: request.grant, at: turn.now, toPeer: request.isFromPeer, into: &response)
    return .respond
  }
}

/// A PATCH of the desired state whose change is not stored yet. The change is already in effect at this gateway, but
/// the next holder would not know it.
private final class HeldDesiredState: HolderRequest {
  let api: API
  let session: Session
  private let ticket: JournalTicket
  private let grant: Grant?
  private let toPeer: Bool
  private let deadline: MonotonicTime

  init(
    _ api: API, _ session: Session, _ ticket: JournalTicket, for grant: Grant?, toPeer: Bool, deadline: MonotonicTime
  ) {
    self.api = api
    self.session = session
    self.ticket = ticket
    self.grant = grant
    self.toPeer = toPeer
    self.deadline = deadline
    session.upstream.beginWaitingForStore()
  }

  private var isStored: Bool { session.upstream.outcome(of: ticket) == .stored }

  var heldCount: Gauge? { nil }

  var afterLoss: AfterLoss { isStored ? .concludes : .moves }

  func proceed(_ cause: WaitCause, at now: MonotonicTime) -> WaitStep {
    let upstream = session.upstream
    return upstream.outcome(of: ticket) != .pending
      ? .ready : .wait(upstream.deliveryNotifier, until: deadline, endsAtDrain: false)
  }

  func conclude(at now: MonotonicTime, into response: inout Response) throws(Problem) {
    session.upstream.endWaitingForStore()
    guard isStored else { throw Self.notStored }
    api.respond(withStateOf: session, for: grant, at: now, toPeer: toPeer, into: &response)
  }

  func abandon() { session.upstream.endWaitingForStore() }

  private static var notStored: Problem {
    Problem(
      .storeFailed,
      "the change is in effect, and cannot be stored now, so that the next gateway that has the session may not know it: repeat the request after the time in Retry-After, which does no harm"
    )
  }
}

/// The body of a `PATCH /v1/session`, a JSON merge patch (RFC 7396).
enum SessionChange {
  /// Maximum size of the document, in bytes. A valid document has about 20.
  static let limit = 4_096

  static func desiredState(in body: RequestBody?) throws(Problem) -> DesiredState {
    let document = try RequestDocument(body, limit: limit, accepting: ["desired"])
    let desired = try document.parsed("desired", "\"up\" or \"down\"") { text -> DesiredState? in
      text.elementsEqual("up".utf8) ? .up : text.elementsEqual("down".utf8) ? .down : nil
    }
    guard let desired else { throw missing }
    return desired
  }

  private static var missing: Problem {
    Problem(
      .invalidDocument,
      "the body is not a valid change of the session: use {\"desired\":\"up\"} or {\"desired\":\"down\"}")
  }
}
