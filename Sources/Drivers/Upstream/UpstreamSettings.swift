import ByteStreams
import Configuration
import UpstreamProtocol
import Outbox
import TLSEngine
import UpstreamSession
import WebSocketCodec

/// One version of a session's settings, and the TLS context made from it.
///
/// A reload makes a new one. A connection keeps the one that it was started with. Shared, since the settings take a kilobyte
/// and more.
package final class SharedSettings: Sendable {
  package let value: UpstreamSettings
  /// nil where no URL is `wss`.
  let security: UpstreamSecurity?

  init(_ value: UpstreamSettings) throws(TLSSettingsError) {
    self.value = value
    let isSecure = value.urls.contains { $0.isSecure }
    security = isSecure ? try UpstreamSecurity(value.tls, within: value.fileTimeout) : nil
  }
}

/// Everything that one upstream session is configured with.
package struct UpstreamSettings: Sendable {
  /// At least one, best first.
  package var urls: [WebSocketURL]
  package var subprotocols: [String] = []
  /// Fields to send with the opening request.
  package var fields: [(name: String, value: String)] = []
  /// nil: no compression is offered.
  package var compression: CompressionOffer? = CompressionOffer()
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
  /// Whether messages of the upstream must be looked at, each: worked out once.
  private(set) var examinesMessages = false
  /// Whether clients' messages must be looked at, likewise.
  private(set) var keepsSubscriptions = false
  /// How long the kernel may go without an acknowledgement before it gives a connection up (`TCP_USER_TIMEOUT`).
  package var userTimeout: TimeSpan = .seconds(30)
  /// How long reading the files of an attempt may take.
  package var fileTimeout: TimeSpan = .seconds(5) {
    didSet { adoptConventions() }
  }
  /// What a credential's command that is killed gets to end.
  static var killTime: TimeSpan { .seconds(1) }
  /// Unsent bytes of a connection at which the queue is held back, and at which it flows again.
  package var highWater = 256 << 10
  package var lowWater = 64 << 10
  /// Bytes read in one turn before the other connections of the loop have theirs.
  package var readBudget = 256 << 10

  package init(urls: [WebSocketURL]) {
    precondition(!urls.isEmpty, "an upstream session needs a URL")
    self.urls = urls
    session.endpoints.count = urls.count
  }

  /// From what the operator wrote.
  package init(_ configured: GatewaySettings.Upstream) throws(SettingProblem) {
    guard !configured.url.isEmpty else { throw SettingProblem("upstream.url", .none, Self.urlMissing) }
    var urls = [try Self.url(configured.url, "upstream.url", .value)]
    for (index, text) in configured.fallbackURLs.enumerated() {
      urls.append(try Self.url(text, "upstream.fallback_urls", .item(index)))
    }
    self.init(urls: urls)
    tls = try TLSClientSettings(configured.tls)
    do throws(ProxyURLError) {
      if !configured.proxy.isEmpty { proxy = try ProxyURL(configured.proxy) }
    } catch {
      throw SettingProblem("upstream.proxy", .value, error.description)
    }
    do throws(ProxyBypassError) {
      proxyBypass = try ProxyBypass(configured.noProxy)
    } catch {
      throw SettingProblem("upstream.no_proxy", .item(error.index), ProxyBypassError.expectation)
    }
    try readRequest(configured)
    if configured.compression.offer {
      var offer = CompressionOffer()
      offer.level = configured.compression.level
      offer.windowBits = configured.compression.windowBits
      offer.memoryLevel = configured.compression.memoryLevel
      offer.threshold = configured.compression.threshold
      compression = offer
    } else {
      compression = nil
    }
    limits.messageBytes = configured.messageBytes
    limits.fragments = configured.fragments
    limits.inflationRatio = configured.inflationRatio
    session = SessionSettings(configured, urls: urls.count)
    var conventions = configured.conventions
    conventions.codec = PayloadCodec(rawValue: configured.payloadCodec) ?? .raw
    if let problem = conventions.problem {
      throw SettingProblem(problem.key, .none, problem.reason)
    }
    self.conventions = conventions
    fileTimeout = configured.timeouts.files
    // An observer does not run inside an initializer.
    adoptConventions()
    userTimeout = configured.timeouts.user
    outbox = try OutboxSettings(configured.queue, sendsPings: configured.heartbeat.ping)
    highWater = configured.queue.highWater
    lowWater = configured.queue.lowWater
  }

  private static let urlMissing =
    "no upstream is set: give one with --upstream wss://example.org/socket, as upstream.url in a file, or as DRAWBRIDGE_UPSTREAM_URL; "
    + "'drawbridge demo' needs none"

  private static func url(
    _ text: String, _ key: String, _ subject: SettingProblem.Subject
  ) throws(SettingProblem) -> WebSocketURL {
    do throws(WebSocketURLError) {
      return try WebSocketURL(text)
    } catch {
      throw SettingProblem(key, subject, error.description)
    }
  }

  /// Subprotocols and fields, judged as the handshake judges them.
  private mutating func readRequest(_ configured: GatewaySettings.Upstream) throws(SettingProblem) {
    var request = ClientHandshake.Request(target: "/", host: "localhost")
    for (index, name) in configured.subprotocols.enumerated() {
      request.subprotocols.append(name)
      if let problem = request.problem { throw SettingProblem("upstream.subprotocols", .item(index), problem) }
    }
    for (index, line) in configured.headers.enumerated() {
      // The loader has checked the form.
      let parts = line.split(separator: ":", maxSplits: 1, omittingEmptySubsequences: false)
      guard parts.count == 2 else { continue }
      request.fields.append((String(parts[0]), String(parts[1].drop { $0 == " " })))
      if let problem = request.problem { throw SettingProblem("upstream.headers", .item(index), problem) }
    }
    subprotocols = request.subprotocols
    fields = request.fields
    guard let name = configured.conventions.credential.header?.fieldName else { return }
    request.fields.append((name, ""))
    if let problem = request.problem { throw SettingProblem("upstream.credential.header", .none, problem) }
  }

  /// Whether `url` is of an origin that the operator wrote down, and not only of one that a redirection led to.
  func isConfigured(_ url: WebSocketURL) -> Bool { urls.contains { $0.hasSameOrigin(as: url) } }

  /// The fields of an opening request. Every configured field counts as a secret and goes to configured origins only, but for
  /// those that merely say who asks.
  func fields(for url: WebSocketURL) -> [(name: String, value: String)] {
    var fields = self.fields
    if !isConfigured(url) { fields.removeAll { !["origin", "user-agent"].contains($0.name.lowercased()) } }
    if let basic = url.basicAuthorization, !fields.contains(where: { $0.name.lowercased() == "authorization" }) {
      fields.append(("Authorization", basic))
    }
    return fields
  }

  /// The proxy on the way to `url`.
  func proxy(for url: WebSocketURL) -> ProxyURL? {
    proxyBypass.covers(host: url.host, port: url.port) ? nil : proxy
  }

  /// The session knows when something is said or awaited, the driver what.
  private mutating func adoptConventions() {
    examinesMessages = conventions.examinesMessages
    keepsSubscriptions = conventions.subscriptions.add.match != nil
    session.opening = conventions.onOpen.map { OpeningStep(expectsAnswer: $0.expect != nil, timeLimit: $0.timeout) }
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
