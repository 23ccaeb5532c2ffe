import Access
import ByteStreams
import Forwarding
import HTTPCodec
import HTTPServer
import JSONCodec
import Journal
import Metrics
import Reactor
import Sessions
import Upstream
import UpstreamSession

/// `GET /v1/session`. If the holder cannot respond, this gateway responds with the part of the state that it knows.
enum ReadSession: ImmediateEndpoint {
  static var route: Route {
    Route(
      method: .get, path: "/v1/session", sessionPath: "/v1/sessions/{name}", scope: [], isCompressed: true,
      place: .holder(HolderRules(repetition: .optional, isExclusive: false, isDocument: true)), kind: .session)
  }

  static func respond(_ input: Void, to request: ReceivedRequest, _ turn: Turn, into response: inout Response) {
    turn.api.respond(
      withStateOf: request.session, for: SessionReader(request), at: turn.now, into: &response)
  }
}

extension API {
  /// Responds with the document of a session.
  func respond(
    withStateOf session: Session, for reader: SessionReader, at now: MonotonicTime, status: HTTPStatus = .ok,
    into response: inout Response
  ) {
    response.begin(status, "application/json")
    switch ShownSession(session, common, to: reader) {
    case .remote(let replica): replica.writeDocument(at: now, into: &response.content.text)
    case .local(let snapshot, let replica):
      snapshot.write(
        of: session, store: session.creation == nil ? common.store : StoreStatus(nil), replica: replica, now: now,
        showingRefusal: reader.grant.showsRefusals, into: &response.content.text)
    }
    response.content.text.append("\n" as StaticString)
  }
}

extension Grant? {
  /// Whether `last_failure` contains the first line of the response that refused the connection. That line may repeat
  /// secrets, so only operators see it.
  var showsRefusals: Bool { self?.scopes.contains(.admin) ?? false }
}
