import API
import ByteStreams
import Configuration
import Dialing
import Digests
import Host
import Journal
import Logging
import Metrics
import Peers
import Reactor
import Redis
import RedisStore
import Replication
import Sessions
import Synchronization
import Upstream
import WebSocketCodec

/// The sessions that several gateways share: their store, on its own loop, and the state of the sessions at this
/// gateway.
final class Replicas: Sendable {
  let store: RedisStore
  private let sessions: SharedSessions
  private let loop: EventLoop
  private let released = Atomic(false)

  /// Connects in the background.
  ///
  /// - Parameters:
  ///   - peers: the address and secret for requests between gateways; nil if this gateway has no listener for peers.
  ///   - loop: the index of the store's loop, the next index after the loops of clients.
  init(
    _ target: RedisConnector.Target, _ settings: GatewaySettings, _ slots: [SharedSlot], in directory: SessionDirectory,
    peers: PeerNetwork?, loop: Int, logger: Logger, _ metrics: MetricsRegistry
  ) throws(StartError) {
    do throws(SystemError) {
      self.loop = try EventLoop(index: loop)
    } catch {
      throw StartError(message: "cannot start an event loop: \(error)")
    }
    var redis = RedisStoreSettings(target)
    redis.prefix = settings.sharedStore.prefix
    redis.waitReplicas = settings.sharedStore.replicas
    redis.times = TenureTimes(lease: settings.sharedStore.lease)
    redis.createdSessions = directory.created.limits.descriptors
    redis.pendingBytes = settings.store.pendingBytes
    redis.pauseBytes = min(redis.pauseBytes, settings.store.pendingBytes / 2)
    redis.address = peers?.address?.description ?? ""
    redis.configuration = Self.digest(of: settings)
    redis.hosts = Self.hosts(of: settings)
    sessions = SharedSessions(slots, in: directory) { peers?.use(secret: $0) }
    store = RedisStore.start(redis, on: self.loop, delegate: sessions, logger: logger, metrics: metrics) {
      NetworkDialer(resolver: Resolver(), loop: $0)
    }
    directory.created.share(in: store)
  }

  /// A digest of the settings that must be equal at all gateways: 16 hexadecimal digits.
  private static func digest(of settings: GatewaySettings) -> String {
    var text = ByteQueue()
    let digest = Digest.sha256(Array(settings.sharedText.utf8).span)
    text.append(hexadecimal: digest.prefix(8).reduce(0) { $0 << 8 | UInt64($1) }, digits: 16)
    return text.bytes.text()
  }

  private static func hosts(of settings: GatewaySettings) -> UpstreamHosts {
    let pairs = settings.configuredSessions.map { ($0.name, $0.configuration.upstream.urls.map(\.authority)) }
    return UpstreamHosts(Dictionary(pairs) { first, _ in first })
  }

  /// Uses settings that were read again. Their profiles must already be in the directory.
  func use(_ settings: GatewaySettings) {
    store.use(configuration: Self.digest(of: settings), Self.hosts(of: settings))
    sessions.useProfiles(in: store)
  }

  /// The identity of this gateway among all gateways.
  var id: String {
    var text = ByteQueue()
    store.gateway.write(into: &text)
    return text.bytes.text()
  }

  /// Lets this gateway acquire sessions from now on.
  func begin(_ api: CommonState) { sessions.begin(in: store) { api.restoreKeys(of: $0) } }

  /// Lets this gateway acquire no more sessions, because it will end.
  func drain() { store.drain() }

  /// Sends requests for the sessions to other gateways from now on, because the sessions are about to be shut down.
  func leave() { sessions.leaveAll() }

  /// Stores the submitted changes, and releases all sessions to other gateways.
  ///
  /// - Parameter end: called when `isReleased` becomes true, on any thread.
  func release(whenReleased end: @escaping @Sendable () -> Void) {
    store.close { [self] in
      released.store(true, ordering: .releasing)
      end()
    }
  }

  var isReleased: Bool { released.load(ordering: .acquiring) }

  /// Ends the connections to Redis.
  func stop() {
    loop.stop()
    loop.join()
  }
}
