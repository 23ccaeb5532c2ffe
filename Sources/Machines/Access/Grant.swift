import Synchronization

/// The rights of one authenticated client. Every request refers to the grant of its client, also while the request is
/// held.
///
/// Any thread may read a grant. A grant is immutable, except that it can be revoked.
package final class Grant: Sendable {
  /// The client: the name of a static token, issuer and subject of a JWT separated by a space, or a name in a
  /// certificate. Empty for an open gateway. It does not contain control characters.
  package let principal: String
  /// A hash of `principal` with a key of this process, for quotas. Two principals can have the same number.
  package let number: UInt32
  package let scopes: Scopes
  /// The sessions that the client may use.
  package let sessions: NamePatterns
  /// The topics that the client may receive. The messages that it sends are not limited by topic.
  package let topics: NamePatterns
  /// The UNIX time in milliseconds at which the grant expires; nil if it does not expire.
  package let expires: Int64?
  private let revocation: Revocation

  /// - Parameter revocation: common to all grants that must end together, such as the grants of one key.
  package init(
    principal: String, scopes: Scopes, sessions: NamePatterns = .all, topics: NamePatterns = .all,
    expires: Int64? = nil, revocation: Revocation = Revocation()
  ) {
    self.principal = principal
    self.scopes = scopes
    self.sessions = sessions
    self.topics = topics
    self.expires = expires
    self.revocation = revocation
    // The standard library's hash is keyed at random for each process.
    var hasher = Hasher()
    hasher.combine(principal)
    number = principal.isEmpty ? 0 : UInt32(truncatingIfNeeded: hasher.finalize())
  }

  /// The grant of every client of an open gateway.
  package static let open = Grant(principal: "", scopes: .all)

  /// Whether the token, key or authority on which the grant is based was removed. Once true, it stays true.
  package var isRevoked: Bool { revocation.isRevoked }

  func revoke() { revocation.revoke() }

  package func isExpired(at now: Int64) -> Bool {
    guard let expires else { return false }
    return now >= expires
  }
}

/// Ends all grants that refer to this object, on all threads.
package final class Revocation: Sendable {
  private let flag = Atomic(false)

  package init() {}

  package var isRevoked: Bool { flag.load(ordering: .acquiring) }

  package func revoke() { flag.store(true, ordering: .releasing) }
}
