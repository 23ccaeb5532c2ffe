import Reactor
import Upstream

/// How the file descriptors of the process are dealt out, so that clients cannot take those of the upstream and of management.
struct DescriptorBudget: Equatable {
  /// Kept free for everything but clients. Each part is the most that its users can hold, also when everything hangs.
  static func reserve(sessions: Int) -> Int {
    sessions * connectionsPerSession + min(sessions, racingSessions) * ConnectRace.addressLimit + lookUps + blockingWork
      + others
  }
  /// A connection, its predecessor and its successor during a hand-over.
  private static let connectionsPerSession = 3
  /// Sessions whose connection attempts have all of their addresses open at once. More of them are rare: most names have few addresses
  /// that hang. An attempt that finds no descriptor fails and is repeated.
  private static let racingSessions = 8
  private static let lookUps = Resolver.threadCount * Resolver.descriptorsPerThread
  /// Certificates, secrets and credential commands.
  private static let blockingWork = BlockingLanes.threadLimit * BlockingLanes.descriptorsPerThread
  /// Netlink, the folder or file below /proc that a metric is read from, and the configuration when it is read again.
  private static let others = 3

  /// Connections of clients and to the management listeners, open at once.
  let clients: Int
  let management: Int
  /// What the settings ask for, if it is more than that; else nil.
  let warning: String?

  /// - Parameters:
  ///   - limit: the process's limit on open files.
  ///   - inUse: descriptors that are open for good: listeners, event loops, the log.
  ///   - loops: each may hold one connection more for a moment, to refuse it.
  ///   - sessions: with an upstream each.
  ///   - clients: `http.connections`.
  ///   - management: `http.management_connections`.
  init(limit: Int, inUse: Int, loops: Int, sessions: Int, clients: Int, management: Int) {
    let available = max(2, limit - inUse - loops - Self.reserve(sessions: sessions))
    // At most a quarter, where there are few: probes and metrics need only some.
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
