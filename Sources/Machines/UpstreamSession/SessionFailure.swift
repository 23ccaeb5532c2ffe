import ByteStreams

/// Why an attempt to open a connection failed.
///
/// What a person would read besides (addresses, response fields, the body's beginning) stays with the driver: a rule
/// never depends on it.
package struct AttemptFailure: Equatable, Sendable {
  package enum Reason: Equatable, Sendable {
    /// A phase took longer than its limit.
    case timedOut
    /// The whole attempt took longer than its limit.
    case attemptTimedOut
    /// The host name does not exist or no server answered for it.
    case nameNotResolved
    /// `ENETDOWN`, `ENETUNREACH`: this machine has no route. Counts no attempt.
    case noRoute
    /// Refused, reset, unreachable host, or the end of the stream before the upgrade was answered.
    case network
    /// Certificate, protocol version or the handshake of TLS.
    case tls
    /// The proxy refused.
    case proxy
    /// The proxy wants credentials, or other ones.
    case proxyDenied
    /// An HTTP answer other than 101. `retryAfter` is what the field of that name asked for.
    case status(Int, retryAfter: TimeSpan?)
    /// An answer to the upgrade that RFC 6455 §4.1 makes us fail: no HTTP, a wrong accept key, what we did not offer.
    case handshake
    /// A redirection that may not be followed: too many, or to a weaker scheme.
    case redirect
    /// The response to a setup message was wrong, or did not come in time.
    case setupAnswer
    /// The response to a setup message says that the credentials are refused.
    case denied
    /// What must be read before a dial (a credential, a certificate) could not be.
    case preparation
  }

  package let phase: AttemptPhase
  package let reason: Reason

  package init(phase: AttemptPhase, reason: Reason) {
    self.phase = phase
    self.reason = reason
  }
}

/// How an open connection came to its end.
package enum ConnectionLoss: Equatable, Sendable {
  /// The upstream sent a close frame. 1005 stands for one without a code (RFC 6455 §7.1.5).
  case closed(code: UInt16)
  /// The stream ended without a close frame (1006).
  case ended
  /// The socket failed: reset, timed out by the kernel.
  case reset
  /// This machine lost its route.
  case noRoute
  /// The local address of the socket is gone.
  case addressGone
  /// Nothing was heard within the liveness deadline.
  case silence
  /// A heartbeat message was not answered in time, or the upstream's own stayed away.
  case heartbeat
  /// The upstream broke the protocol; we failed the connection with this code.
  case violation(code: UInt16)

  /// The close code that stands for this end in the table of signals.
  package var code: UInt16 {
    switch self {
    case .closed(let code): code
    case .ended, .reset, .noRoute, .addressGone, .silence, .heartbeat: 1006
    case .violation(let code): code
    }
  }
}

/// Why a connection is replaced while it works.
package enum ReplacementReason: Equatable, Sendable {
  case configuration
  case credential
  case maximumAge
}

/// Why a session changed its state.
package enum TransitionCause: Equatable, Sendable {
  case operatorRequest
  case shutdown
  /// Something to send has come to an on-demand session.
  case demand
  /// An on-demand session was unused for its time limit.
  case unused
  /// The attempt went on, or was completed.
  case progress
  case attemptFailed(AttemptFailure)
  case lost(ConnectionLoss)
  /// Half of the liveness deadline has passed without a byte.
  case quiet
  /// A byte came after that.
  case heard
  /// The wait before the dial is over.
  case waited
  case networkChanged
  /// The process has dialled the host as often as it may for now.
  case postponed
  case replacement(ReplacementReason)
  /// The closing handshake is over, or its time was.
  case closed
  /// The configured number of attempts is used up.
  case attemptsExhausted
}
