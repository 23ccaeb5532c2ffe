import API
import ByteStreams
import Configuration
import Dialing
import HTTPServer
import Host
import Inbox
import Journal
import Logging
import Metrics
import Peers
import Reactor
import RedisStore
import Sessions
import Store
import TLSEngine
import Upstream
import UpstreamSession
import Webhooks

/// Why the gateway cannot start although the settings are valid: the system refuses a resource.
package struct StartError: Error, Sendable {
  package let message: String
  /// Whether an operator must change a setting, or the file that it names, before a start can succeed.
  package var concernsConfiguration = false
}

/// The whole gateway: starts event loops, listeners and sessions, and shuts them down in order. Owned by the main
/// thread.
package final class GatewayServer: Sendable {
  /// Signals that shut the process down. The main thread waits for them.
  package static let shutdownSignals: [Int32] = [15, 2]
  /// SIGHUP reloads the configuration.
  package static let reloadSignal: Int32 = 1
  /// All signals that `runUntilSignalled` handles. They must be blocked before any thread is started.
  package static let handledSignals = shutdownSignals + [reloadSignal]

  let settings: GatewaySettings
  let logger: Logger
  let lifecycle = Lifecycle()
  let server: HTTPServer
  let loops: [EventLoop]
  let sessions: SessionDirectory
  /// Addresses of the listeners, with their actual ports.
  package let clientAddresses: [SocketAddress]
  package let secureAddresses: [SocketAddress]
  package let managementAddresses: [SocketAddress]
  let clientSocketFiles: [SocketFile]
  let managementSocketFiles: [SocketFile]
  /// nil if no files of tokens or keys are configured.
  let credentialFiles: CredentialFiles?
  /// The events for which the main thread waits.
  let events: ProcessEvents
  let reloadStatus: ReloadStatus
  let supervisor: ServiceNotifier
  /// nil unless there are listeners for other gateways.
  package let peers: PeerNetwork?
  /// nil without HTTPS listeners.
  let certificateWatcher: CertificateWatcher?
  /// nil unless sessions are stored in a file.
  let store: Store?
  /// nil unless several gateways share the sessions.
  let replicas: Replicas?

  /// Starts everything. Returns while the sessions are still connecting.
  ///
  /// - Parameters:
  ///   - inherited: sockets to use instead of binding the same addresses.
  ///   - supervisor: is notified of the start, of reloads and of the shutdown.
  package init(
    _ plan: GatewayPlan, inherited: InheritedSockets = .none, supervisor: ServiceNotifier = .none, logger: Logger
  ) throws(StartError) {
    let settings = plan.settings
    self.settings = settings
    self.logger = logger
    self.supervisor = supervisor
    do throws(SystemError) {
      events = try ProcessEvents(signals: Self.handledSignals)
    } catch {
      throw StartError(message: "cannot wait for signals: \(error)")
    }
    let descriptorLimit = Sockets.raiseDescriptorLimit()
    let loopCount = settings.loops > 0 ? settings.loops : ProcessorCount.usable
    do throws(SystemError) {
      var loops: [EventLoop] = []
      for index in 0..<loopCount { loops.append(try EventLoop(index: index)) }
      self.loops = loops
    } catch {
      throw StartError(message: "cannot start an event loop: \(error)")
    }

    let metrics = MetricsRegistry()
    ProcessMetrics.register(in: metrics)
    reloadStatus = ReloadStatus(metrics)
    for planned in plan.sessions where planned.settings.value.tls.verification == .offForTestsOnly {
      logger.warning(
        "the upstream's certificate is not verified: anyone on the path can read and change all messages",
        [.text("session", planned.name)])
    }
    for profile in settings.profiles where profile.configuration.upstream.tls.verification == .offForTestsOnly {
      logger.warning(
        "the upstream's certificate is not verified: anyone on the path can read and change all messages",
        [.text("profile", profile.name)])
    }
    let clients = try Self.bind(plan.clients, inherited, loops: loopCount)
    let secure = try Self.bind(plan.secureClients, inherited, loops: loopCount)
    let management = try Self.bind(plan.management, inherited, loops: 1)
    let peerListeners = try Self.bind(plan.peers, inherited, loops: loopCount)
    clientAddresses = clients.map(\.address)
    secureAddresses = secure.map(\.address)
    managementAddresses = management.map(\.address)
    clientSocketFiles = (clients + secure).compactMap(\.file)
    managementSocketFiles = management.compactMap(\.file)

    let descriptors = DescriptorBudget(
      limit: descriptorLimit, inUse: ProcessInformation.openDescriptors(), loops: loopCount,
      sessions: plan.sessions.count, created: settings.profiles.isEmpty ? 0 : settings.createdSessions.total,
      webhooks: settings.configuredSessions.flatMap(\.configuration.webhooks).reduce(0) { $0 + $1.concurrency },
      clients: settings.http.connections, management: settings.http.managementConnections,
      hasPeers: !peerListeners.isEmpty)
    if let warning = descriptors.warning {
      logger.warning(
        "fewer connections are accepted than configured",
        [
          .text("reason", warning), .number("connections", descriptors.clients),
          .number("management_connections", descriptors.management),
        ])
    }
    let memory = MemoryBudget(
      limit: ControlGroup().memoryBytes, settings, connections: descriptors.clients, peers: descriptors.peers)
    if let warning = memory.warning {
      logger.warning(
        "the settings allow more memory than is available", [.text("reason", warning), .number("bytes", memory.total)])
    }
    store = try Self.openStore(settings, isSuccessor: !inherited.sockets.isEmpty, logger: logger, metrics: metrics)
    let journals = store.map { Self.restore(plan.sessions, from: $0, logger) } ?? [:]
    let attemptLimiter = ConcurrentAttemptLimiter(settings.dials)
    let budget = RetentionBudget(limit: settings.retainedBytes)
    let slots =
      plan.redis == nil
      ? []
      : plan.sessions.map { planned in
        SharedSlot(
          SharedSlot.Plan(
            planned.name, planned.settings, retention: planned.retention, logger: logger,
            attemptLimiter: attemptLimiter, budget: budget, webhooks: planned.webhooks), metrics: metrics)
      }
    let configured: [SessionEntry] =
      plan.redis != nil
      ? slots.map { .shared($0) }
      : plan.sessions.map { planned in
        .fixed(
          Session(
            planned.name, planned.settings, retention: planned.retention, logger: logger, metrics: metrics,
            attemptLimiter: attemptLimiter, budget: budget, webhooks: planned.webhooks,
            opened: journals[planned.name]))
      }
    sessions = SessionDirectory(
      configured: configured,
      creating: CreatedSessions.Limits(settings.createdSessions, descriptors: descriptors.created),
      logger: logger,
      registry: metrics, attemptLimiter: ConcurrentAttemptLimiter(settings.dials), budget: budget)
    sessions.profiles.replace(with: plan.profiles)
    let httpMetrics = HTTPServerMetrics(metrics)
    server = HTTPServer(
      settings.http,
      HTTPServer.ConnectionLimits(
        clients: descriptors.clients, management: descriptors.management, peers: descriptors.peers),
      logger: logger, access: settings.log.access,
      certificate: plan.certificate.map(CurrentCertificate.init), metrics: httpMetrics)
    certificateWatcher = server.certificate.map { CertificateWatcher($0, logger: logger, metrics: metrics) }
    certificateWatcher?.start()
    // If HTTPS listeners require client certificates, they are not open: a client without a certificate of the
    // authority cannot send a request to them.
    let open = settings.listeners.tls.clientCertificates == .required ? clients : clients + secure
    let access = AccessState(
      settings.authentication, plan.credentials,
      openManagement: AccessState.openManagement(management.map(\.address), clients: open.map(\.address)), metrics)
    if settings.authentication.isConfigured, !secure.isEmpty, !clients.contains(where: { $0.address.reach == .network })
    {
      for listener in management where listener.address.reach == .network {
        logger.warning(
          "other machines can use the API without HTTPS on a management listener, where tokens are sent as plain text",
          [.text("address", listener.address.description)])
      }
    }
    credentialFiles = CredentialFiles.watch(settings.authentication, for: access, logger: logger, metrics: metrics)
    peers =
      peerListeners.isEmpty
      ? nil
      : Self.makePeers(settings, peerListeners, connections: descriptors.peers / loopCount, logger, metrics)
    if let target = plan.redis {
      replicas = try Replicas(
        target, settings, slots, in: sessions, peers: peers, loop: loopCount, logger: logger, metrics)
    } else {
      replicas = nil
    }
    let peerAddress = peers?.address?.description ?? ""
    let storeState: (@Sendable () -> StoreState)? =
      if let store {
        { store.state }
      } else if let replicas {
        { replicas.store.state }
      } else {
        nil
      }
    let api = CommonState(
      settings.api, http: settings.http, store: settings.store, lease: settings.sharedStore.lease, access: access,
      sessions: sessions, lifecycle: lifecycle, storeState: storeState, registry: metrics,
      managementConnections: descriptors.management,
      openConnections: httpMetrics.openConnections, version: DrawbridgeVersion.text,
      gateway: replicas.map { GatewayIdentity(id: $0.id, address: peerAddress) }, reload: reloadStatus.control)
    server.start(clients: clients, secure: secure, management: management, peers: peerListeners, on: loops) {
      [peers] loop in
      let application = API(
        api, loopIndex: loop.index, forwarder: peers.map { Forwarder($0, loop: loop) })
      loop.turnObserver = application.latencies
      return application
    }
    sessions.start(on: loops)
    replicas?.begin(api)
    HistorySampler.start(api, on: loops[0])
    let network = settings.network
    if network.changes == .watch {
      NetworkWatcher.start(settle: network.settle, logger: logger, metrics: metrics, on: loops[0]) { [sessions] in
        sessions.networkChanged($0)
      }
    }
    lifecycle.enter(.serving)
    for (name, listeners) in [
      ("api", clients), ("https", secure), ("management", management), ("peers", peerListeners),
    ] {
      for listener in listeners {
        logger.info(
          "listening",
          [.text("listener", name), .text("address", listener.address.description)]
            + (listener.isInherited ? [.flag("inherited", true)] : []))
      }
    }
    supervisor.notify(.ready)
  }

  /// Until the store provides the secret of the gateways, every request of a peer is refused.
  private static func makePeers(
    _ settings: GatewaySettings, _ listeners: [BoundListener], connections: Int, _ logger: Logger,
    _ metrics: MetricsRegistry
  ) -> PeerNetwork {
    var limits = PeerNetwork.Limits(lease: settings.sharedStore.lease)
    limits.request = settings.api.delivery.maximumWait + API.storeWait + limits.patience
    limits.connections = connections
    limits.requestBytes = settings.http.pendingBodyBytes
    limits.responseBytes = settings.peerResponseBytes
    let reachable = listeners.map(\.address).first { $0.ip?.isUnspecified == false }
    return PeerNetwork(address: settings.listeners.peerAddress ?? reachable, limits: limits, logger: logger, metrics)
  }

  private static func bind(
    _ addresses: [SocketAddress], _ inherited: InheritedSockets, loops: Int
  ) throws(StartError) -> [BoundListener] {
    var result: [BoundListener] = []
    for address in addresses {
      do throws(SystemError) {
        let sockets = inherited.sockets.filter { $0.address == address }
        if sockets.isEmpty { result.append(try BoundListener(address, loops: loops)) }
        for socket in sockets { result.append(try BoundListener(socket, loops: loops)) }
      } catch {
        throw StartError(message: "cannot listen on \(address): \(error)")
      }
    }
    return result
  }
}
