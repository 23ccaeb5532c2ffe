import ByteStreams
import Threading
import UpstreamSession

/// A thread-safe `HostAttemptLimiter` for sessions on several loops. One instance limits all configured sessions. A
/// second instance limits all created sessions.
package final class ConcurrentAttemptLimiter: Sendable {
  private let limiter: Locked<HostAttemptLimiter>

  package init(_ limits: AttemptLimits = AttemptLimits()) { limiter = Locked(HostAttemptLimiter(limits)) }

  func admit(
    _ host: String, _ ticket: HostAttemptLimiter.Ticket?, overridesPause: Bool = false, now: MonotonicTime
  ) -> HostAttemptLimiter.Verdict {
    limiter.withLock { $0.admit(host, ticket, overridesPause: overridesPause, now: now) }
  }

  func ended(_ host: String) { limiter.withLock { $0.ended(host) } }

  func giveBack(_ ticket: HostAttemptLimiter.Ticket, now: MonotonicTime) {
    limiter.withLock { $0.giveBack(ticket, now: now) }
  }

  func pause(_ host: String, until: MonotonicTime) { limiter.withLock { $0.pause(host, until: until) } }
}
