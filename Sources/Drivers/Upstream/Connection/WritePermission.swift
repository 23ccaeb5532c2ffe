import Synchronization

/// Whether a session may write to its upstream, and to the receivers of its webhooks: until the deadline of the gateway that holds it, and not
/// after the session is lost. Read from any thread, right before each system call that writes.
package final class WritePermission: Sendable {
  private let isRevoked = Atomic(false)
  private let condition: @Sendable () -> Bool

  /// - Parameter condition: called before each write, so it must be cheap. It may become true again: a session that was lost meanwhile is revoked before.
  package init(while condition: @escaping @Sendable () -> Bool) { self.condition = condition }

  package var isGiven: Bool { !isRevoked.load(ordering: .acquiring) && condition() }

  /// Ends the permission for good.
  func revoke() { isRevoked.store(true, ordering: .releasing) }
}
