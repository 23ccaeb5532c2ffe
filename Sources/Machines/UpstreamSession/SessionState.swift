/// What an operator wants of a session. Only an operator or shutdown changes it; a lost connection never does.
package enum DesiredState: Sendable {
  case up
  case down
}

/// What is observed of a session.
package enum SessionState: UInt8, CaseIterable, Sendable {
  /// Not wanted. → resolving
  case stopped
  /// Wanted, but opened only when there is something to send. → resolving, stopped
  case idle
  /// No route to anywhere: waits for the network, counts no attempt. → resolving, stopped
  case offline
  /// Waits before the next dial. → resolving, stopped
  case backoff
  /// The upstream refused for good: retried rarely, or when an operator says so. → resolving, stopped
  case parked
  /// Looks the host name up. → connecting, securing, upgrading, and every way an attempt fails
  case resolving
  case connecting
  case proxying
  case securing
  case upgrading
  /// Upgraded; setup messages and the responses that they expect are under way. Its name in logs and the API is `opening`. → ready
  case settingUp
  /// Messages flow. → suspect, replacing, closing, backoff
  case ready
  /// Ready, but half of the liveness deadline has passed in silence. → ready, backoff
  case suspect
  /// Ready, and a successor is being opened. → ready
  case replacing
  /// The closing handshake is under way. → stopped, idle, backoff, parked
  case closing

  /// The name used in logs, metrics and the API.
  package var name: String {
    switch self {
    case .stopped: "stopped"
    case .idle: "idle"
    case .offline: "offline"
    case .backoff: "backoff"
    case .parked: "parked"
    case .resolving: "resolving"
    case .connecting: "connecting"
    case .proxying: "proxying"
    case .securing: "securing"
    case .upgrading: "upgrading"
    case .settingUp: "opening"
    case .ready: "ready"
    case .suspect: "suspect"
    case .replacing: "replacing"
    case .closing: "closing"
    }
  }

  /// Whether messages can be written now.
  package var isSending: Bool {
    switch self {
    case .ready, .suspect, .replacing: true
    case .stopped, .idle, .offline, .backoff, .parked, .resolving, .connecting, .proxying, .securing, .upgrading,
      .settingUp, .closing:
      false
    }
  }
}

/// How far a connection attempt has come. The order is that of the wire.
package enum AttemptPhase: UInt8, Comparable, CaseIterable, Sendable {
  case resolving
  case connecting
  case proxying
  case securing
  case upgrading
  case settingUp

  package static func < (left: AttemptPhase, right: AttemptPhase) -> Bool { left.rawValue < right.rawValue }

  package var state: SessionState {
    switch self {
    case .resolving: .resolving
    case .connecting: .connecting
    case .proxying: .proxying
    case .securing: .securing
    case .upgrading: .upgrading
    case .settingUp: .settingUp
    }
  }
}
