import Access
import ByteStreams
import HTTPCodec
import Host
import Journal
import Logging
import ProxyCodec
import TLSEngine
import Upstream
import UpstreamSession

/// All settings. Each value is stored in a type that belongs to the module that uses the value, and that also defines
/// its default. Values without such a type are declared here. `Setting.all` defines how each setting is named, read and
/// explained.
package struct GatewaySettings: Equatable, Sendable {
  package var listeners = Listeners()
  /// Number of event loops; 0 means one per usable processor.
  package var loops = 0
  package var reload = Reload.watch
  package var access = OpenAccess.auto
  package var authentication = AuthenticationSettings()
  package var http = HTTP()
  package var limits = Limits()
  /// The session `default`, which `upstream` and `delivery` at the top level of the file describe.
  package var session = SessionConfiguration()
  /// The sessions of `sessions`, in the order of the file.
  package private(set) var sessions: [NamedSession] = []
  /// The position of each name in `sessions`. It makes lookups fast, since every setting of a named session is found
  /// by the name.
  private var positions: [String: Int] = [:]
  /// The profiles from which clients create sessions, in the order of the file.
  package private(set) var profiles: [SessionProfile] = []
  package var createdSessions = CreatedSessions()
  /// Limits of the connection attempts of all sessions together.
  package var dials = AttemptLimits()
  package var network = Network()
  package var delivery = Delivery()
  package var store = StoreSettings()
  package var sharedStore = SharedStoreSettings()
  package var shutdown = Shutdown()
  package var log = Log()
  package var status = Status()

  package init() {}

  package struct NamedSession: Equatable, Sendable {
    package let name: String
    package var configuration = SessionConfiguration()

    /// The prefix of the session's setting paths.
    package var pathPrefix: String { name == SessionName.default ? "" : "sessions.\(name)." }
  }

  /// The sessions that are started: the default session, if it has a URL, and the named sessions.
  package var configuredSessions: [NamedSession] {
    let hasDefault = session.upstream.hasURL
    return (hasDefault ? [NamedSession(name: SessionName.default, configuration: session)] : []) + sessions
  }

  /// The session with this name. If there is no such session, reading returns the defaults and writing has no effect.
  subscript(named name: String) -> SessionConfiguration {
    get { positions[name].map { sessions[$0].configuration } ?? SessionConfiguration() }
    set {
      if let position = positions[name] { sessions[position].configuration = newValue }
    }
  }

  /// Adds a session whose name is new.
  mutating func add(_ session: NamedSession) {
    positions[session.name] = sessions.count
    sessions.append(session)
  }

  /// The profile with this name. If there is no such profile, reading returns the defaults and writing has no effect.
  subscript(profile name: String) -> SessionProfile {
    get { profiles.first { $0.name == name } ?? SessionProfile(name: name) }
    set {
      if let position = profiles.firstIndex(where: { $0.name == name }) { profiles[position] = newValue }
    }
  }

  /// Adds a profile whose name is new.
  mutating func add(_ profile: SessionProfile) { profiles.append(profile) }

  /// Replaces the sessions by the sessions of `old`. A session that these settings also contain gets its configuration
  /// from these settings. Any other session keeps its configuration.
  mutating func keepSessions(of old: GatewaySettings) {
    let configured = self
    sessions = []
    positions = [:]
    for running in old.sessions { add(configured.positions[running.name].map { configured.sessions[$0] } ?? running) }
  }

  /// Sessions that clients create.
  package struct CreatedSessions: Equatable, Sendable {
    package var total = 10_000
    package var perOwner = 100
    package var idleAfter = TimeSpan.minutes(10)

    package init() {}
  }

  package struct Listeners: Equatable, Sendable {
    package var http = [SocketAddress.ipv4(0x7F00_0001, port: 8080)]
    package var https: [SocketAddress] = []
    package var tls = TLSServerSettings()
    package var management = [SocketAddress.ipv4(0x7F00_0001, port: 9090)]
    package var peers: [SocketAddress] = []
    package var peerAddress: SocketAddress?
  }

  /// Limits for clients.
  package struct HTTP: Equatable, Sendable {
    package enum ProxyProtocol: String, CaseIterable, Sendable { case off, required }

    /// Limits that the codec enforces.
    package var limits = HTTPLimits()
    package var trustedProxies = TrustedProxies()
    package var proxyProtocol = ProxyProtocol.off
    package var hosts: [String] = []
    package var origins: [String] = []
    package var pendingBodyBytes = 256 << 20
    package var inflationRatio = 100
    package var batchMessages = 1024
    package var idempotencyKeys = 1 << 20
    package var headTimeout = TimeSpan.seconds(10)
    package var bodyTimeout = TimeSpan.seconds(30)
    package var bodyMinimumRate = 240
    package var idleTimeout = TimeSpan.seconds(75)
    package var writeTimeout = TimeSpan.seconds(30)
    package var writeMinimumRate = 240
    package var unsentBytes = 256 << 20
    package var lingerTimeout = TimeSpan.seconds(2)
    package var lingerBytes = 1 << 20
    package var connections = 16_384
    package var connectionsPerAddress = 16_384
    package var managementConnections = 256

    package init() {}

    package var bodyBytes: Int { limits.bodyBytes }
  }

  /// Limits of each client.
  package struct Limits: Equatable, Sendable {
    package var principal = RateTable.Limits()
    package var address = RateTable.Limits()

    package init() { address.failures = RateLimit(10, per: .seconds(1), burst: 100) }
  }

  /// Reactions to changes of this machine's network.
  package struct Network: Equatable, Sendable {
    package enum Changes: String, CaseIterable, Sendable { case watch, ignore }

    package var changes = Changes.watch
    package var settle = TimeSpan.milliseconds(500)
  }

  /// Defaults and maximums of the parameters of a poll, and the times of streams.
  package struct Delivery: Equatable, Sendable {
    package var wait = TimeSpan.seconds(25)
    package var maximumWait = TimeSpan.seconds(55)
    package var limit = 100
    package var maximumLimit = 10_000
    package var answerBytes = 1 << 20
    package var maximumAnswerBytes = 64 << 20
    package var streamHeartbeat = TimeSpan.seconds(15)
    package var streamLifetime = TimeSpan.minutes(10)
    /// Pushes kept by all sessions together, in bytes.
    package var totalBytes = 512 << 20

    package init() {}
  }

  /// The event that reloads the configuration, in addition to SIGHUP.
  package enum Reload: String, CaseIterable, Sendable {
    /// A change of the configuration's files.
    case watch
    /// No event other than SIGHUP.
    case signal
  }

  /// The maximum durations of the steps of a shutdown, in the order of the steps.
  package struct Shutdown: Equatable, Sendable {
    package var pause = TimeSpan.zero
    package var drain = TimeSpan.seconds(10)
    package var flush = TimeSpan.seconds(5)
  }

  /// The status page of the management listener.
  package struct Status: Equatable, Sendable {
    package var payloads = false
  }

  package struct Log: Equatable, Sendable {
    package enum Format: String, CaseIterable, Sendable { case auto, text, json }
    /// The requests of clients for which a line is written.
    package enum Access: String, CaseIterable, Sendable { case off, errors, all }

    package var level = LogLevel.info
    package var format = Format.auto
    package var access = Access.off
  }
}
