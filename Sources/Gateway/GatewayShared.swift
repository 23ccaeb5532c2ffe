import ByteStreams
import Configuration
import HTTPCodec
import Logging
import Metrics
import Sessions
import Synchronization
import Threading

/// What every loop of the gateway shares: settings, the session, its pushes, and the counters.
final class GatewayShared: Sendable {
  typealias HTTPSettings = GatewaySettings.HTTP

  let settings: GatewaySettings
  let httpLimits: HTTPLimits
  let access: BrowserAccess
  let logger: Logger
  let metrics: MetricsRegistry
  let session: Session

  let problemLog = Locked(ProblemLog())
  private let lifecycle = Atomic<UInt8>(0)
  /// Who is connected, by the role of the listener: each has its own count, so that probes find a place when clients have
  /// taken all of theirs.
  private let census: Locked<[HTTPConnection.Role: ConnectionCensus]>

  /// Where the process is in its life, for the probes.
  enum Lifecycle: UInt8 { case starting, serving, draining }

  let openConnections: Gauge
  let acceptedConnections: Counter
  let refusedConnections: Counter
  let malformedRequests: Counter
  let slowRequests: Counter
  let slowReaders: Counter
  let pendingBodyBytes: Gauge
  let unsentBytes: Gauge
  let unsentResponses: UnsentResponses
  let acceptedMessages: Counter
  let refusedMessages: Counter
  let heldPolls: Gauge
  let answeredPolls: Counter
  let deliveredMessages: Counter

  init(
    _ plan: GatewayPlan, descriptors: DescriptorBudget, logger: Logger, metrics: MetricsRegistry, session: Session
  ) {
    let settings = plan.settings
    access = plan.access
    self.settings = settings
    self.logger = logger
    self.metrics = metrics
    self.session = session
    httpLimits = settings.http.limits
    census = Locked([
      .client: ConnectionCensus(
        limit: descriptors.clients, limitPerOrigin: settings.http.connectionsPerAddress),
      .management: ConnectionCensus(limit: descriptors.management, limitPerOrigin: descriptors.management),
    ])
    openConnections = metrics.gauge("drawbridge_http_connections", "Client connections open.")
    acceptedConnections = metrics.counter("drawbridge_http_connections_accepted_total", "Client connections accepted.")
    refusedConnections = metrics.counter(
      "drawbridge_http_connections_refused_total", "Client connections dropped because there were too many.")
    malformedRequests = metrics.counter(
      "drawbridge_http_requests_malformed_total", "Requests that broke HTTP's rules or a limit.")
    slowRequests = metrics.counter("drawbridge_http_requests_slow_total", "Requests that did not arrive in time.")
    slowReaders = metrics.counter(
      "drawbridge_http_readers_slow_total", "Clients that were let go because they did not take their answers.")
    pendingBodyBytes = metrics.gauge("drawbridge_http_body_bytes", "Memory that partially received bodies hold.")
    unsentBytes = metrics.gauge("drawbridge_http_unsent_bytes", "Memory that unsent responses hold.")
    unsentResponses = UnsentResponses(limit: settings.http.unsentBytes, unsent: unsentBytes, shed: slowReaders)
    acceptedMessages = metrics.counter("drawbridge_messages_accepted_total", "Messages taken for the upstream.")
    refusedMessages = metrics.counter("drawbridge_messages_refused_total", "Messages refused with 503 or 410.")
    heldPolls = metrics.gauge("drawbridge_polls_held", "Polls that wait for a message.")
    answeredPolls = metrics.counter("drawbridge_polls_answered_total", "Polls answered.")
    deliveredMessages = metrics.counter("drawbridge_messages_delivered_total", "Messages in answers to polls.")
  }

  var phase: Lifecycle { Lifecycle(rawValue: lifecycle.load(ordering: .acquiring)) ?? .starting }

  /// Counts a connection from `origin`, if there is room for it.
  func admit(_ origin: ClientOrigin, to role: HTTPConnection.Role) -> ConnectionCensus.Verdict {
    census.withLock { $0[role]?.admit(origin) ?? .tooMany }
  }

  /// A connection that was admitted has ended.
  func leave(_ origin: ClientOrigin, from role: HTTPConnection.Role) {
    census.withLock { $0[role]?.leave(origin) }
  }

  func enter(_ phase: Lifecycle) { lifecycle.store(phase.rawValue, ordering: .releasing) }
}

extension GatewaySettings.HTTP {
  /// The limits that the codec enforces.
  var limits: HTTPLimits {
    var limits = HTTPLimits()
    limits.requestLineBytes = requestLineBytes
    limits.headBytes = headBytes
    limits.fieldCount = fields
    limits.bodyBytes = bodyBytes
    limits.chunkExtensionBytes = chunkExtensionBytes
    limits.chunkOverheadBytes = chunkOverheadBytes
    limits.trailerBytes = trailerBytes
    limits.trailerCount = trailers
    limits.leadingEmptyLines = emptyLines
    limits.pipelinedBytes = pipelinedBytes
    limits.requestsPerConnection = requestsPerConnection
    return limits
  }
}
