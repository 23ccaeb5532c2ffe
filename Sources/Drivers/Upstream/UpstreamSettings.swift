import ByteStreams
import Outbox
import Profiles
import ProxyCodec
import TLSEngine
import UpstreamProtocol
import UpstreamSession
import WebSocketCodec

/// The settings of one session's upstream.
package struct UpstreamSettings: Equatable, Sendable {
  /// The URL; nil if it is not set.
  package var url: WebSocketURL? {
    didSet { updateEndpointCount() }
  }
  package var fallbackURLs: [WebSocketURL] = [] {
    didSet { updateEndpointCount() }
  }
  /// The file or command that returns the URL for each attempt. If it is set, `urls` is empty.
  package var urlSource: URLSource {
    _read { yield boxedURLSource.value }
    set {
      boxedURLSource.value = newValue
      applyConventions()
    }
  }
  /// Most sessions have no source. They use one object.
  private var boxedURLSource = Self.noURLSource
  private static let noURLSource = Boxed(URLSource())
  /// The URL that `urlSource` has returned for one connection. Only the settings of this connection have it.
  package var readURL: WebSocketURL? {
    get { boxedReadURL?.value }
    set { boxedReadURL = newValue.map { Boxed($0) } }
  }
  private var boxedReadURL: Boxed<WebSocketURL>?
  /// The name of the captured value that is the URL of the next attempt; nil if there is none.
  package var capturedURL: String?
  /// The hosts to which captured URLs may lead, besides the configured origins.
  package var capturedHosts = HostPatterns()
  package var subprotocols: [String] = []
  /// Header fields of the opening request.
  package var fields: [RequestField] = []
  package var offersCompression = true
  package var compressionOffer = CompressionOffer()
  package var limits = WebSocketLimits()
  package var tls = TLSClientSettings()
  /// The proxy; nil if connections are direct.
  package var proxy: ProxyURL?
  /// Upstreams to connect to without the proxy.
  package var proxyBypass = ProxyBypass()
  package var session = SessionSettings()
  package var outbox = OutboxSettings()
  package var conventions: UpstreamConventions {
    _read { yield boxedConventions.value }
    set {
      boxedConventions.value = newValue
      applyConventions()
    }
  }
  /// Most sessions have no conventions, and the sessions of a profile have the same conventions. They use one object.
  private(set) var boxedConventions = Self.noConventions
  private static let noConventions = Boxed(UpstreamConventions())
  /// Whether each message of a client must be checked for subscriptions. Derived from `conventions` when they are set.
  package private(set) var keepsSubscriptions = false
  /// The hosts and addresses to which connections may lead, directly or by a redirection; nil for a configured session,
  /// whose hosts the operator has chosen.
  package var connectionRules: ConnectionRules?
  /// Maximum time that sent bytes may stay unacknowledged before the kernel ends the connection (`TCP_USER_TIMEOUT`).
  package var userTimeout: TimeSpan = .seconds(30)
  /// Timeout for reading the files of a connection attempt.
  package var fileTimeout: TimeSpan = .seconds(5) {
    didSet { applyConventions() }
  }
  /// How long to wait for a credential command to exit after it was killed.
  package static var killGracePeriod: TimeSpan { .seconds(1) }
  /// The number of unsent bytes of a connection at which sending pauses, and the number at which it continues.
  package var highWater = 256 << 10
  package var lowWater = 64 << 10
  /// Maximum number of bytes read in one turn, before other connections of the loop are served.
  package var readBudget = 256 << 10

  /// Creates settings without a URL.
  package init() {
    // This must be called here, since property observers do not run inside an initializer.
    applyConventions()
  }

  package init(urls: [WebSocketURL]) {
    precondition(!urls.isEmpty, "an upstream session needs a URL")
    self.init()
    url = urls[0]
    fallbackURLs = Array(urls.dropFirst())
    updateEndpointCount()
  }

  /// All URLs of the upstream, in order of preference.
  package var urls: [WebSocketURL] { (url.map { [$0] } ?? []) + fallbackURLs }

  /// The offer of compression; nil if compression is not offered.
  package var compression: CompressionOffer? {
    get { offersCompression ? compressionOffer : nil }
    set {
      offersCompression = newValue != nil
      if let newValue { compressionOffer = newValue }
    }
  }

  /// Whether a change from `old` to these settings needs a new connection. A change of topics needs no new connection,
  /// since topics are read from each push when it arrives.
  package func needsConnection(after old: UpstreamSettings) -> Bool {
    var old = old
    old.conventions.topics = conventions.topics
    return self != old
  }

  /// Whether the origin of `url` is configured or was read from `urlSource`, or its host is listed for captured URLs.
  /// If not, a redirection has led to `url`.
  package func isConfigured(_ url: WebSocketURL) -> Bool { hasConfiguredOrigin(url) || isListed(url) }

  /// Returns the header fields of the opening request to `url`. Configured fields, except Origin and User-Agent, are
  /// treated as secrets. So they are sent to configured origins only.
  package func fields(for url: WebSocketURL) -> [(name: String, value: String)] {
    var fields = self.fields.map { ($0.name, $0.value) }
    if !isConfigured(url) { fields.removeAll { !["origin", "user-agent"].contains($0.0.lowercased()) } }
    if let basic = url.basicAuthorization, !fields.contains(where: { $0.0.lowercased() == "authorization" }) {
      fields.append(("Authorization", basic))
    }
    return fields
  }

  /// Returns the proxy for the connection to `url`; nil if the connection is direct.
  package func proxy(for url: WebSocketURL) -> ProxyURL? {
    proxyBypass.covers(host: url.host, port: url.port) ? nil : proxy
  }

  // MARK: Derived settings

  private mutating func updateEndpointCount() { session.endpoints.count = max(1, urls.count) }

  /// Derives the settings of the session machine from the conventions. The machine needs the times of messages, but not
  /// their contents.
  private mutating func applyConventions() {
    keepsSubscriptions = conventions.subscriptions.add.match != nil
    session.setup = conventions.onOpen.map { SetupStep(expectsResponse: $0.expect != nil, timeLimit: $0.timeout) }
    let declaration = conventions.declaration
    // Steps of the protocol have no timeouts of their own. `limits.setup` limits all of them together, and is at most a
    // day.
    let steps = (declaration?.steps ?? []).map {
      SetupStep(expectsResponse: true, timeLimit: .minutes(24 * 60), isOptional: $0.isOptional)
    }
    session.setup = steps + session.setup
    session.liveness.endsConnection = declaration?.capabilities.contains(.announcedHeartbeats) != true
    let client = conventions.client
    // The limit is the sum of the timeouts for the URL, for secrets and for the files of `upstream.tls`. The driver
    // applies each of these timeouts. The limit of the session is only a safeguard.
    session.limits.preparing = fileTimeout + fileTimeout
    if case .command(_, let limit)? = conventions.credential.source {
      session.limits.preparing = session.limits.preparing + limit + Self.killGracePeriod
    }
    if !urlSource.command.isEmpty {
      session.limits.preparing = session.limits.preparing + urlSource.timeout + Self.killGracePeriod
    } else if urlSource.isSet {
      session.limits.preparing = session.limits.preparing + fileTimeout
    }
    session.heartbeat.interval = client.message == nil ? nil : client.interval
    session.heartbeat.timeout = client.expect == nil ? nil : client.timeout
    session.heartbeat.within = conventions.server.within > .zero ? conventions.server.within : nil
  }
}

/// A header field of the opening request.
package struct RequestField: Hashable, Sendable {
  package let name: String
  package let value: String

  package init(name: String, value: String) {
    self.name = name
    self.value = value
  }
}
