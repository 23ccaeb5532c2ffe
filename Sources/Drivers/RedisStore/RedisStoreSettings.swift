import ByteStreams
import Redis
import Replication

/// The settings of a store in Redis, for sessions that several gateways share.
package struct RedisStoreSettings: Sendable {
  package var target: RedisConnector.Target
  /// The prefix of the names of all keys.
  package var prefix = "drawbridge"
  /// Number of replicas that must confirm a change before it counts as stored.
  package var waitReplicas = 0
  package var times = TenureTimes()
  /// Maximum number of created sessions with this gateway as their holder: the number of connections that the limit on
  /// open files allows.
  package var createdSessions = Int.max
  /// Number of sessions that are read at the same time, for example after the end of a gateway with many sessions. A
  /// few commands in each flight are enough to keep Redis busy.
  package var concurrentLoads = 64
  /// Number of whole states that are written at the same time, after Redis has lost data.
  package var concurrentReplacements = 16
  /// Maximum bytes of entries that are not stored yet. Above it, messages are refused.
  package var pendingBytes = 64 << 20
  /// Above this many pending bytes, upstreams are not read. Pushes are not shown before they are stored, so there is no
  /// reason to collect more.
  package var pauseBytes = 16 << 20
  /// The address at which other gateways reach this gateway, `host:port`.
  package var address = ""
  /// A digest of the settings that must be the same at all gateways.
  package var configuration = ""
  /// The hosts of the configured sessions' upstreams.
  package var hosts = UpstreamHosts([:])

  package init(_ target: RedisConnector.Target) { self.target = target }
}
