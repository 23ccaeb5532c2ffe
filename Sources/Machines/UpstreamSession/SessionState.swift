/// The state that an operator requested. Only an operator or a shutdown changes it, never a lost connection.
package enum DesiredState: Sendable {
  case up
  case down
}

/// The observed state of a session. Arrows show the main transitions.
package enum SessionState: UInt8, CaseIterable, Sendable {
  /// Closed by request. → resolving
  case stopped
  /// Open, but connects only when there is something to send. → resolving, stopped
  case idle
  /// No route: waits for the network. Attempts in this state are not counted. → resolving, stopped
  case offline
  /// Waits before the next attempt. → resolving, stopped
  case backoff
  /// The upstream refused permanently: retried rarely, or when an operator opens the session. → resolving, stopped
  case parked
  /// Resolves the host name. → connecting, securing, upgrading, and every state after a failed attempt
  case resolving
  case connecting
  case proxying
  case securing
  case upgrading
  /// Upgraded; setup messages and their responses are in progress. Its name in logs and the API is `opening`. → ready
  case settingUp
  /// Messages are sent and received. → suspect, replacing, closing, backoff
  case ready
  /// Ready, but half of the liveness timeout has passed in silence. → ready, backoff
  case suspect
  /// Ready, and a successor is being opened. → ready
  case replacing
  /// The closing handshake is in progress. → stopped, idle, backoff, parked
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

  /// Whether messages can be sent now.
  package var isSending: Bool {
    switch self {
    case .ready, .suspect, .replacing: true
    case .stopped, .idle, .offline, .backoff, .parked, .resolving, .connecting, .proxying, .securing, .upgrading,
      .settingUp, .closing:
      false
    }
  }
}

/// The phase of a connection attempt, in the order in which phases occur.
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
