import ByteStreams
import Continuity
import Metrics
import UpstreamSession

/// Publishes a session's transitions.
extension SessionDriver {
  func publish(_ transition: SessionTransition) {
    status.record(
      transition, machine, concerned: connection(transition.generation), newest: connection(machine.generation),
      explanation: explanation(of: transition.cause))
    if losesPushes(transition) { sink.connectionLost() }
    metrics.transitions(to: transition.to).add()
    if transition.isConnection { metrics.connections.add() }
    if transition.isFailure { metrics.failures.add() }
  }

  private func losesPushes(_ transition: SessionTransition) -> Bool {
    continuity.changed(
      didSend: transition.from.isSending, sends: transition.to.isSending, wasClosing: transition.from == .closing,
      closes: transition.to == .closing, upstreamHasEnded: transition.cause.isLoss && !isEnding)
  }

  /// The description for a failure that the driver has reported without a description.
  private func explanation(of cause: TransitionCause) -> String? {
    let limits = settings.session.limits
    return switch cause {
    case .attemptFailed(let failure) where failure.reason == .setupResponse: runner.setupTimeoutText(preparedSettings)
    case .attemptFailed(let failure) where failure.reason == .timedOut:
      failure.phase.timeoutText(limits.limit(of: failure.phase))
    case .attemptFailed(let failure) where failure.reason == .attemptTimedOut:
      failure.phase.timeoutText(limits.wholeAttempt, key: "opening")
    case .lost(.silence):
      "the upstream sent nothing within 'upstream.heartbeat.timeout' after a ping"
    case .lost(.stalled):
      "the upstream read no further bytes of a message and sent nothing within 'upstream.heartbeat.timeout'"
    case .lost(.heartbeat):
      "the upstream sent no heartbeat, or no response to one, in time ('upstream.heartbeat')"
    default: nil
    }
  }
}

extension TransitionCause {
  fileprivate var isLoss: Bool {
    if case .lost = self { true } else { false }
  }
}
