import ByteStreams
import Threading
import UpstreamSession

/// `HostDials`, shared by all sessions of the process across loops.
package final class DialGate: Sendable {
  private let dials: Locked<HostDials>

  package init(_ limits: DialLimits = DialLimits()) { dials = Locked(HostDials(limits)) }

  func ask(
    _ host: String, _ ticket: HostDials.Ticket?, overridesHold: Bool = false, now: MonotonicTime
  ) -> HostDials.Verdict {
    dials.withLock { $0.ask(host, ticket, overridesHold: overridesHold, now: now) }
  }

  func ended(_ host: String) { dials.withLock { $0.ended(host) } }

  func hold(_ host: String, until: MonotonicTime) { dials.withLock { $0.hold(host, until: until) } }
}
