import ByteStreams

/// The settings of one session's behaviour, with the documented defaults.
package struct SessionSettings: Sendable, Equatable {
  package var limits = TimeLimits()
  package var liveness = LivenessSettings()
  package var heartbeat = HeartbeatSettings()
  package var backoff = BackoffSettings()
  package var endpoints = EndpointSettings()
  package var closing = CloseRules()
  /// The code of a close frame that the gateway sends although the session continues, for example before a reconnect.
  /// With 1000, the code at the end of the process is 1001.
  package var closeCode: UInt16 = 1000
  /// Connect only when there is something to send, and close after `idleAfter` without use.
  package var onDemand = false
  package var idleAfter: TimeSpan = .minutes(5)
  /// The steps to complete before the session is ready.
  package var setup: [SetupStep] = []
  /// Age at which a connection is replaced, ± 5 %; nil if no connection is replaced because of its age.
  package var maximumAge: TimeSpan?
  /// Whether the upstream accepts only one connection of the session: a replacement closes the connection first.
  package var isExclusive = false
  /// How long pushes of a replaced connection are still read.
  package var overlap: TimeSpan = .seconds(1)

  package init() {}
}

/// Timeouts of the parts of a connection's life.
package struct TimeLimits: Sendable, Equatable {
  /// Reading files and running commands, before the name is resolved. `resolving` and `wholeAttempt` start after this
  /// phase.
  package var preparing: TimeSpan = .zero
  package var resolving: TimeSpan = .seconds(5)
  package var connecting: TimeSpan = .seconds(10)
  package var proxying: TimeSpan = .seconds(10)
  package var securing: TimeSpan = .seconds(10)
  package var upgrading: TimeSpan = .seconds(10)
  /// From the start of the attempt to the response to the opening handshake, across all phases.
  package var wholeAttempt: TimeSpan = .seconds(15)
  /// Setup messages and their responses, together.
  package var setup: TimeSpan = .seconds(10)
  /// The closing handshake. After this timeout the socket is reset.
  package var closing: TimeSpan = .seconds(5)

  package init() {}

  package func limit(of phase: AttemptPhase) -> TimeSpan {
    switch phase {
    case .resolving: resolving
    case .connecting: connecting
    case .proxying: proxying
    case .securing: securing
    case .upgrading: upgrading
    case .settingUp: setup
    }
  }
}

/// A step that is completed before the session is ready. The driver stores its message.
package struct SetupStep: Sendable, Equatable {
  package var expectsResponse: Bool
  /// Timeout of the response.
  package var timeLimit: TimeSpan
  /// Whether the setup continues without the response. All optional steps together may take half of `TimeLimits.setup`.
  /// `timeLimit` does not apply to optional steps.
  package var isOptional: Bool

  package init(expectsResponse: Bool, timeLimit: TimeSpan = .seconds(10), isOptional: Bool = false) {
    self.expectsResponse = expectsResponse
    self.timeLimit = timeLimit
    self.isOptional = isOptional
  }
}

/// A reaction to a close code that the configuration can choose (RFC 6455 §7.4).
package enum CloseReaction: String, CaseIterable, Sendable {
  /// The first attempt begins within a second, even after a short-lived connection. Further attempts follow `backoff`.
  case reconnect
  case backoff
  /// As `reconnect`. The driver also forgets the kept values and the cursor, so the next connection does not resume.
  case forget
  /// The credential is read again, and one attempt is made with it. If the upstream rejects that credential, too, the
  /// session is parked.
  case refreshCredential = "refresh-credential"
  case park
  /// The session stays down until an operator opens it.
  case stop
}

package struct CloseRules: Sendable, Equatable {
  /// The first matching range applies. A code that no range contains follows the table of signals (`ReconnectPolicy`).
  package var ranges: [(codes: ClosedRange<UInt16>, reaction: CloseReaction)] = []

  package init() {}

  package static func == (left: CloseRules, right: CloseRules) -> Bool {
    left.ranges.elementsEqual(right.ranges, by: ==)
  }

  /// Whether the upstream has ended its own session, so that the next connection must not resume.
  package func forgets(after code: UInt16) -> Bool { reaction(to: .closed(code: code)) == .forget }

  /// The configured reaction to the close frame of the upstream. Without a configured reaction, 1012 means `reconnect`.
  func reaction(to loss: ConnectionLoss) -> CloseReaction? {
    guard case .closed(let code) = loss else { return nil }
    // 1012 means that the upstream restarts, and that its clients should reconnect.
    return ranges.first { $0.codes.contains(code) }?.reaction ?? (code == 1012 ? .reconnect : nil)
  }
}
