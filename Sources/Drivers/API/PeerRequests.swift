import Access
import ByteStreams
import Forwarding
import HTTPCodec
import HTTPServer
import Metrics
import Peers
import Reactor
import Sessions

/// Requests that another gateway has forwarded, because their sessions are local here.
extension API {
  /// Returns the client of a forwarded request, which the forwarding gateway has admitted. Throws 403 unless the sender
  /// is a gateway.
  func admitPeer(
    _ request: borrowing HTTPRequestHead, _ context: inout RequestContext?
  ) throws(Problem) -> Grant {
    guard let network = forwarder?.network, network.recognises(request.fields.first(.authorization)) else {
      forwarder?.network.metrics.refused.add()
      throw Problem(
        .accessNotConfigured, "this listener is for other gateways: use one of the listeners for clients",
        .challenge(.gateway))
    }
    guard ForwardedID.read(request) != nil,
      let value = request.fields.first(ForwardedClient.field), let client = ForwardedClient(value)
    else {
      throw Problem(
        .invalidParameter,
        "\(ForwardedClient.field) or \(ForwardedID.field) is not valid: the gateways must have versions that know each other's"
      )
    }
    let forwarded = RequestContext(nil, allowsCredentials: false, nil)
    forwarded.forwardedOrigin = client.origin
    // The forwarding gateway has counted the request. This gateway counts only its messages.
    forwarded.client = common.limiter.client(client.grant.principal, at: client.origin)
    context = forwarded
    return client.grant
  }

  /// Marks the request as forwarded by a peer, and sets the id by which its messages are accepted only once.
  func acceptFromPeer(
    _ pending: PendingRequest, _ route: Route, _ request: borrowing HTTPRequestHead
  ) -> PendingRequest {
    guard let session = route.forwardedSession(in: common.sessions) else { return pending }
    if case .send(var message, let session) = pending {
      message.acceptOnce(request)
      return .fromPeer(.send(message, to: session), of: session, movesOn: true)
    }
    var movesOn = route.repetition != .harmful
    // A receive that ends at this gateway takes back its leases, so it can move.
    if case .consumer(let target) = route, target.action == .receive { movesOn = true }
    return .fromPeer(pending, of: session, movesOn: movesOn)
  }

  /// Whether a request of a peer must be refused, because its session is not local. The request is not forwarded again,
  /// since the peer itself looks for the holder.
  func isMisdirected(_ route: Route) -> Bool {
    guard let session = route.forwardedSession(in: common.sessions) else { return false }
    return !session.isHere
  }

  /// Responds with 421, which no client sees. Without content, the response means that the request had no effect. With
  /// content, it means that messages may have been stored and sent. Even then, the next holder does not accept them a
  /// second time.
  func misdirect(leaving residue: Residue = .nothing, into response: inout Response) {
    forwarder?.network.metrics.misdirected.add()
    response.reset()
    response.begin(.misdirectedRequest, nil)
    if residue == .mayBeDone { response.content.text.append("the messages may be stored\n" as StaticString) }
  }
}

/// A held request of a peer. If this gateway loses the session while the request is held, the peer sends the request to
/// the next holder, provided that it was not executed or can be repeated.
final class HeldPeerRequest: WaitingRequest {
  private let request: any WaitingRequest
  private let session: Session
  private let api: API
  /// Whether the request itself writes the response. Otherwise it is abandoned, because the session has left.
  private var canFinish = false

  init(_ request: any WaitingRequest, _ session: Session, _ api: API) {
    self.request = request
    self.session = session
    self.api = api
    api.forwarder?.network.beginHolding()
  }

  deinit { api.forwarder?.network.endHolding() }

  var heldCount: Gauge? { request.heldCount }
  var effect: HeldEffect { request.effect }
  var residue: Residue { request.residue }

  func advance(_ cause: WaitCause, at now: MonotonicTime) -> WaitStep {
    let hasLeft = session.hasLeft
    let step = request.advance(hasLeft ? .news : cause, at: now)
    switch step {
    case .ready: canFinish = true
    case .wait: canFinish = cause == .end && !hasLeft
    }
    // When this gateway shuts its sessions down, the request continues at the next holder.
    guard !hasLeft, case .wait(let notifier, let deadline, _) = step else { return .ready }
    return .wait(notifier, until: deadline, endsAtDrain: false)
  }

  func finish(at now: MonotonicTime, into response: inout Response) {
    let residue = request.residue
    if canFinish {
      request.finish(at: now, into: &response)
      // If the session has left, its loss may be the reason why the request was refused, so the peer must try the next
      // holder.
      guard session.hasLeft, !response.refusal.isEmpty else { return }
    } else {
      request.abandon()
    }
    api.misdirect(leaving: residue, into: &response)
  }

  func abandon() { request.abandon() }
}
