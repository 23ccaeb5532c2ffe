/// The rule of a total whose parts stay with their clients: one client may use the limit. Beyond it, an eighth more is kept for clients that have little: each may have
/// a sixty-fourth of the limit, and at least one.
package struct Reserve: Sendable {
  /// What one client may have.
  package let limit: Int
  /// What a client may have if others use the limit.
  package var share: Int { max(1, limit / 64) }
  /// What all clients may have together.
  package var maximum: Int { limit + limit / 8 }

  package init(limit: Int) { self.limit = limit }

  /// Whether a client may have `amount` more.
  ///
  /// - Parameters:
  ///   - used: what all have.
  ///   - own: what the client has; nil if it is not known, or if clients cannot be told apart. They are one client then.
  package func admits(_ amount: Int, used: Int, own: @autoclosure () -> Int?) -> Bool {
    if amount <= limit - used { return true }
    guard let own = own() else { return false }
    return amount <= maximum - used && own + amount <= share
  }
}
