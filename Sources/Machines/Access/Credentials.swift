/// The credentials that authenticate clients: the contents of the files of tokens and keys, and the policy for JWT.
/// Immutable, and used by all event loops.
package final class Credentials: Sendable {
  package struct JWT: Sendable {
    package let keys: KeySet
    package let policy: JWTPolicy

    /// Throws if a key could sign tokens in the name of an issuer other than its own.
    package init(keys: KeySet, policy: JWTPolicy) throws(KeySet.Invalid) {
      try keys.checkIssuers(policy)
      self.keys = keys
      self.policy = policy
    }

    private init(checked keys: KeySet, _ policy: JWTPolicy) {
      self.keys = keys
      self.policy = policy
    }

    fileprivate func sharing(with previous: JWT) -> JWT { JWT(checked: keys.sharing(with: previous.keys), policy) }
  }

  /// nil if there are no static tokens.
  package let tokens: TokenTable?
  /// nil if JWT are not accepted.
  package let jwt: JWT?

  /// - Parameters:
  ///   - tokens: at a reload, the table must be created with the tokens of `previous` as `sharingGrantsOf`.
  ///   - previous: the credentials that the new credentials replace at a reload. Grants of unchanged tokens and keys
  ///     stay valid. If the policy for JWT has changed, the grants of all keys end.
  package init(tokens: TokenTable?, jwt: JWT?, replacing previous: Credentials? = nil) {
    self.tokens = tokens
    if let jwt, let before = previous?.jwt, before.policy == jwt.policy {
      self.jwt = jwt.sharing(with: before)
    } else {
      self.jwt = jwt
    }
  }

  /// Revokes the grants of tokens and keys that `current` does not have. Call this only when every event loop uses
  /// `current`. A loop with the old credentials would refuse tokens whose rights have merely changed.
  package func revokeGrants(notIn current: Credentials?) {
    tokens?.revokeGrants(notIn: current?.tokens)
    for key in jwt?.keys.keys ?? [] where current?.jwt?.keys.keys.contains(where: { $0 === key }) != true {
      key.revocation.revoke()
    }
  }
}
