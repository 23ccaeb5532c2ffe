import Access
import ByteStreams
import Forwarding
import HTTPCodec
import HTTPServer
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
    let submitted =
      switch try SessionChange.desiredState(in: body) {
      case .up: SubmittedChange(session.upstream.open())
      case .down: SubmittedChange(session.upstream.close())
      }
    let change = ChangedState(
      session: session, reader: SessionReader(request),
      storing: submitted.map {
        StoreWait(for: $0, in: session, from: turn.now, until: turn.now + API.storeWait, ifLost: .moves)
      })
    return try api.respond(to: change, as: HeldChangedState.self, at: turn.now, into: &response)
  }
}

/// A PATCH of the desired state. The change is in effect at this gateway, but the next holder knows it only if it is
/// stored.
private struct ChangedState: StoredChange {
  let session: Session
  let reader: SessionReader
  var storing: StoreWait?

  /// Without a store, there is no next holder.
  var afterLoss: AfterLoss { .moves }

  mutating func proceed(_ cause: WaitCause, _ api: API, at now: MonotonicTime) -> WaitStep { .ready }
  mutating func noteStored(_ api: API, at now: MonotonicTime) {}
  mutating func withdraw(_ change: SubmittedChange, at now: MonotonicTime) -> StoreWait.Withdrawal { .isDone }

  func write(_ api: API, at now: MonotonicTime, into response: inout Response) {
    api.respond(withStateOf: session, for: reader, at: now, into: &response)
  }

  func writeUnstored(_ api: API, at now: MonotonicTime, into response: inout Response) throws(Problem) {
    throw Problem(
      .storeFailed,
      "the change is in effect, and cannot be stored now, so that the next gateway that has the session may not know it: repeat the request after the time in Retry-After, which does no harm"
    )
  }

  func abandon(_ api: API, at now: MonotonicTime) {}
}

/// The waiting part of a `ChangedState`. Operators send such requests, so it may cost an allocation.
private final class HeldChangedState: StoredRequest {
  let api: API
  private(set) var change: ChangedState

  init(holding change: consuming ChangedState, _ api: API) {
    self.api = api
    self.change = change
  }

  var heldCount: Gauge? { nil }

  func update<Result>(_ body: (inout ChangedState) -> Result) -> Result { body(&change) }
  func remove() -> ChangedState { change }
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
