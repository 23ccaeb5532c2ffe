import ByteStreams
import Redis
import Replication

/// Where and how sessions are stored that several gateways share.
package struct RedisStoreSettings: Sendable {
  package var target: RedisConnector.Target
  /// Begins the names of all keys.
  package var prefix = "drawbridge"
  /// Number of replicas that must have a change before it counts as stored.
  package var waitReplicas = 0
  package var times = LeaseTimes()
  /// Maximum number of sessions of clients that this gateway holds: those for whose connections there are descriptors.
  package var createdSessions = Int.max
  /// How many sessions are read at a time, after the end of a gateway that had many. A few commands for each flight keep Redis busy.
  package var concurrentLoads = 64
  /// How many whole states are written at a time, after Redis has lost data.
  package var concurrentReplacements = 16
  /// Maximum bytes that wait to be stored. Above it, messages are refused.
  package var pendingBytes = 64 << 20
  /// Above this, nothing is read from upstreams. What is not stored is not shown, so there is no reason to collect more.
  package var pauseBytes = 16 << 20
  /// Where other gateways reach this one, `host:port`.
  package var address = ""
  /// Of the settings that must be the same everywhere.
  package var configuration = ""
  /// The hosts of the configured sessions.
  package var hosts = UpstreamHosts([:])

  package init(_ target: RedisConnector.Target) { self.target = target }
}
