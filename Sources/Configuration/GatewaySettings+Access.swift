import API
import ByteStreams
import Host
import TLSEngine

/// Who may use a gateway whose configuration has no authentication.
package enum OpenAccess: String, CaseIterable, Sendable {
  /// Only programs of this machine. A listener that other machines can reach is an error.
  case auto
  /// Everyone who can connect.
  case none
}

extension GatewaySettings {
  /// If clients on other machines can reach listeners without authentication, and the operator has not allowed that,
  /// returns the problems of these listeners.
  ///
  /// This check is not a rule of the section, because `healthcheck` reads the same settings but does not open the
  /// listeners.
  package func accessProblems() -> [SettingProblem] {
    if authentication.isConfigured || access == .none { return [] }
    // If client certificates are required, a client without a certificate of the authority cannot send a request to an
    // HTTPS listener.
    let isClosed = listeners.tls.clientCertificates == .required
    let keys = [("listeners.http", listeners.http), ("listeners.https", isClosed ? [] : listeners.https)]
    return keys.flatMap { key, addresses in addresses.enumerated().map { (key, $0, $1) } }.compactMap {
      key, index, address in
      guard address.ip.map({ !$0.isLoopback }) ?? false else { return nil }
      return SettingProblem(
        key, .item(index),
        "other machines can connect to it, and clients need no authentication: set authentication.tokens to a file of tokens ('drawbridge token --help'), use a loopback address or a Unix socket, or set access to none (--access none, DRAWBRIDGE_ACCESS=none) so that everyone who can connect may send and receive",
        comparedWith: Self.accessPaths)
    }
  }

  private static let accessPaths = [
    "access", "authentication.tokens", "authentication.jwt.keys", "authentication.certificates",
  ]
}
