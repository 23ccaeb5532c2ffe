import ByteStreams
import Threading
import UpstreamSession

/// `HostAttemptLimiter`, shared by all sessions of the process across loops.
package final class DialGate: Sendable {
  private let dials: Locked<HostAttemptLimiter>

  package init(_ limits: AttemptLimits = AttemptLimits()) { dials = Locked(HostAttemptLimiter(limits)) }

  func ask(
    _ host: String, _ ticket: HostAttemptLimiter.Ticket?, overridesHold: Bool = false, now: MonotonicTime
  ) -> HostAttemptLimiter.Verdict {
    dials.withLock { $0.admit(host, ticket, overridesHold: overridesHold, now: now) }
  }

  func ended(_ host: String) { dials.withLock { $0.ended(host) } }

  func hold(_ host: String, until: MonotonicTime) { dials.withLock { $0.hold(host, until: until) } }
}
