import ByteStreams
import HTTPCodec
import ProxyCodec
import TLSEngine

/// Opens transports: from a host's name to a TCP connection, through a proxy and TLS where they are configured.
///
/// It knows nothing of what is said over the transport. It runs in the caller's task, on the caller's event loop, and sets no time limit
/// of its own: the caller cancels.
protocol Dialer: AnyObject {
  /// Opens a transport to `destination`.
  ///
  /// - Parameters:
  ///   - cancellation: ends the wait at hand; then `.cancelled` is thrown.
  ///   - input: receives what the peer sent behind a proxy's response, where nothing has read it yet.
  ///   - report: called when a phase begins, but for the first (`resolving`).
  func dial(
    _ destination: DialDestination, _ cancellation: Cancellation, _ input: inout ByteQueue,
    report: (DialPhase) -> Void
  ) async throws(DialError) -> Transport
}

/// Where a transport is to lead, and how.
struct DialDestination {
  /// Name or address, without brackets.
  let host: String
  let port: UInt16
  /// Host and port as a proxy is asked for them (CONNECT).
  let authority: String
  /// nil: the destination is connected to directly.
  let proxy: ProxyURL?
  /// nil: without TLS.
  let tls: TLSContext?
  /// How long the kernel may go without an acknowledgement before it gives the connection up (`TCP_USER_TIMEOUT`).
  let userTimeout: TimeSpan
}

/// How far a dial has come, in the order of the wire.
enum DialPhase: String, Sendable {
  case resolving
  case connecting
  case proxying
  case securing
}

enum DialError: Error {
  case cancelled
  case failed(DialFailure)
}

/// Why no transport came about.
struct DialFailure {
  enum Reason {
    case nameNotResolved
    /// This machine has no route.
    case noRoute
    case network
    case tls(TLSError)
    case proxy
    /// The proxy wants credentials, or other ones.
    case proxyDenied
    /// The TLS settings do not fit the destination.
    case preparation
  }

  let phase: DialPhase
  let reason: Reason
  /// What was wrong, for an operator.
  let detail: String
  /// The proxy's HTTP response and the beginning of its body, where that was the reason.
  var refusal: (head: HTTPRefusal, body: String)?

  init(_ phase: DialPhase, _ reason: Reason, _ detail: String) {
    self.phase = phase
    self.reason = reason
    self.detail = detail
  }
}

extension DialError {
  static func failed(_ phase: DialPhase, _ reason: DialFailure.Reason, _ detail: String) -> DialError {
    .failed(DialFailure(phase, reason, detail))
  }
}
