import ByteStreams
import Sessions

/// A request whose head has been read, and whose content may not have arrived yet.
enum PendingRequest {
  case send(IncomingMessage, to: Session)
  case poll(PollParameters, of: Session)
  case delivery(DeliveryTerms.Issued, of: Session, wait: TimeSpan)
  case call(IncomingCall, of: Session)
  case change(Session)
  case putSession(String)
  case closeSession(Session, code: UInt16)
  case listSessions(SessionPage)
  indirect case consumer(PendingConsumerRequest)
  /// A request whose response depends on its path only.
  indirect case read(Route, Representation)
  /// A request that another gateway executes.
  indirect case forward(RequestToForward)
  /// A request that may wait at this gateway, and that continues at the next holder if this gateway loses the session
  /// while it waits.
  indirect case movable(PendingRequest, RequestToForward)
  /// A request that another gateway has forwarded. `movesOn`: whether the request may move to the next holder while it
  /// waits here.
  indirect case fromPeer(PendingRequest, of: Session, movesOn: Bool)
  /// A request of another gateway for a session that is not local.
  case misdirected
  case preflight(CrossOrigin.Origin, allowsCredentials: Bool)
  indirect case refused(Problem)
  /// A request for a session that this gateway does not have, with the problem if the session does not exist.
  indirect case missing(String, Problem)

  /// The kind of request in the metrics of response times.
  var kind: LoopLatencies.Request {
    switch self {
    case .send: .send
    case .poll: .poll
    case .delivery: .delivery
    case .consumer: .consumer
    case .change, .putSession, .closeSession, .listSessions, .read(.session, _): .session
    case .read(.live, _), .read(.ready, _), .read(.started, _), .read(.metrics, _), .read(.history, _),
      .read(.status, _):
      .management
    // A call gets its response at once only if it was refused.
    case .call, .read, .forward, .misdirected, .preflight, .refused, .missing: .other
    case .fromPeer(let request, _, _), .movable(let request, _): request.kind
    }
  }

  /// Whether the response may have to wait, or is a stream.
  var mayWait: Bool {
    switch self {
    case .send(let message, _): message.parameters.until != .queued && message.parameters.wait > .zero
    case .poll(let parameters, _): parameters.wait > .zero
    case .delivery(_, _, let wait): wait > .zero
    case .call(let call, _): call.wait > .zero
    case .consumer(let request): request.parameters.map { $0.wait > .zero } ?? false
    case .forward(let request), .movable(_, let request): request.mayWait
    // The forwarding gateway counts the request.
    case .fromPeer: false
    case .change, .putSession, .closeSession, .listSessions, .read, .misdirected, .preflight, .refused, .missing: false
    }
  }
}
