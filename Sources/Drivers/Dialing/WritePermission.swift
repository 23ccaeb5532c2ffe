import Synchronization

/// Whether this gateway may write to the upstream of a session, and to the receivers of the session's webhooks. It may
/// do so until its deadline as the holder, unless it loses the session before. The permission can be read from any
/// thread, and is read right before each system call that writes. Until the deadline, no other gateway is the holder.
/// So the permission is also read before a response reports facts that only the holder knows (`Session.isHere`).
package final class WritePermission: Sendable {
  private let isRevoked = Atomic(false)
  private let condition: @Sendable () -> Bool

  /// - Parameter condition: called before each write, so it must be cheap. The condition may become true again. If the
  ///   session was lost while the condition was false, `revoke` is called before it becomes true again.
  package init(while condition: @escaping @Sendable () -> Bool) { self.condition = condition }

  /// Whether writing is allowed. The condition is read first: if it has become true again after the loss of the
  /// session, the permission was revoked before that.
  package var isGiven: Bool { condition() && !isRevoked.load(ordering: .acquiring) }

  /// Ends the permission for good.
  package func revoke() { isRevoked.store(true, ordering: .releasing) }
}
