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

extension IncomingMessage {
  /// Called for each request. The id of a request that another gateway has forwarded, and may repeat, acts as its
  /// idempotency key, unless the client has sent a key.
  mutating func acceptOnce(_ request: ReceivedRequest, _ head: borrowing HTTPRequestHead) {
    if request.isFromPeer, idempotency == nil { idempotency = IdempotencyField(ofForwarded: head) }
  }
}

/// A held request of a peer. If this gateway loses the session while the request is held, the peer sends the request to
/// the next holder, provided that it was not executed or can be repeated.
final class HeldPeerRequest: WaitingRequest {
  private let request: any WaitingRequest
  private let session: Session
  private let api: API
  /// Whether the request itself writes the response. If not, it is abandoned, because the session is no longer local.
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
      // If the session is no longer local, its loss may be the reason why the request was refused, so the peer must try
      // the next holder.
      guard session.hasLeft, !response.refusal.isEmpty else { return }
    } else {
      request.abandon()
    }
    api.misdirect(leaving: residue, into: &response)
  }

  func abandon() { request.abandon() }
}
