import ByteStreams
import HTTPCodec
import Profiles
import ProxyCodec
import TLSEngine

/// Opens transports: resolves a host name, and connects by TCP, through a proxy and with TLS if these are configured.
///
/// It is independent of the protocol above the transport. It runs in the caller's task, on the caller's event loop. It
/// has no timeouts of its own: the caller cancels it.
package protocol Dialer: AnyObject {
  /// Opens a transport to `destination`.
  ///
  /// - Parameters:
  ///   - cancellation: ends the current wait, so that the function throws `.cancelled`.
  ///   - input: gets the bytes that have arrived after a proxy's response and are not read yet.
  ///   - report: called when a phase begins, except the first (`resolving`).
  func dial(
    _ destination: DialDestination, _ cancellation: Cancellation, _ input: inout ByteQueue,
    report: (DialPhase) -> Void
  ) async throws(DialError) -> Transport
}

/// The destination of a transport and the parameters for reaching it.
package struct DialDestination {
  /// Name or address, without brackets.
  let host: String
  let port: UInt16
  /// Host and port for the proxy's CONNECT request.
  let authority: String
  /// The proxy; nil for a direct connection.
  let proxy: ProxyURL?
  /// The TLS context; nil for a connection without TLS.
  let tls: TLSContext?
  /// Maximum time without an acknowledgement before the kernel ends the connection (`TCP_USER_TIMEOUT`).
  let userTimeout: TimeSpan
  /// The rules about the addresses to which the gateway may connect; nil if it may connect to any address. They are not
  /// applied to the address of a proxy, which the operator has chosen.
  var rules: ConnectionRules?
  /// The permission to write; nil if the transport may always write.
  package var permission: WritePermission?

  package init(
    host: String, port: UInt16, authority: String, proxy: ProxyURL?, tls: TLSContext?, userTimeout: TimeSpan,
    rules: ConnectionRules? = nil
  ) {
    self.host = host
    self.port = port
    self.authority = authority
    self.proxy = proxy
    self.tls = tls
    self.userTimeout = userTimeout
    self.rules = rules
  }
}

/// The phase of a connection attempt, in the order in which phases occur.
package enum DialPhase: String, Sendable {
  case resolving
  case connecting
  case proxying
  case securing
}

package enum DialError: Error {
  case cancelled
  case failed(DialFailure)
}

/// Why a transport could not be opened.
package struct DialFailure {
  package enum Reason {
    case nameNotResolved
    /// The rules for connections refuse the host, or all of its addresses.
    case notAllowed
    /// This machine has no route to the destination.
    case noRoute
    case network
    case tls(TLSError)
    case proxy
    /// The proxy requires credentials, or rejects the credentials that were sent.
    case proxyDenied
    /// The TLS settings do not fit the destination, or their files cannot be read.
    case preparation
  }

  package let phase: DialPhase
  package let reason: Reason
  /// The failure in words, for an operator.
  package let report: ReportText
  package var detail: String { report.description }
  /// The HTTP response of the proxy and the beginning of its body, if the proxy has refused the request.
  package internal(set) var refusal: (head: HTTPRefusal, body: String)?
  /// The address that is not allowed. It is for the log only.
  package internal(set) var refusedAddress: String?

  init(_ phase: DialPhase, _ reason: Reason, _ report: ReportText) {
    self.phase = phase
    self.reason = reason
    self.report = report
  }
}

extension DialError {
  package static func failed(_ phase: DialPhase, _ reason: DialFailure.Reason, _ report: ReportText) -> DialError {
    .failed(DialFailure(phase, reason, report))
  }
}
