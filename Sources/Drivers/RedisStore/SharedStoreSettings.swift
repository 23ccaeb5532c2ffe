import ByteStreams
import RedisProtocol
import Replication
import TLSEngine

/// The Redis that stores the sessions of several gateways (`store.engine: redis`).
package struct SharedStoreSettings: Equatable, Sendable {
  /// A URL as it was written, with its credentials.
  package struct Location: Equatable, Sendable {
    package let url: RedisURL
    package let text: String

    package init(_ url: RedisURL, text: String) {
      self.url = url
      self.text = text
    }
  }

  /// The server. If there are Sentinels, the host of this URL is ignored, but the user, password, database and scheme
  /// are used.
  package var location: Location?
  /// The Sentinels. If empty, `location` is the server.
  package var sentinels: [Location] = []
  /// The name of the primary at the Sentinels.
  package var sentinelName = "main"
  /// The password, which replaces the URL's password; empty to use the URL's password.
  package var password = ""
  package var tls = TLSClientSettings()
  /// The prefix of all keys. Gateways with the same prefix share their sessions.
  package var prefix = ""
  /// Number of Redis replicas that must have a change before the change is treated as stored. nil means 1 with
  /// Sentinels, and 0 without.
  package var waitReplicas: Int?
  /// How long a gateway remains the holder of its sessions after its last heartbeat.
  package var lease = TenureTimes().lease

  package init() {}

  /// The server with the password. If there are Sentinels and no URL, the host is a placeholder.
  package var server: RedisURL? {
    var url = location?.url
    if url == nil, !sentinels.isEmpty { url = try? RedisURL("redis://sentinel") }
    if !password.isEmpty { url?.credentials.password = password }
    return url
  }

  package var replicas: Int { waitReplicas ?? (sentinels.isEmpty ? 0 : 1) }
}
