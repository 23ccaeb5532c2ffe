import ByteStreams
import UpstreamProtocol
import Outbox
import ProxyCodec
import TLSEngine
import UpstreamSession
import WebSocketCodec

/// Everything that one upstream session is configured with.
package struct UpstreamSettings: Equatable, Sendable {
  /// nil: none is set.
  package var url: WebSocketURL? {
    didSet { countEndpoints() }
  }
  package var fallbackURLs: [WebSocketURL] = [] {
    didSet { countEndpoints() }
  }
  package var subprotocols: [String] = []
  /// Fields to send with the opening request.
  package var fields: [RequestField] = []
  package var offersCompression = true
  package var compressionOffer = CompressionOffer()
  package var limits = WebSocketLimits()
  package var tls = TLSClientSettings()
  /// nil: upstreams are dialled directly.
  package var proxy: ProxyURL?
  /// Upstreams that are dialled without it.
  package var proxyBypass = ProxyBypass()
  package var session = SessionSettings()
  package var outbox = OutboxSettings()
  package var conventions = UpstreamConventions() {
    didSet { adoptConventions() }
  }
  /// Whether clients' messages must be looked at, each: worked out once.
  package private(set) var keepsSubscriptions = false
  /// How long the kernel may go without an acknowledgement before it gives a connection up (`TCP_USER_TIMEOUT`).
  package var userTimeout: TimeSpan = .seconds(30)
  /// How long reading the files of an attempt may take.
  package var fileTimeout: TimeSpan = .seconds(5) {
    didSet { adoptConventions() }
  }
  /// What a credential's command that is killed gets to end.
  package static var killTime: TimeSpan { .seconds(1) }
  /// Unsent bytes of a connection at which the queue is held back, and at which it flows again.
  package var highWater = 256 << 10
  package var lowWater = 64 << 10
  /// Bytes read in one turn before the other connections of the loop have theirs.
  package var readBudget = 256 << 10

  /// Without a URL.
  package init() {
    // An observer does not run inside an initializer.
    adoptConventions()
  }

  package init(urls: [WebSocketURL]) {
    precondition(!urls.isEmpty, "an upstream session needs a URL")
    self.init()
    url = urls[0]
    fallbackURLs = Array(urls.dropFirst())
    countEndpoints()
  }

  /// Best first.
  package var urls: [WebSocketURL] { (url.map { [$0] } ?? []) + fallbackURLs }

  /// nil: no compression is offered.
  package var compression: CompressionOffer? {
    get { offersCompression ? compressionOffer : nil }
    set {
      offersCompression = newValue != nil
      if let newValue { compressionOffer = newValue }
    }
  }

  /// Whether `url` is of an origin that the operator wrote down, and not only of one that a redirection led to.
  package func isConfigured(_ url: WebSocketURL) -> Bool { urls.contains { $0.hasSameOrigin(as: url) } }

  /// The fields of an opening request. Every configured field counts as a secret and goes to configured origins only, but for
  /// those that merely say who asks.
  package func fields(for url: WebSocketURL) -> [(name: String, value: String)] {
    var fields = self.fields.map { ($0.name, $0.value) }
    if !isConfigured(url) { fields.removeAll { !["origin", "user-agent"].contains($0.0.lowercased()) } }
    if let basic = url.basicAuthorization, !fields.contains(where: { $0.0.lowercased() == "authorization" }) {
      fields.append(("Authorization", basic))
    }
    return fields
  }

  /// The proxy on the way to `url`.
  package func proxy(for url: WebSocketURL) -> ProxyURL? {
    proxyBypass.covers(host: url.host, port: url.port) ? nil : proxy
  }

  // MARK: What follows from other settings

  private mutating func countEndpoints() { session.endpoints.count = max(1, urls.count) }

  /// The session machine is configured with when messages are sent or awaited, the driver with which.
  private mutating func adoptConventions() {
    keepsSubscriptions = conventions.subscriptions.add.match != nil
    session.setup = conventions.onOpen.map { SetupStep(expectsResponse: $0.expect != nil, timeLimit: $0.timeout) }
    let client = conventions.client
    // For secrets and for the files of `upstream.tls`. The driver ends each wait; the session's limit is the last resort.
    session.limits.preparing = fileTimeout + fileTimeout
    if case .command(_, let limit)? = conventions.credential.source {
      session.limits.preparing = session.limits.preparing + limit + Self.killTime
    }
    session.heartbeat.interval = client.message == nil ? nil : client.interval
    session.heartbeat.timeout = client.expect == nil ? nil : client.timeout
    session.heartbeat.within = conventions.server.within > .zero ? conventions.server.within : nil
  }
}

/// A field of the opening request.
package struct RequestField: Hashable, Sendable {
  package let name: String
  package let value: String

  package init(name: String, value: String) {
    self.name = name
    self.value = value
  }
}

extension TLSClientSettings {
  /// The files of the client certificate, each empty while it is not set. `UpstreamSettings` is used only where both are or none is.
  var certificateFile: String {
    get { clientCertificate?.certificateFile ?? "" }
    set { setClientCertificate(newValue, keyFile) }
  }
  var keyFile: String {
    get { clientCertificate?.keyFile ?? "" }
    set { setClientCertificate(certificateFile, newValue) }
  }

  private mutating func setClientCertificate(_ certificate: String, _ key: String) {
    let isSet = !certificate.isEmpty || !key.isEmpty
    clientCertificate = isSet ? ClientCertificate(certificateFile: certificate, keyFile: key) : nil
  }
}
