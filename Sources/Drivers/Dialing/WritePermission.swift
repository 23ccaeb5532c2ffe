import Synchronization

/// Whether a session may write to its upstream, and to the receivers of its webhooks: until the deadline of the gateway that holds it, and not
/// after the session is lost. Read from any thread, right before each system call that writes. Until then, no other gateway holds the session,
/// so it is also read before a response says what only the holder knows (`Session.isHere`).
package final class WritePermission: Sendable {
  private let isRevoked = Atomic(false)
  private let condition: @Sendable () -> Bool

  /// - Parameter condition: called before each write, so it must be cheap. It may become true again: a session that was lost meanwhile is revoked before.
  package init(while condition: @escaping @Sendable () -> Bool) { self.condition = condition }

  /// The condition first: if it has become true again, the permission was revoked before.
  package var isGiven: Bool { condition() && !isRevoked.load(ordering: .acquiring) }

  /// Ends the permission for good.
  package func revoke() { isRevoked.store(true, ordering: .releasing) }
}
