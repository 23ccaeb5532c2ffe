/// The rule of a total whose parts are not taken back from clients. One client may use all of the limit. Above it, an
/// eighth more is reserved for clients that use little: each may have a sixty-fourth of the limit, and at least one.
package struct Reserve: Sendable {
  /// The maximum of one client.
  package let limit: Int
  /// The maximum of a client when others have used up the limit.
  package var share: Int { max(1, limit / 64) }
  /// The maximum of all clients together.
  package var maximum: Int { limit + limit / 8 }

  package init(limit: Int) { self.limit = limit }

  /// The rule for a total that may not exceed `maximum` with the reserve.
  package init(maximum: Int) { limit = maximum - (maximum + 1) / 9 }

  /// Whether a client may have `amount` more.
  ///
  /// - Parameters:
  ///   - used: the sum of all clients.
  ///   - own: the amount of this client; nil if it is unknown, or if clients cannot be distinguished. In both cases the
  ///     client cannot use the reserve.
  package func admits(_ amount: Int, used: Int, own: @autoclosure () -> Int?) -> Bool {
    if amount <= limit - used { return true }
    guard let own = own() else { return false }
    return amount <= maximum - used && own + amount <= share
  }
}
