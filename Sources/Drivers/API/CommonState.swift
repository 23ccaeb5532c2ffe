import ByteStreams
import HTTPServer
import Host
import Idempotency
import Journal
import Metrics
import Peers
import Sessions
import Synchronization
import Threading
import Totals
import Upstream

/// The state that the `API` objects of all event loops use. Thread-safe.
package final class CommonState: Sendable {
  let settings: APISettings
  /// The settings of the server. The API applies the limit for bodies, and names limits and timeouts in the texts of
  /// problems.
  let http: HTTPServerSettings
  let storeSettings: StoreSettings
  let access: AccessState
  /// The rules for requests that browsers make for web pages of other origins.
  let browsers: BrowserAccess
  let limiter: RateLimiter
  let sessions: SessionDirectory
  let lifecycle: Lifecycle
  let reload: ReloadControl
  /// Reads the state of the store; nil if sessions are kept in memory only.
  private let storeState: (@Sendable () -> StoreState)?
  /// The identity of this gateway; nil unless other gateways share the sessions.
  let gateway: GatewayIdentity?
  let registry: MetricsRegistry
  let metrics: APIMetrics
  /// The maximum number of connections to the management listeners: `http.management_connections`, or fewer if the
  /// limit on open files is low.
  let managementConnections: Int
  /// The number of open client connections, for the status page.
  let openConnections: Gauge
  /// The version of Drawbridge.
  let version: String
  /// When the process started.
  let start = ProcessInformation.monotonicTime()
  /// A random number of this process. The status page detects a restart when the number changes.
  let instance = UInt32.random(in: 0...UInt32.max)
  /// Converts times for responses.
  let clockOffset = ClockOffset()
  /// The idempotency keys of all sessions. The lock is held for about two dictionary look-ups per request with a key.
  let idempotency: Locked<IdempotencyTable>
  /// The ids of forwarded requests whose messages were accepted. They are kept apart from the keys of clients, since
  /// `http.idempotency_keys` promises how many keys of clients are remembered.
  let forwarded: Locked<IdempotencyTable>
  /// The figures of the last ten minutes, for the plots of the status page.
  let history = Locked(GatewayHistory())
  let unstoredKeys = Locked(UnstoredKeys())
  /// Whether idempotency keys are stored, together with the messages of stored sessions.
  let storesKeys: Bool

  /// Maximum number of remembered ids of forwarded requests. This number of ids needs about 100 MiB. With the default
  /// lease, ids are remembered for 30 s, so this allows 17,000 new ids a second.
  static var forwardedIDs: Int { 1 << 19 }

  var store: StoreStatus { StoreStatus(storeState?()) }

  /// The response to a request for a session whose holder is unknown because the store does not work; nil if the store
  /// works.
  var storeProblem: Problem? { store.problem(showingReason: access.isOpen) }

  /// - Parameter lease: the setting `store.lease`.
  package init(
    _ settings: APISettings, http: HTTPServerSettings, store: StoreSettings, lease: TimeSpan, access: AccessState,
    sessions: SessionDirectory, lifecycle: Lifecycle,
    storeState: (@Sendable () -> StoreState)? = nil, registry: MetricsRegistry, managementConnections: Int,
    openConnections: Gauge,
    version: String, gateway: GatewayIdentity? = nil, reload: ReloadControl = ReloadControl(),
    forwardedIDs: Int = CommonState.forwardedIDs
  ) {
    self.settings = settings
    self.http = http
    storeSettings = store
    self.access = access
    browsers = BrowserAccess(settings)
    limiter = RateLimiter(settings.limits, registry)
    self.sessions = sessions
    self.lifecycle = lifecycle
    self.storeState = storeState
    self.gateway = gateway
    self.reload = reload
    self.registry = registry
    self.managementConnections = managementConnections
    self.openConnections = openConnections
    self.version = version
    metrics = APIMetrics(registry)
    // Without authentication, clients are distinguished by address, and many clients may have one address. So one
    // address may use all keys. The reserve protects clients with other addresses.
    let keys = settings.idempotencyKeys
    let share = access.isOpen ? keys : max(1, keys / 4)
    storesKeys = store.engine != .memory
    idempotency = Locked(IdempotencyTable(IdempotencyTable.Limits(keys: keys, keysPerClient: share)))
    // Clients do not choose these ids, so no client is limited to a share of the table. The setting `limits` restricts
    // clients that send too much.
    forwarded = Locked(
      IdempotencyTable(
        IdempotencyTable.Limits(
          keys: Reserve(maximum: forwardedIDs).limit, keysPerClient: forwardedIDs,
          retention: PeerNetwork.Limits(lease: lease).retention)))
    if storesKeys { restoreKeys() }
    registry.gauge("drawbridge_calls", "Calls that wait for their replies.") {
      Double(sessions.callCount)
    }
    registry.gauge("drawbridge_idempotency_keys", "Idempotency keys that are remembered.") { [self] in
      Double(countIdempotencyKeys())
    }
  }

  /// Removes expired keys before it counts: while no request has a key, no other function removes them. To keep the
  /// call short, it removes a limited number of keys. The next call removes the rest.
  private func countIdempotencyKeys() -> Int {
    let now = ProcessInformation.monotonicTime()
    var rounds = 64
    while rounds > 0, idempotency.withLock({ $0.expire(now: now) }) { rounds -= 1 }
    _ = forwarded.withLock { $0.expire(now: now) }
    return idempotency.withLock { $0.count }
  }
}

/// The phase of the process, for the probes. Can be used from any thread.
package final class Lifecycle: Sendable {
  package enum Phase: UInt8, Sendable {
    case starting, serving, draining

    var name: StaticString {
      switch self {
      case .starting: "starting"
      case .serving: "serving"
      case .draining: "draining"
      }
    }
  }

  private let value = Atomic<UInt8>(0)

  package init() {}

  package var phase: Phase { Phase(rawValue: value.load(ordering: .acquiring)) ?? .starting }

  package func enter(_ phase: Phase) { value.store(phase.rawValue, ordering: .releasing) }
}

/// Counts valid messages and calls that were refused, by problem.
struct MessageRefusals: Sendable {
  private static let reasons: [Problem.Kind] = [.queueFull, .storeFailed, .upstreamDown, .sessionClosed, .tooManyCalls]

  private let counters: [Problem.Kind: Counter]

  init(_ registry: MetricsRegistry) {
    let counters = Self.reasons.map { reason in
      let counter = registry.counter(
        "drawbridge_messages_refused_total", "Messages refused with 503 or 410.",
        [(name: "reason", value: reason.row.name.description)])
      return (reason, counter)
    }
    self.counters = Dictionary(uniqueKeysWithValues: counters)
  }

  func add(_ reason: Problem.Kind, _ count: Int = 1) { counters[reason]?.add(count) }

  var total: UInt64 { counters.values.reduce(0) { $0 + $1.total } }
}

/// Metrics of the API.
struct APIMetrics: Sendable {
  let acceptedMessages: Counter
  let refusedMessages: MessageRefusals
  let heldPolls: Gauge
  let openStreams: Gauge
  let heldReceives: Gauge
  let pollResponses: Counter
  let deliveredMessages: Counter
  let calls: CallMetrics
  let latencies: LatencyMetrics

  init(_ registry: MetricsRegistry) {
    acceptedMessages = registry.counter(
      "drawbridge_messages_accepted_total", "Messages of clients accepted for the upstream.")
    refusedMessages = MessageRefusals(registry)
    heldPolls = registry.gauge("drawbridge_polls_held", "Polls waiting for a push.")
    openStreams = registry.gauge("drawbridge_streams_open", "Event streams of clients.")
    heldReceives = registry.gauge("drawbridge_receives_held", "Receives of consumers waiting for a push.")
    pollResponses = registry.counter("drawbridge_polls_answered_total", "Responses to polls.")
    deliveredMessages = registry.counter(
      "drawbridge_messages_delivered_total", "Messages delivered in responses to polls, and on streams.")
    calls = CallMetrics(registry)
    latencies = LatencyMetrics(registry)
  }
}
