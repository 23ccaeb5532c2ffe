import Synchronization

/// Whether a session may write to its upstream, and to the receivers of its webhooks: until the deadline of its holder,
/// and not after the session is lost. Can be read from any thread, and is read right before each system call that
/// writes. Until the deadline, no other gateway is the holder. So it is also read before a response reports facts that
/// only the holder knows (`Session.isHere`).
package final class WritePermission: Sendable {
  private let isRevoked = Atomic(false)
  private let condition: @Sendable () -> Bool

  /// - Parameter condition: called before each write, so it must be cheap. It may become true again. If the session was
  ///   lost in between, `revoke` was called before that.
  package init(while condition: @escaping @Sendable () -> Bool) { self.condition = condition }

  /// Reads the condition first: if it has become true again, the permission was revoked before.
  package var isGiven: Bool { condition() && !isRevoked.load(ordering: .acquiring) }

  /// Ends the permission for good.
  package func revoke() { isRevoked.store(true, ordering: .releasing) }
}
