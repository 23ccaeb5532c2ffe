import Reactor
import Upstream

/// Divides the file descriptors of the process, so that clients cannot use up those of the upstream and of management.
struct DescriptorBudget: Equatable {
  /// Descriptors reserved for everything but clients and management. Each part is the maximum that its users can hold, even when
  /// every operation hangs.
  static func reserve(sessions: Int) -> Int {
    sessions * connectionsPerSession + min(sessions, racingSessions) * ConnectRace.addressLimit + lookUps + blockingWork
      + others
  }
  /// A connection, and its predecessor and successor during a hand-over.
  private static let connectionsPerSession = 3
  /// Sessions whose connection attempts have all their addresses open at once. More are rare, since few names have many addresses
  /// that hang. An attempt without a descriptor fails and is repeated.
  private static let racingSessions = 8
  private static let lookUps = Resolver.threadCount * Resolver.descriptorsPerThread
  /// Reading certificates and secrets, and running credential commands.
  private static let blockingWork = BlockingThreadPool.threadLimit * BlockingThreadPool.descriptorsPerThread
  /// Netlink, inotify, the file or directory under /proc that a metric reads, the configuration file during a reload, a file of tokens or
  /// keys, and the socket of a notification to the supervisor. (The files of the HTTPS certificate are read as blocking work.)
  private static let others = 6

  /// Maximum open connections of clients and on the management listeners.
  let clients: Int
  let management: Int
  /// A warning if the settings allow more connections than the limit on open files; else nil.
  let warning: String?

  /// - Parameters:
  ///   - limit: the process's limit on open files.
  ///   - inUse: descriptors open permanently: listeners, event loops, the log.
  ///   - loops: number of event loops. Each may briefly hold one more connection to refuse it.
  ///   - sessions: number of sessions, each with one upstream.
  ///   - clients: `http.connections`.
  ///   - management: `http.management_connections`.
  init(limit: Int, inUse: Int, loops: Int, sessions: Int, clients: Int, management: Int) {
    let available = max(2, limit - inUse - loops - Self.reserve(sessions: sessions))
    // At most a quarter of a low limit: probes and metrics need few.
    self.management = min(management, max(1, available / 4))
    self.clients = min(clients, available - self.management)
    if self.clients < clients {
      warning =
        "open-file limit \(limit) is below http.connections (\(clients)): raise it with `ulimit -n` or lower the setting"
    } else if self.management < management {
      warning =
        "open-file limit \(limit) is too low for http.management_connections (\(management)): raise it with `ulimit -n` or lower the setting"
    } else {
      warning = nil
    }
  }
}
