import Access
import ByteStreams
import Configuration
import Dialing
import Host
import Journal
import Redis
import RedisProtocol
import RedisStore
import TLSEngine
import Sessions
import Upstream

/// The validated settings, together with the files that they name, before any socket is opened. The loader has
/// validated each setting alone. The plan finds the problems that appear only when the files are read.
///
/// `serve`, `check-config` and reloads all use this plan, so that they accept the same configurations.
package struct GatewayPlan: Sendable {
  package let settings: GatewaySettings
  /// The sessions. The default session is the first, if there is one. The named sessions follow in the order of the
  /// file.
  package let sessions: [SessionPlan]
  /// The certificate of the HTTPS listeners; nil if there are no HTTPS listeners, and in a reload.
  package let certificate: TLSServerContext?
  /// The content of the files of tokens and keys.
  let credentials: Credentials
  /// The profiles, in the order of the file.
  package let profiles: [ProfilePlan]
  /// The Redis to connect to; nil unless `store.engine` is `redis`.
  let redis: RedisConnector.Target?

  /// Reads the files that the settings name. Blocks.
  ///
  /// - Parameters:
  ///   - inherited: sockets that `settings.listeners` uses.
  ///   - isReload: whether this is a reload, which does not read the certificate of the HTTPS listeners.
  ///     `CertificateWatcher` reads it, and keeps the old certificate while the new certificate does not match its key,
  ///     for example because only one of the two files has been replaced. The other settings take effect even then.
  ///   - isUsable: returns whether the settings of a section, such as `upstream.tls`, are free of errors. If they are
  ///     not, the files that need this section are not read, and the plan must not be used.
  package init(
    _ settings: GatewaySettings, inherited: InheritedSockets = .none, isReload: Bool = false,
    isUsable: (String) -> Bool = { _ in true }
  ) throws(SettingProblems) {
    self.settings = settings
    let listeners = settings.listeners
    var problems = settings.accessProblems().map { listeners.naming(inherited, in: $0) }
    problems += listeners.duplicates(of: inherited)
    problems += settings.storeProblems()
    let configured = settings.configuredSessions
    if configured.isEmpty, settings.profiles.isEmpty {
      problems.append(SettingProblem("upstream.url", .missing, Self.urlMissing))
    }
    var sessions: [SessionPlan] = []
    let upstreams = configured.map(\.configuration.upstream) + settings.profiles.map(\.configuration.upstream)
    var contexts = TLSContextCache(fileTimeout: upstreams.map(\.fileTimeout).max() ?? .zero)
    for session in configured where session.configuration.upstream.hasURL {
      guard isUsable(session.pathPrefix + "upstream.tls") else { continue }
      var webhooks: [WebhookPlan] = []
      for (index, webhook) in session.configuration.webhooks.enumerated() {
        do throws(TLSSettingsError) {
          webhooks.append(try WebhookPlan(webhook, with: &contexts))
        } catch {
          problems.append(
            SettingProblem(session.pathPrefix + "webhooks", .none, "'[\(index)].ca_file' cannot be used: \(error)"))
        }
      }
      do throws(TLSSettingsError) {
        sessions.append(
          SessionPlan(
            name: session.name, settings: try PreparedSettings(session.configuration.upstream, with: &contexts),
            retention: session.configuration.retention, webhooks: webhooks))
      } catch {
        problems.append(SettingProblem(error, prefix: session.pathPrefix))
      }
    }
    var redis: RedisConnector.Target?
    if settings.store.engine == .redis, isUsable("store") {
      do throws(TLSSettingsError) {
        redis = try Self.redis(settings.sharedStore, with: &contexts)
      } catch {
        problems.append(SettingProblem("store.tls", .none, "\(error)"))
      }
    }
    var certificate: TLSServerContext?
    let tls = settings.listeners.tls
    if !isReload, !settings.listeners.https.isEmpty, !tls.certificateFile.isEmpty, !tls.keyFile.isEmpty,
      isUsable("listeners.tls")
    {
      do throws(TLSSettingsError) {
        certificate = try ListenerCertificate.read(tls)
      } catch {
        problems.append(SettingProblem(ofListeners: error))
      }
    }
    var credentials = Credentials(tokens: nil, jwt: nil)
    do throws(SettingProblem) {
      credentials = try CredentialFiles.load(settings.authentication)
    } catch {
      problems.append(error)
    }
    var profiles: [ProfilePlan] = []
    for profile in settings.profiles where profile.url != nil {
      guard isUsable(profile.pathPrefix + "upstream.tls") else { continue }
      do throws(TLSSettingsError) {
        profiles.append(ProfilePlan(profile, try PreparedSettings(profile.sample, with: &contexts)))
      } catch {
        problems.append(SettingProblem(error, prefix: profile.pathPrefix))
      }
    }
    guard problems.isEmpty else { throw SettingProblems(problems) }
    self.sessions = sessions
    self.credentials = credentials
    self.certificate = certificate
    self.profiles = profiles
    self.redis = redis
  }

  private static func redis(
    _ settings: SharedStoreSettings, with contexts: inout TLSContextCache
  ) throws(TLSSettingsError) -> RedisConnector.Target? {
    func endpoint(_ url: RedisURL) throws(TLSSettingsError) -> RedisEndpoint {
      try RedisEndpoint(url, settings.tls, with: &contexts)
    }
    guard let server = settings.server else { return nil }
    let primary = try endpoint(server)
    if settings.sentinels.isEmpty { return .server(primary) }
    var sentinels: [RedisEndpoint] = []
    for location in settings.sentinels { sentinels.append(try endpoint(location.url)) }
    return .sentinels(sentinels, name: settings.sentinelName, primary: primary)
  }

  var clients: [SocketAddress] { settings.listeners.http }
  var secureClients: [SocketAddress] { settings.listeners.https }
  var management: [SocketAddress] { settings.listeners.management }
  var peers: [SocketAddress] { settings.listeners.peers }

  private static let urlMissing =
    "the gateway needs an upstream: use --upstream wss://example.org/socket, upstream.url in a file, or "
    + "DRAWBRIDGE_UPSTREAM_URL ('drawbridge demo' needs none)"
}
