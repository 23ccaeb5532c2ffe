import ByteStreams
import Configuration

/// The timeouts and minimum rates of client connections, from the `http` settings. Each event loop has a copy without references, so
/// that computing a deadline retains nothing.
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

  init(_ settings: GatewaySettings.HTTP) {
    idle = settings.idleTimeout
    head = settings.headTimeout
    body = settings.bodyTimeout
    bodyMinimumRate = settings.bodyMinimumRate
    write = settings.writeTimeout
    writeMinimumRate = settings.writeMinimumRate
    linger = settings.lingerTimeout
  }
}
