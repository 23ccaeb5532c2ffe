/// Why a connection to Redis could not be opened, or has ended. Descriptions are for operators and contain no
/// credentials.
package enum RedisFailure: Error, Hashable, Sendable, CustomStringConvertible {
  /// No connection could be opened, because of the name, the network or TLS.
  case unreachable(String)
  /// The text names the event that did not happen in time.
  case timeout(String)
  /// An error reply that ends the connection.
  case refused(RedisError)
  /// The server cannot be used.
  case unsuitable(Unsuitability)
  /// The reply of the server is not valid for the command.
  case violation(String)
  /// The server, or the network, has ended the connection.
  case disconnected(String)
  /// The owner of the connection has closed it.
  case closed

  package enum Unsuitability: Hashable, Sendable {
    case replica
    case version(String)
    /// The server's mode: `standalone`, `sentinel` or `cluster`.
    case mode(String)
    /// `INFO` lacks this required field, or its value is not valid.
    case noField(String)
    /// The server reports a different digest of a script than the gateway has computed.
    case scriptDigest
    /// Sentinel has no primary of this name.
    case noPrimary(String)
  }

  /// Whether the server does not accept the user or the password. The next attempt fails in the same way until an
  /// operator acts.
  package var isAboutCredentials: Bool {
    guard case .refused(let error) = self else { return false }
    return error.kind == .wrongPassword || error.kind == .noAuth
  }

  package var description: String {
    switch self {
    case .unreachable(let detail), .disconnected(let detail): detail
    case .timeout(let what): "\(what) in time"
    case .refused(let error): "Redis replied '\(error)'"
    case .violation(let detail): "Redis sent an invalid reply: \(detail)"
    case .closed: "the connection was closed"
    case .unsuitable(let reason):
      switch reason {
      case .replica: "the server is a replica: the address of the primary is required"
      case .version(let text): "the server has version \(text): 6.2 or later is required"
      case .mode(let mode): "the server runs in mode '\(mode)', which is not supported here"
      case .noField(let name): "INFO has no valid field '\(name)'"
      case .scriptDigest: "the server stored a script under another digest"
      case .noPrimary(let name): "Sentinel does not have a primary with the name '\(name)'"
      }
    }
  }
}
