import ByteStreams

/// Why a connection attempt failed.
///
/// Details for operators (addresses, header fields, the beginning of the body) stay with the driver. No rule depends on
/// them.
package struct AttemptFailure: Equatable, Sendable {
  package enum Reason: Equatable, Sendable {
    /// A phase exceeded its timeout.
    case timedOut
    /// The whole attempt exceeded its timeout.
    case attemptTimedOut
    /// The host name does not exist, or no name server responded.
    case nameNotResolved
    /// The session must not connect to the host, or to any of its addresses.
    case notAllowed
    /// `ENETDOWN`, `ENETUNREACH`: this machine has no route. This failure does not count as an attempt.
    case noRoute
    /// Connection refused or reset, host unreachable, or end of stream before the response to the opening handshake.
    case network
    /// The TLS handshake failed, for example because of the certificate or the protocol version.
    case tls
    /// The proxy refused.
    case proxy
    /// The proxy requires credentials, or rejects the credentials that were sent.
    case proxyDenied
    /// An HTTP response other than 101. `retryAfter`: the value of its Retry-After field.
    case status(Int, retryAfter: TimeSpan?)
    /// A response that fails the connection under RFC 6455 §4.1: not HTTP, a wrong accept key, or an extension or
    /// subprotocol that the gateway did not offer.
    case handshake
    /// A redirection that must not be followed: there were too many, or it leads to a less secure scheme.
    case redirect
    /// The response to a setup message was wrong or did not arrive in time.
    case setupResponse
    /// The response to a setup message rejects the credentials.
    case denied
    /// The upstream speaks another version of the protocol above WebSocket.
    case wrongVersion
    /// A file, credential or certificate that the attempt needs could not be read.
    case preparation
  }

  package let phase: AttemptPhase
  package let reason: Reason

  package init(phase: AttemptPhase, reason: Reason) {
    self.phase = phase
    self.reason = reason
  }
}

/// How an open connection ended.
package enum ConnectionLoss: Equatable, Sendable {
  /// The upstream sent a close frame; 1005 if it had no code (RFC 6455 §7.1.5).
  case closed(code: UInt16)
  /// The stream ended without a close frame (1006).
  case ended
  /// The socket failed: it was reset, or timed out in the kernel.
  case reset
  /// This machine lost its route.
  case noRoute
  /// The local address of the socket is gone.
  case addressGone
  /// Nothing arrived before the liveness deadline.
  case silence
  /// Like `silence`, and the upstream acknowledged none of the pending output.
  case stalled
  /// The response to a heartbeat message, or the upstream's own heartbeat, is overdue.
  case heartbeat
  /// The upstream violated the protocol; the gateway failed the connection with this code.
  case violation(code: UInt16)

  /// The close code under which the table of signals (`ReconnectPolicy`) lists this end of a connection.
  package var code: UInt16 {
    switch self {
    case .closed(let code): code
    case .ended, .reset, .noRoute, .addressGone, .silence, .stalled, .heartbeat: 1006
    case .violation(let code): code
    }
  }
}

/// Why a working connection is replaced.
package enum ReplacementReason: Equatable, Sendable {
  case configuration
  /// A reload without a changed setting. A certificate or credential that connections read may have changed.
  case reload
  case maximumAge
}

/// Why a session changed state.
package enum TransitionCause: Equatable, Sendable {
  case operatorRequest
  case shutdown
  /// An on-demand session has something to send.
  case demand
  /// An on-demand session had nothing to send for `SessionSettings.idleAfter`.
  case unused
  /// The attempt reached its next phase, or was completed.
  case progress
  case attemptFailed(AttemptFailure)
  case lost(ConnectionLoss)
  /// Half of the liveness timeout has passed without a byte.
  case quiet
  /// A byte arrived after `quiet`, or the upstream has acknowledged more output.
  case bytesReceived
  /// The wait before the attempt is over.
  case waited
  case networkChanged
  /// The process may not connect to the host yet: the limit of attempts is reached, or the host has requested a pause.
  case postponed
  case replacement(ReplacementReason)
  /// The closing handshake is over, or timed out.
  case closed
  /// The configured number of attempts is exhausted.
  case attemptsExhausted
}
