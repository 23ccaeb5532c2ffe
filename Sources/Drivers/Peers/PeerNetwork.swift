import ByteStreams
import Dialing
import Digests
import Forwarding
import Host
import Logging
import Metrics
import Threading
import Totals

/// This gateway's view of the other gateways: the address at which the other gateways reach this gateway, the secret by
/// which gateways recognise each other, and the limits of forwarded requests. All event loops use it.
package final class PeerNetwork: Sendable {
  package struct Limits: Sendable {
    /// How long a request waits for a holder of its session. This is one second longer than the replacement of a lost
    /// holder takes.
    package var patience = TimeSpan.seconds(6)
    /// Maximum time of a request in total. It is longer than any request waits at its holder.
    package var request = TimeSpan.minutes(10)
    /// Maximum time to connect to a peer. It is short, since gateways are near each other.
    package var connect = TimeSpan.seconds(2)
    /// How long the kernel of a peer may take to acknowledge sent data. If it takes longer, the peer is treated as
    /// unreachable, even if Redis can reach it.
    package var acknowledgement = TimeSpan.seconds(10)
    /// How much longer an attempt may take than the request may take at its holder. If the attempt takes longer, the
    /// holder hangs or its response was lost.
    package var attemptMargin = TimeSpan.seconds(5)
    /// How long a former holder may take to respond after it has ceased to be the holder. It may have executed the
    /// request, so its response is worth this wait. The wait is limited because the former holder may hang.
    package var farewell = TimeSpan.seconds(1)
    /// Maximum connections of one event loop to all peers. A request that waits at its holder occupies a connection.
    /// When all connections are occupied, further requests wait for a free connection.
    package var connections = 1_024
    /// Maximum connections of one event loop to one peer. A peer that hangs leaves the remaining connections for the
    /// other peers.
    var connectionsPerPeer: Int { max(1, connections * 3 / 4) }
    /// Maximum size of the contents of one client's forwarded requests without a response, in bytes (`Reserve`). The
    /// contents are kept so that they can be sent again. Above this size, further requests with content are refused.
    package var requestBytes = 256 << 20
    /// Maximum size of the contents of responses that one client is receiving, in bytes (`Reserve`), and so of each
    /// response. Above this size, the rest of a response of more than 64 KiB is not received. The outcome of its
    /// request is then `unknown`, or `unavailable` if repeating the request is harmless. The value must not be smaller
    /// than the largest response (`GatewaySettings.peerResponseBytes`).
    package var responseBytes = 256 << 20
    /// How long a request is repeated under the same id. This is longer than a take-over and `patience` together.
    package var recognition = TimeSpan.seconds(15)
    /// How long a holder remembers the id of a request. A repetition that begins just before the end of `recognition`
    /// may be under way for as long as an attempt lasts, which is four fifths of `recognition`. The remaining fifth
    /// allows for clocks of different speeds.
    package var retention: TimeSpan { recognition + recognition }
    /// Maximum time for which a holder remembers an id, whatever another gateway requests. The longest `store.lease`
    /// requires 130 s.
    package static var longestRetention: TimeSpan { .minutes(5) }

    package init() {}

    /// How long an attempt may last. If a request is executed only once because of its id, and waits only for the
    /// store, the attempt must end early enough that the holder still recognises a repetition.
    func attempt(_ request: ForwardedRequest) -> TimeSpan {
      let limit = request.time + attemptMargin
      guard request.repetition == .recognised, !request.waits else { return limit }
      return min(limit, recognition - recognition / 5)
    }

    /// Computes the limits that depend on the lease.
    package init(lease: TimeSpan) {
      patience = lease + .seconds(1)
      // A new holder has the session after `lease` at the latest, and a request waits for the holder for `patience`.
      // The additional time is for a lost reply and a slow take-over.
      recognition = lease + patience + .seconds(4)
    }
  }

  /// The field with the time for which the holder must remember the id of the request, in milliseconds. The time
  /// depends on `store.lease` of the forwarding gateway. Gateways may have different values of `store.lease`, for
  /// example during a rollout. Versions that do not know this field use the time of their own `store.lease`.
  package static let retentionField: StaticString = "drawbridge-retention"
  /// The scheme of the Authorization field that carries the secret.
  package static let secretScheme: StaticString = "Drawbridge "
  /// Length of a secret in bytes: enough for 256 random bits as text, and no more than a field should have.
  package static var secretLengths: ClosedRange<Int> { 32...256 }

  package let limits: Limits
  package let metrics: PeerMetrics
  let logger: Logger?
  /// The total size of the contents of forwarded requests.
  private let contents: Locked<ReservedTotal>
  /// The total size of the contents of responses.
  let received: ReceivedContents
  private let state: Locked<State>
  private let held = Locked<(count: Int, onEnd: (@Sendable () -> Void)?)>((0, nil))

  private struct State: Sendable {
    var address: SocketAddress?
    var secret: (text: String, digest: SecretDigest)?
    /// The time from which a warning of each kind may be logged again.
    var nextWarnings: [Warning: MonotonicTime] = [:]
  }

  private enum Warning {
    case otherSecret
    case invalidResponse
  }

  /// Minimum interval between two log lines of one kind.
  private static var warningInterval: TimeSpan { .seconds(60) }

  /// - Parameter address: the address at which the other gateways reach this gateway.
  package init(
    address: SocketAddress? = nil, limits: Limits = Limits(), logger: Logger? = nil, _ registry: MetricsRegistry
  ) {
    self.limits = limits
    self.logger = logger
    metrics = PeerMetrics(registry)
    contents = Locked(ReservedTotal(limit: limits.requestBytes))
    received = ReceivedContents(limit: limits.responseBytes, shownBy: metrics.responseBytes)
    state = Locked(State(address: address, secret: nil))
  }

  /// The address at which the other gateways reach this gateway.
  package var address: SocketAddress? { state.withLock { $0.address } }

  /// Sets the secret. As long as there is no secret, every request of a peer is refused and no request can be
  /// forwarded.
  ///
  /// - Parameter secret: visible ASCII without spaces, with one of `secretLengths`.
  package func use(secret: String) {
    precondition(
      Self.secretLengths.contains(secret.utf8.count) && secret.utf8.allSatisfy { $0 > 0x20 && $0 < 0x7F },
      "the secret of the gateways is not valid")
    let digest = SecretDigest(of: Array(secret.utf8).span)
    state.withLock { $0.secret = (secret, digest) }
  }

  /// Returns whether content of `bytes` bytes may be kept until `release`.
  func keep(_ bytes: Int, of client: UInt64) -> Bool {
    guard bytes > 0 else { return true }
    let isKept = contents.withLock { contents in
      guard contents.admits(bytes, by: client) else { return false }
      contents.add(bytes, by: client)
      return true
    }
    if isKept { metrics.bytes.add(bytes) }
    return isKept
  }

  func release(_ bytes: Int, of client: UInt64) {
    guard bytes > 0 else { return }
    contents.withLock { $0.remove(bytes, by: client) }
    metrics.bytes.add(-bytes)
  }

  /// Counts a request of another gateway that waits at this gateway, until `endHolding`. If the session moves away from
  /// this gateway, the other gateway sends the request to the next holder.
  package func beginHolding() { held.withLock { $0.count += 1 } }

  package func endHolding() {
    let onEnd = held.withLock { held in
      held.count -= 1
      return held.count == 0 ? held.onEnd : nil
    }
    onEnd?()
  }

  package var holdsRequests: Bool { held.withLock { $0.count > 0 } }

  /// - Parameter onEnd: called when `holdsRequests` becomes false, on any thread.
  package func whenHoldingEnds(_ onEnd: @escaping @Sendable () -> Void) { held.withLock { $0.onEnd = onEnd } }

  /// The value of Authorization for forwarded requests; nil while there is no secret.
  var authorization: String? { state.withLock { $0.secret.map { "\(Self.secretScheme)\($0.text)" } } }

  /// Logs that a request could not be forwarded because the gateway at `peer` has another secret.
  func noteOtherSecret(of peer: SocketAddress, at now: MonotonicTime) {
    guard isDue(.otherSecret, at: now) else { return }
    logger?.warning(
      "another gateway refuses requests of this gateway, since it has another secret: let both use the same Redis",
      [.text("address", peer.description)])
  }

  /// Logs that a response of the gateway at `peer` violates HTTP or a limit.
  func noteInvalid(_ reason: String, of peer: SocketAddress, at now: MonotonicTime) {
    guard isDue(.invalidResponse, at: now) else { return }
    logger?.warning(
      "a response of another gateway could not be used", [.text("address", peer.description), .text("reason", reason)])
  }

  private func isDue(_ warning: Warning, at now: MonotonicTime) -> Bool {
    state.withLock { state in
      guard now >= state.nextWarnings[warning] ?? .zero else { return false }
      state.nextWarnings[warning] = now + Self.warningInterval
      return true
    }
  }

  /// Whether this value of Authorization has the secret of the gateways. Takes the same time for all wrong secrets of
  /// one length.
  package func recognises(_ authorization: Span<UInt8>?) -> Bool {
    guard let authorization, authorization.starts(with: Self.secretScheme) else { return false }
    let start = Self.secretScheme.utf8CodeUnitCount
    let digest = SecretDigest(of: authorization.extracting(start..<authorization.count))
    return state.withLock { $0.secret?.digest.matches(digest) ?? false }
  }
}

/// Metrics of the requests between gateways.
package struct PeerMetrics: Sendable {
  /// Requests without a valid secret to the listener for peers.
  package let refused: Counter
  /// Requests of peers for a session that is not local.
  package let misdirected: Counter
  /// Forwarded requests that have got no response yet.
  package let waiting: Gauge
  /// The total size of the contents of these requests, in bytes.
  package let bytes: Gauge
  /// The total size of the contents of responses that are being received, in bytes.
  package let responseBytes: Gauge
  let responses: Counter
  let unavailable: Counter
  let unknown: Counter
  let abandoned: Counter
  let attempts: Counter
  let connections: Gauge

  init(_ registry: MetricsRegistry) {
    func outcome(_ name: String) -> Counter {
      registry.counter(
        "drawbridge_forwarded_requests_total", "Requests forwarded to other gateways, by their outcome.",
        [("outcome", name)])
    }
    responses = outcome("response")
    unavailable = outcome("unavailable")
    unknown = outcome("unknown")
    abandoned = outcome("abandoned")
    attempts = registry.counter(
      "drawbridge_forwarded_attempts_total", "Attempts to forward a request to another gateway.")
    waiting = registry.gauge(
      "drawbridge_forwarded_requests", "Requests forwarded to other gateways, without a response so far.")
    bytes = registry.gauge(
      "drawbridge_forwarded_bytes", "Contents of forwarded requests without a response so far, in bytes.")
    responseBytes = registry.gauge(
      "drawbridge_forwarded_response_bytes",
      "Contents of responses that are being received from other gateways, in bytes.")
    connections = registry.gauge(
      "drawbridge_peer_connections", "Connections that carry a forwarded request to another gateway.")
    refused = registry.counter(
      "drawbridge_peer_requests_refused_total", "Requests without a valid secret to the listener for other gateways.")
    misdirected = registry.counter(
      "drawbridge_peer_requests_misdirected_total",
      "Requests of other gateways for a session whose holder is not this gateway.")
  }
}
