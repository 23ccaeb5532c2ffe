import Dialing
import Reactor
import RedisStore

/// Divides the file descriptors of the process, so that clients cannot use up the descriptors that upstream connections
/// and management need.
struct DescriptorBudget: Equatable {
  /// Descriptors reserved for everything but connections of clients and management, connections of created sessions,
  /// other gateways, and Redis. The number is a sum of maximums: even when every operation hangs, only connection
  /// attempts to many addresses (`racingSessions`) can need more descriptors than their summand.
  static func reserve(sessions: Int, created: Int = 0, webhooks: Int = 0) -> Int {
    let resolvers = 1 + (created > 0 ? 1 : 0) + (webhooks > 0 ? 1 : 0)
    return sessions * connectionsPerSession + webhooks + resolvers * lookUps + blockingWork + others
      + min(sessions + created + webhooks, racingSessions) * ConnectRace.addressLimit
  }
  /// A session usually has one connection. During a hand-over it has two, and possibly a third that is closing.
  private static let connectionsPerSession = 3
  /// Number of sessions and webhooks that may, at the same time, have a connection open to every address of a name.
  /// More such attempts at once are rare, since few names have many addresses that hang. An attempt that gets no
  /// descriptor fails, and is repeated.
  private static let racingSessions = 8
  /// Descriptors of one resolver. Sessions that clients create have a resolver of their own, and so have webhooks.
  private static let lookUps = Resolver.threadCount * Resolver.descriptorsPerThread
  /// Reading certificates and secrets, and running credential commands.
  private static let blockingWork = BlockingThreadPool.threadLimit * BlockingThreadPool.descriptorsPerThread
  /// One descriptor each for netlink, inotify, the file or directory under /proc that a metric reads, the configuration
  /// file during a reload, a file of tokens or keys, and the socket of a notification to the supervisor. (The files of
  /// the HTTPS certificate are read as blocking work.)
  private static let others = 6
  /// Maximum connections to all other gateways together, in each direction. A forwarded request that waits occupies a
  /// connection.
  static let connectionsWithPeers = 4_096
  /// Maximum number of Sentinels (`store.sentinels`). Each has a connection for its notifications.
  private static let sentinels = 32
  /// The descriptors of the Redis store: connections to Redis (a connection attempt may have a socket for each address
  /// at once), connections to Sentinels, a resolver of its own, and an event loop (its epoll set and its mailbox).
  static let redis = RedisStore.connections * ConnectRace.addressLimit + sentinels + lookUps + 2

  /// Maximum open connections of clients, and to the management listeners.
  let clients: Int
  let management: Int
  /// Maximum connections to all other gateways in one direction, at least one per event loop.
  let peers: Int
  /// Number of sessions that clients can create, limited by the descriptors that remain after `clients`. If the limit
  /// on open files is low, up to a quarter of the available descriptors is kept for these sessions.
  let created: Int
  /// A warning if the settings allow more connections than the limit on open files; otherwise nil.
  let warning: String?

  /// - Parameters:
  ///   - limit: the process's limit on open files.
  ///   - inUse: descriptors open permanently: listeners, event loops, the log.
  ///   - loops: number of event loops. A loop at its limit may accept one more connection for a moment, in order to
  ///     refuse it.
  ///   - sessions: number of sessions, each with one upstream.
  ///   - created: `created_sessions.total`, or 0 without profiles.
  ///   - webhooks: maximum number of requests of all webhooks at a time.
  ///   - clients: `http.connections`.
  ///   - management: `http.management_connections`.
  ///   - hasPeers: whether other gateways share sessions in Redis.
  init(
    limit: Int, inUse: Int, loops: Int, sessions: Int, created: Int = 0, webhooks: Int = 0, clients: Int,
    management: Int, hasPeers: Bool = false
  ) {
    let all = limit - inUse - loops
    // If the limit on open files is low, connections with peers get at most a quarter of `all` for each direction.
    peers = hasPeers ? min(Self.connectionsWithPeers, max(loops, all / 4)) : 0
    let reserved =
      Self.reserve(sessions: sessions, created: created, webhooks: webhooks) + (hasPeers ? 2 * peers + Self.redis : 0)
    let available = max(2, all - reserved)
    // If the limit is low, management gets at most a quarter of the available descriptors: probes and metrics need few.
    self.management = min(management, max(1, available / 4))
    let rest = available - self.management
    let wanted = created * Self.connectionsPerSession
    self.clients = min(clients, max(1, max(rest - wanted, rest - rest / 4)))
    // A reload may add a profile, so the remaining descriptors are counted even without profiles.
    self.created = max(0, rest - self.clients) / Self.connectionsPerSession
    if self.clients < clients {
      warning =
        "open-file limit \(limit) is below http.connections (\(clients)): raise it with `ulimit -n` or lower the setting"
    } else if self.management < management {
      warning =
        "open-file limit \(limit) is too low for http.management_connections (\(management)): raise it with `ulimit -n` or lower the setting"
    } else if self.created < created {
      warning =
        "open-file limit \(limit) is too low for created_sessions.total (\(created)), \(self.created) are possible: raise it with `ulimit -n` or lower the setting"
    } else {
      warning = nil
    }
  }
}
