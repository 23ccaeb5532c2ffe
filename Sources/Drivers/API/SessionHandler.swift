import Access
import ByteStreams
import HTTPCodec
import HTTPServer
import JSONCodec
import Journal
import Metrics
import Reactor
import Sessions
import Upstream
import UpstreamSession

extension API {
  /// `GET /v1/session`.
  ///
  /// - Parameter toPeer: whether the response is for another gateway, which adds its own part.
  func respond(
    withStateOf session: Session, for grant: Grant?, at now: MonotonicTime, status: HTTPStatus = .ok,
    toPeer: Bool = false, into response: inout Response
  ) {
    response.begin(status, "application/json")
    let replica = toPeer ? nil : SessionReplica(of: session, common)
    // The snapshot is read before `isHere`: if the session is still local after that, the snapshot is its state.
    let snapshot = session.upstream.snapshot()
    if let replica, !session.isHere {
      replica.writeDocument(at: now, into: &response.content.text)
    } else {
      snapshot.write(
        of: session, store: session.creation == nil ? common.store : StoreStatus(nil), replica: replica, now: now,
        showingRefusal: grant.showsRefusals, into: &response.content.text)
    }
    response.content.text.append("\n" as StaticString)
  }

  /// `PATCH /v1/session`: requests the desired state and responds with the current state. The change takes time. `GET
  /// /v1/session` reports its progress. Returns a wait if the change must be stored for the next holder before the
  /// response is sent.
  func change(
    _ session: Session, as body: RequestBody?, for grant: Grant?, toPeer: Bool, at now: MonotonicTime,
    into response: inout Response
  ) throws(Problem) -> Outcome? {
    let ticket: JournalTicket?
    switch try SessionChange.desiredState(in: body) {
    case .up: ticket = session.upstream.open()
    case .down: ticket = session.upstream.close()
    }
    if let ticket, session.upstream.outcome(of: ticket) != .stored {
      return .wait(HeldDesiredState(self, session, ticket, for: grant, toPeer: toPeer, deadline: now + Self.storeWait))
    }
    respond(withStateOf: session, for: grant, at: now, toPeer: toPeer, into: &response)
    return nil
  }

  /// `GET /v1/sessions`: the sessions that the grant allows. The list has the configured sessions in the order of the
  /// configuration, followed by the sessions that clients have created, sorted by name.
  func listSessions(_ page: SessionPage, for grant: Grant?, at now: MonotonicTime, into response: inout Response) {
    response.begin(.ok, "application/json")
    response.content.text.append("{\"sessions\":[" as StaticString)
    // The position is searched only among sessions that exist for the client, since the list must not reveal whether
    // another name is configured.
    var configured = common.sessions.all.filter { grant?.allows($0) ?? false }[...]
    var isAfterCreated = false
    if let start = page.start {
      // Any other name belongs to a created session, and all created sessions follow the configured sessions.
      let index = configured.firstIndex { $0.name == start }
      isAfterCreated = index == nil
      configured = index.map { configured[($0 + 1)...] } ?? []
    }
    var sessions = Array(configured.lazy.filter(page.contains).prefix(page.limit + 1))
    sessions += common.sessions.created.list(
      after: isAfterCreated ? page.start : nil, limit: page.limit + 1 - sessions.count
    ) { page.contains($0) && grant?.allows($0) ?? false }
    for (index, session) in sessions.prefix(page.limit).enumerated() {
      if index > 0 { response.content.text.append("," as StaticString) }
      let replica = SessionReplica(of: session, common)
      let snapshot = session.upstream.snapshot()
      if let replica, !session.isHere {
        replica.writeSummary(at: now, into: &response.content.text)
      } else {
        snapshot.writeSummary(
          of: session, replica: replica, now: now, showingRefusal: grant.showsRefusals, into: &response.content.text)
      }
    }
    response.content.text.append(
      sessions.count > page.limit ? "],\"more\":true,\"scopes\":[" as StaticString : "],\"more\":false,\"scopes\":[")
    for (index, scope) in (grant?.scopes ?? []).text.split(separator: " ").enumerated() {
      if index > 0 { response.content.text.append(",") }
      response.content.text.append(jsonString: String(scope))
    }
    response.content.text.append("]}\n" as StaticString)
  }
}

extension Grant? {
  /// Whether `last_failure` contains the first line of the response that refused the connection. That line may repeat
  /// secrets, so only operators see it.
  var showsRefusals: Bool { self?.scopes.contains(.admin) ?? false }
}

/// A PATCH of the desired state whose change is not stored yet. The change is already in effect at this gateway, but
/// the next holder would not know it.
private final class HeldDesiredState: WaitingRequest {
  private let api: API
  private let session: Session
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

  func advance(_ cause: WaitCause, at now: MonotonicTime) -> WaitStep {
    let upstream = session.upstream
    return !session.isHere || upstream.outcome(of: ticket) != .pending
      ? .ready : .wait(upstream.deliveryNotifier, until: deadline, endsAtDrain: false)
  }

  func finish(at now: MonotonicTime, into response: inout Response) {
    session.upstream.endWaitingForStore()
    if isStored {
      return api.respond(withStateOf: session, for: grant, at: now, toPeer: toPeer, into: &response)
    }
    api.respond(with: session.isHere ? Self.notStored : API.holderUnavailable, into: &response)
  }

  func abandon() { session.upstream.endWaitingForStore() }

  private static var notStored: Problem {
    Problem(
      .storeFailed,
      "the change is in effect, and cannot be stored now, so that the next gateway that has the session may not know it: repeat the request after the time in Retry-After, which does no harm"
    )
  }
}
