import API
import ByteStreams
import Dialing
import HTTPServer
import Host
import Journal
import Logging
import RedisStore
import Sessions
import TLSEngine
import Upstream
import UpstreamSession

/// All settings. Each part declares the type of its settings, with their defaults. Only the settings of the process
/// itself are declared here. `Setting.all` defines how each setting is named, read and explained.
package struct GatewaySettings: Equatable, Sendable {
  package var listeners = Listeners()
  /// Number of event loops; 0 means one per usable processor.
  package var loops = 0
  package var reload = Reload.watch
  package var access = OpenAccess.auto
  package var authentication = AuthenticationSettings()
  package var http = HTTPServerSettings()
  package var api = APISettings()
  /// The session `default`, which `upstream` and `delivery` at the top level of the file describe.
  package var session = SessionConfiguration()
  /// The sessions of `sessions`, in the order of the file.
  package private(set) var sessions: [NamedSession] = []
  /// The position of each name in `sessions`. It makes lookups fast, since every setting of a named session is found
  /// by the name.
  private var positions: [String: Int] = [:]
  /// The profiles from which clients create sessions, in the order of the file.
  package private(set) var profiles: [SessionProfile] = []
  package var createdSessions = CreatedSessionSettings()
  /// Limits of the connection attempts of all sessions together.
  package var dials = AttemptLimits()
  package var network = NetworkWatcher.Settings()
  /// Pushes kept by all sessions together, in bytes.
  package var retainedBytes = RetentionBudget.standardLimit
  package var store = StoreSettings()
  package var sharedStore = SharedStoreSettings()
  package var shutdown = Shutdown()
  package var log = Log()

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

  package struct Listeners: Equatable, Sendable {
    package var http = [SocketAddress.ipv4(0x7F00_0001, port: 8080)]
    package var https: [SocketAddress] = []
    package var tls = TLSServerSettings()
    package var management = [SocketAddress.ipv4(0x7F00_0001, port: 9090)]
    package var peers: [SocketAddress] = []
    package var peerAddress: SocketAddress?
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

  package struct Log: Equatable, Sendable {
    package enum Format: String, CaseIterable, Sendable { case auto, text, json }

    package var level = LogLevel.info
    package var format = Format.auto
    package var access = AccessLog.Mode.off
  }
}
