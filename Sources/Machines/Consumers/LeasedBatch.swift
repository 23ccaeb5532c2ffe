import ByteStreams
import Inbox

/// A push that is leased to a worker.
package struct LeasedMessage: Sendable {
  package let lease: Lease
  package var expires: MonotonicTime
  package let message: RetainedMessage
}

/// The result of a receive of a worker.
package struct LeasedBatch: Sendable {
  package let messages: [LeasedMessage]
  /// The missing pushes: they were never delivered, or cannot be delivered again.
  package let gap: Gap?
  /// Whether there may be more to receive now.
  package let more: Bool
  /// Whether pushes wait for leases or delays to end.
  package let isBlocked: Bool
  /// Whether other workers can receive pushes that time or retention has freed.
  package let leavesFreed: Bool
}

/// A worker's instruction for a lease.
package enum Settlement: Equatable, Sendable {
  /// The push is handled. If the push is settled already, the instruction needs no valid lease, so that a client can
  /// repeat it.
  case acknowledge
  /// The push is to be delivered again after this time.
  case release(TimeSpan)
  /// No worker can handle the push.
  case reject
  /// The lease is renewed for its full duration.
  case extend
}

/// The result of a settlement.
package enum SettlementOutcome: Equatable, Sendable {
  case acknowledged
  case released
  /// The push is a dead letter. If retention has removed the push, no copy is left, and a gap reports it instead.
  case dead
  case extended(until: MonotonicTime)
  /// The lease has expired or never existed, or the push was settled in another way.
  case leaseLost
}
