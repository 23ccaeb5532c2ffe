import ByteStreams
import UpstreamSession

extension SessionTransition {
  /// Whether the transition reports a failure. The end of a closing handshake does not, since a failure was already
  /// reported at its beginning.
  var isFailure: Bool {
    switch cause {
    case .attemptFailed, .lost, .attemptsExhausted: from != .closing
    case .operatorRequest, .shutdown, .demand, .unused, .progress, .quiet, .bytesReceived, .waited, .networkChanged,
      .replacement, .closed, .postponed:
      false
    }
  }

  /// Whether a connection has become ready.
  var isConnection: Bool { to == .ready && cause == .progress }

  /// Whether the transition is an intermediate step of an attempt, or the end of a wait whose beginning was reported.
  var isStep: Bool {
    switch cause {
    case .progress: !isConnection
    case .waited: true
    case .operatorRequest, .shutdown, .demand, .unused, .attemptFailed, .lost, .quiet, .bytesReceived, .networkChanged,
      .postponed, .replacement, .closed, .attemptsExhausted:
      false
    }
  }

  /// The phase and reason of a failed attempt; nil for other causes.
  package var failure: AttemptFailure? {
    if case .attemptFailed(let failure) = cause { failure } else { nil }
  }

  /// The cause in a few words, for logs and metrics.
  package var causeText: String {
    switch cause {
    case .operatorRequest: "request"
    case .shutdown: "shutdown"
    case .demand: "demand"
    case .unused: "unused"
    case .progress: "progress"
    case .attemptFailed(let failure): "\(failure.phase.state.name) failed: \(failure.reason.text)"
    case .lost(let loss): loss.text
    case .quiet: "no data received"
    case .bytesReceived: "data received"
    case .waited: "wait ended"
    case .networkChanged: "network changed"
    case .replacement(.configuration): "new configuration"
    case .replacement(.reload): "reload without a changed setting"
    case .replacement(.maximumAge): "maximum age"
    case .closed: "closed"
    case .postponed: "waiting for the connection limit of the host"
    case .attemptsExhausted: "attempts exhausted"
    }
  }
}

extension AttemptFailure.Reason {
  var text: String {
    switch self {
    case .timedOut, .attemptTimedOut: "timed out"
    case .nameNotResolved: "name not resolved"
    case .notAllowed: "address not allowed"
    case .noRoute: "no route"
    case .network: "network"
    case .tls: "tls"
    case .proxy: "proxy"
    case .proxyDenied: "proxy credentials"
    case .status(let status, retryAfter: _): "status \(status)"
    case .handshake: "handshake"
    case .redirect: "redirect"
    case .setupResponse: "no response to an opening message"
    case .denied: "credentials refused"
    case .wrongVersion: "wrong version of the protocol"
    case .preparation: "preparation"
    }
  }
}

extension ConnectionLoss {
  var text: String {
    switch self {
    case .closed(let code): "closed by the upstream with \(code)"
    case .ended: "ended without a close frame"
    case .reset: "reset"
    case .noRoute: "no route"
    case .addressGone: "address gone"
    case .silence: "silence"
    case .stalled: "stalled"
    case .heartbeat: "heartbeat"
    case .violation(let code): "protocol violation (\(code))"
    }
  }
}

extension AttemptPhase {
  /// The text for a missed timeout: the missing event, and the setting of `upstream.timeouts` that applied.
  func timeoutText(_ limit: TimeSpan, key: String? = nil) -> String {
    "\(missedEvent) within \(limit.secondsText) s ('upstream.timeouts.\(key ?? timeoutKey)')"
  }

  /// The event that is missing when this phase times out.
  private var missedEvent: String {
    switch self {
    case .resolving: "the name server did not respond"
    case .connecting: "the upstream did not respond to the TCP handshake"
    case .proxying: "the proxy did not open a tunnel to the upstream"
    case .securing: "the TLS handshake with the upstream did not complete"
    case .upgrading: "the upstream did not respond to the opening request"
    case .settingUp: "the upstream did not respond to an opening message"
    }
  }

  /// The setting that limits this phase, below `upstream.timeouts`.
  private var timeoutKey: String {
    switch self {
    case .resolving: "resolve"
    case .connecting: "connect"
    case .proxying: "proxy"
    case .securing: "tls"
    case .upgrading: "upgrade"
    case .settingUp: "on_open"
    }
  }
}
