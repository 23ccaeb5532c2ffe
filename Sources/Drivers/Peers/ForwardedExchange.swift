import ByteStreams
import Dialing
import Forwarding
import HTTPCodec
import Host
import Metrics
import Reactor
import Sessions

/// One forwarded request, from its first attempt to its outcome. It executes the steps of a `ForwardingMachine`, and is
/// used on one event loop only.
package final class ForwardedExchange: LoopTask {
  /// The outcome; nil until the exchange has ended with an outcome.
  package private(set) var outcome: ForwardedOutcome?
  /// Notified when the exchange has an outcome. Other requests use the same notifier for their outcomes.
  package let notifier: Notifier
  /// The time at which the exchange has an outcome at the latest.
  package let deadline: MonotonicTime
  private let forwarder: Forwarder
  private let placement: SessionPlacement
  private var request: ForwardedRequest?
  private var machine: ForwardingMachine<SocketAddress>
  private let event: LoopEvent
  private var isCancelled = false
  /// The connection that carries the request, and the gateway at its other end.
  private var attempt: (client: HTTPClient, peer: SocketAddress)?
  /// The number of the wait for a connection; nil if the request does not wait for one, or has got one.
  private var awaited: UInt64?
  private var farewell: Farewell?
  /// The gateway that has refused the last attempt because it has another secret. After Redis has lost all its data,
  /// gateways have different secrets for some seconds.
  private var stranger: SocketAddress?
  /// The gateway that the last attempt could not connect to.
  private var unreached: SocketAddress?

  init(
    _ request: ForwardedRequest, _ placement: SessionPlacement, _ forwarder: Forwarder, _ notifier: Notifier
  ) {
    let limits = forwarder.network.limits
    self.request = request
    self.placement = placement
    self.forwarder = forwarder
    self.notifier = notifier
    machine = ForwardingMachine(
      request.repetition, .init(patience: limits.patience, recognition: limits.recognition))
    event = LoopEvent(loop: forwarder.loop)
    deadline = forwarder.loop.now + limits.request
  }

  private var now: MonotonicTime { forwarder.loop.now }
  private var metrics: PeerMetrics { forwarder.network.metrics }

  /// The holder of the session; nil if there is none. If this gateway has become the holder, it sends the request to
  /// its own listener for peers, which handles forwarded requests.
  private var holder: SocketAddress? {
    switch placement.place {
    case .at(let address): address
    case .here: forwarder.network.address
    case .nowhere: nil
    }
  }

  // MARK: Events

  /// Ends the exchange without an outcome, because the client is gone or the deadline has passed. A request that is on
  /// its way to a peer is cancelled.
  package func cancel() {
    guard outcome == nil, !isCancelled else { return }
    isCancelled = true
    attempt?.client.cancel()
    event.signal()
  }

  /// The outcome that must be reported if the exchange is about to be cancelled and has no outcome yet.
  package var failure: ForwardedOutcome {
    outcome(machine.expired(isSent: attempt?.client.mayHaveArrived ?? false))
  }

  /// Whether a holder may have executed the request by now.
  package var mayHaveBeenExecuted: Bool {
    if case .response = outcome { return true }
    return machine.mayHaveBeenExecuted || attempt?.client.mayHaveArrived ?? false
  }

  func placeChanged() {
    guard let attempt else { return event.signal() }
    if holder == attempt.peer {
      endFarewell()
    } else if request?.repetition == .optional {
      attempt.client.cancel()
    } else if farewell == nil {
      let timer = Farewell { attempt.client.cancel() }
      timer.start(on: forwarder.loop, within: forwarder.network.limits.farewell)
      farewell = timer
    }
  }

  /// Called once per wait, when the exchange has got a connection.
  func granted() {
    awaited = nil
    event.signal()
  }

  private func endFarewell() { farewell.take()?.end(on: forwarder.loop) }

  // MARK: The task

  package func run() async {
    forwarder.watch(placement, for: self)
    while outcome == nil, !isCancelled {
      guard now < deadline else {
        outcome = outcome(machine.expired(isSent: false))
        break
      }
      guard !placement.isClosed else {
        outcome = machine.failure == .unavailable ? .closed : .unknown
        break
      }
      switch machine.next(holder: holder, now: now) {
      case .send(let peer): await send(to: peer)
      case .wait(let end): _ = await event.wait(until: min(end, deadline))
      case .end(let failure): outcome = outcome(failure)
      }
    }
    forwarder.endWatch(placement, for: self)
    if let request { forwarder.network.release(request.content.count, of: request.client) }
    request = nil
    metrics.waiting.add(-1)
    switch outcome {
    case .response: metrics.responses.add()
    case .unavailable, .unreachable, .closed:
      metrics.unavailable.add()
      if let stranger { forwarder.network.noteOtherSecret(of: stranger, at: now) }
    case .unknown: metrics.unknown.add()
    case nil: metrics.abandoned.add()
    }
    if outcome != nil { notifier.notify() }
  }

  private func outcome(_ failure: ForwardingMachine<SocketAddress>.Failure) -> ForwardedOutcome {
    switch failure {
    case .unavailable: unreached.map { .unreachable($0) } ?? .unavailable
    case .unknown: .unknown
    }
  }

  private func send(to peer: SocketAddress) async {
    guard let pool = forwarder.connections(with: peer), let request,
      let authorization = forwarder.network.authorization
    else {
      _ = machine.ended(.unreached, now: now)
      return
    }
    guard let client = await connection(of: pool, peer, by: request.client) else { return }
    guard machine.begin(at: now) else { return forwarder.release(client, of: pool, by: request.client) }
    let message = message(request, pool.host, authorization)
    attempt = (client, peer)
    metrics.attempts.add()
    metrics.connections.add(1)
    // `HTTPClient` may repeat the request at any time after the first attempt, and the machine does not know of this.
    // So each attempt has a time limit.
    let limit = min(deadline - now, forwarder.network.limits.attempt(request))
    let result = await client.send(
      message, within: limit, mayRepeat: request.repetition.isHarmless, for: request.client)
    metrics.connections.add(-1)
    attempt = nil
    endFarewell()
    forwarder.release(client, of: pool, by: request.client)
    guard !isCancelled else { return }
    end(with: result, of: peer, mayHaveArrived: client.mayHaveArrived)
  }

  private func end(with result: HTTPClient.Outcome, of peer: SocketAddress, mayHaveArrived: Bool) {
    stranger = nil
    switch result {
    case .timeout, .failed: unreached = mayHaveArrived ? nil : peer
    case .response, .invalid, .cancelled: unreached = nil
    }
    switch result {
    // The other gateway has another secret. Its response is not passed on, since the client must not see a problem
    // between gateways.
    case .response(let response) where response.challenge == "Drawbridge":
      stranger = peer
      _ = machine.ended(.unreached, now: now)
    // The other gateway is not the holder any more. Content in this response means that it had already accepted
    // messages when it lost the session, so the next holder may have them.
    case .response(let response)
    where response.status == ForwardingMachine<SocketAddress>.misdirected && !response.content.isEmpty:
      _ = machine.ended(.lost, now: now)
    case .response(let response) where HTTPStatus.final.contains(response.status):
      guard machine.ended(.response(status: response.status), now: now) else { return }
      outcome = .response(
        HTTPStatus(rawValue: UInt16(response.status)), fields: response.fields, content: ByteString(response.content))
    // The response is not valid as a final response. A repetition of the request would have the same result.
    case .response: outcome = outcome(machine.expired(isSent: true))
    case .invalid(let reason):
      forwarder.network.noteInvalid(reason, of: peer, at: now)
      outcome = outcome(machine.expired(isSent: true))
    case .timeout: _ = machine.ended(mayHaveArrived ? .expired : .unreached, now: now)
    case .failed, .cancelled: _ = machine.ended(mayHaveArrived ? .lost : .unreached, now: now)
    }
  }

  /// Waits for a free connection. Returns nil if no connection becomes free in time, if the request ends, or if it must
  /// now be sent to another peer.
  private func connection(
    of pool: PeerConnections, _ peer: SocketAddress, by user: UInt64
  ) async -> HTTPClient? {
    if let client = forwarder.take(from: pool, by: user) { return client }
    let end = min(deadline, machine.beginWaiting(at: now))
    awaited = forwarder.wait(self, for: pool, by: user)
    while awaited != nil, !isCancelled, holder == peer, now < end { _ = await event.wait(until: end) }
    if let wait = awaited.take() {
      pool.removeWait(wait, by: user)
      if now >= end { _ = machine.ended(.unreached, now: now) }
      return nil
    }
    guard !isCancelled, holder == peer else {
      forwarder.release(nil, of: pool, by: user)
      return nil
    }
    return forwarder.client(of: pool)
  }

  /// A wait for a holder is reported to the holder only if it was at least this long.
  private static var notedWait: TimeSpan { .milliseconds(100) }

  private func message(_ request: ForwardedRequest, _ host: String, _ authorization: String) -> HTTPClientRequest {
    var message = HTTPClientRequest(
      request.method, target: request.target, host: host, content: ByteString(request.content))
    message.add("Authorization", authorization)
    message.fieldLines = request.fieldLines
    if request.repetition == .recognised {
      let retention = forwarder.network.limits.retention.millisecondsRoundedUp
      message.fieldLines += Array("\(PeerNetwork.retentionField): \(retention)\r\n".utf8)
    }
    let waited = now - request.start
    if waited >= Self.notedWait {
      message.fieldLines += Array("\(HTTPFieldName.drawbridgeWaited.name): \(waited.nanoseconds / 1_000_000)\r\n".utf8)
    }
    return message
  }
}

extension HTTPStatus {
  /// The status codes of final responses.
  fileprivate static let final = 200...599
}

/// Cancels an attempt at a former holder when the time that this holder has for its response has passed (`farewell`).
private final class Farewell: TimerTarget {
  private let expired: () -> Void
  private var timer: LoopTimer?

  init(_ expired: @escaping () -> Void) { self.expired = expired }

  func start(on loop: LoopContext, within limit: TimeSpan) {
    timer = loop.schedule(at: loop.now + limit, self)
  }

  func end(on loop: LoopContext) {
    if let timer { loop.cancel(timer) }
    timer = nil
  }

  func timerFired(_ token: Int) {
    timer = nil
    expired()
  }
}
