import ByteStreams

/// The timeouts and minimum rates of client connections, from the `http` settings. Each event loop has a copy without
/// references, so that computing a deadline retains nothing.
struct ConnectionTimeouts {
  let idle: TimeSpan
  let head: TimeSpan
  let body: TimeSpan
  /// Bytes per second; 0 for no minimum.
  let bodyMinimumRate: Int
  let write: TimeSpan
  /// Bytes per second; 0 for no minimum.
  let writeMinimumRate: Int
  let linger: TimeSpan

  /// The shortest idle timeout for a connection of another gateway. The gateway that sends requests keeps idle
  /// connections for 15 s (`HTTPClient`), and must be the first to close the connection. If the other side closed it
  /// first, the sender could not know whether a request that was under way had been read.
  private static var peerIdle: TimeSpan { .seconds(20) }

  init(_ settings: HTTPServerSettings, for role: HTTPListener.Role = .client) {
    idle = role == .peer ? max(settings.idleTimeout, Self.peerIdle) : settings.idleTimeout
    head = settings.headTimeout
    body = settings.bodyTimeout
    bodyMinimumRate = settings.bodyMinimumRate
    write = settings.writeTimeout
    writeMinimumRate = settings.writeMinimumRate
    linger = settings.lingerTimeout
  }
}
