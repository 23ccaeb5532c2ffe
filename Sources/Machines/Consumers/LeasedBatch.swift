import ByteStreams
import Inbox

/// A push that is leased to a worker.
package struct LeasedMessage: Sendable {
  package let lease: Lease
  package var expires: MonotonicTime
  package let message: RetainedMessage
}

/// What a worker receives.
package struct LeasedBatch: Sendable {
  package let messages: [LeasedMessage]
  /// Pushes that are missing, and were never handed out or cannot be handed out again.
  package let gap: Gap?
  /// Whether there may be more to receive now.
  package let more: Bool
  /// Whether there are pushes that cannot be handed out before leases or delays end.
  package let isBlocked: Bool
  /// Whether other workers can receive what time or retention has freed.
  package let leavesFreed: Bool
}

/// What a worker does with a lease.
package enum Settlement: Equatable, Sendable {
  /// The push is handled. Repeated for a push that is settled, it needs no valid lease.
  case acknowledge
  /// The push is to be delivered again after this time.
  case release(TimeSpan)
  /// The push cannot be handled by any worker.
  case reject
  /// The worker needs as much time again.
  case extend
}

/// What became of a lease.
package enum SettlementOutcome: Equatable, Sendable {
  case acknowledged
  case released
  /// The push is a dead letter. If retention has removed the push, no copy is left, and a gap reports it instead.
  case dead
  case extended(until: MonotonicTime)
  /// The lease has expired or never existed, or the push was settled otherwise.
  case leaseLost
}
