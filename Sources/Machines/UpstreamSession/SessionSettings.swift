import ByteStreams

/// What is configured of one session's behaviour. Every default is that of the manual.
package struct SessionSettings: Sendable, Equatable {
  package var limits = TimeLimits()
  package var liveness = LivenessSettings()
  package var heartbeat = HeartbeatSettings()
  package var backoff = BackoffSettings()
  package var endpoints = EndpointSettings()
  package var closing = CloseRules()
  /// Opened only when there is something to send, and closed after `idleAfter` without any.
  package var onDemand = false
  package var idleAfter: TimeSpan = .minutes(5)
  /// Messages to send, and answers to await, before the session is ready.
  package var setup: [SetupStep] = []
  /// Age at which a connection is replaced by a successor, ± 5 %; nil: never.
  package var maximumAge: TimeSpan?
  /// How long a replaced connection is still listened to.
  package var overlap: TimeSpan = .seconds(1)

  package init() {}
}

/// How long each part of a connection's life may take.
package struct TimeLimits: Sendable, Equatable {
  /// For what is read before the look-up, such as a credential. The limits of the look-up and the whole count from its end.
  package var preparing: TimeSpan = .zero
  package var resolving: TimeSpan = .seconds(5)
  package var connecting: TimeSpan = .seconds(10)
  package var proxying: TimeSpan = .seconds(10)
  package var securing: TimeSpan = .seconds(10)
  package var upgrading: TimeSpan = .seconds(10)
  /// From the start of the attempt to the response to the upgrade, whatever its parts took.
  package var wholeAttempt: TimeSpan = .seconds(15)
  /// Setup messages and their responses, together.
  package var setup: TimeSpan = .seconds(10)
  /// The closing handshake; then the socket is reset.
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

/// One message that is sent before the session is ready. The driver has its text.
package struct SetupStep: Sendable, Equatable {
  package var expectsAnswer: Bool
  /// How long the answer may take.
  package var timeLimit: TimeSpan

  package init(expectsAnswer: Bool, timeLimit: TimeSpan = .seconds(10)) {
    self.expectsAnswer = expectsAnswer
    self.timeLimit = timeLimit
  }
}

/// What follows a close code to which the configuration gives a meaning of its own (RFC 6455 §7.4.2).
package enum CloseReaction: String, CaseIterable, Sendable {
  case backoff
  /// The credential is read again once, then the session is parked.
  case refreshCredential = "refresh-credential"
  case park
  /// The session stays down until an operator opens it.
  case stop
}

package struct CloseRules: Sendable, Equatable {
  /// First match wins; a code in none of them follows the table of signals.
  package var ranges: [(codes: ClosedRange<UInt16>, reaction: CloseReaction)] = []

  package init() {}

  package static func == (left: CloseRules, right: CloseRules) -> Bool {
    left.ranges.elementsEqual(right.ranges, by: ==)
  }

  func reaction(to code: UInt16) -> CloseReaction? {
    ranges.first { $0.codes.contains(code) }?.reaction
  }
}
