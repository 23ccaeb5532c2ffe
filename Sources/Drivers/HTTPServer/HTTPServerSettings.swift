import ByteStreams
import HTTPCodec
import ProxyCodec

/// The settings of the server: trusted proxies, timeouts, and limits of connections and requests.
package struct HTTPServerSettings: Equatable, Sendable {
  package enum ProxyProtocol: String, CaseIterable, Sendable { case off, required }

  /// Limits that the codec enforces.
  package var limits = HTTPLimits()
  package var trustedProxies = TrustedProxies()
  package var proxyProtocol = ProxyProtocol.off
  package var pendingBodyBytes = 256 << 20
  package var headTimeout = TimeSpan.seconds(10)
  package var bodyTimeout = TimeSpan.seconds(30)
  package var bodyMinimumRate = 240
  package var idleTimeout = TimeSpan.seconds(75)
  package var writeTimeout = TimeSpan.seconds(30)
  package var writeMinimumRate = 240
  package var unsentBytes = 256 << 20
  package var lingerTimeout = TimeSpan.seconds(2)
  package var lingerBytes = 1 << 20
  package var connections = 16_384
  package var connectionsPerAddress = 16_384
  package var managementConnections = 256

  package init() {}

  package var bodyBytes: Int { limits.bodyBytes }
}
