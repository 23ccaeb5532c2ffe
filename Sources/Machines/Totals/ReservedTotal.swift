/// A total whose parts stay with their clients until these give them back, such as the consumers of a session.
///
/// One client may use all of it. Beyond the limit an eighth more is kept for clients that have little: each may have a sixty-fourth of the limit, and at
/// least one. A client is a principal; without credentials it is an address.
package struct ReservedTotal: Sendable {
  /// What one client may have.
  package let limit: Int
  /// What a client may have if others use the limit.
  package var share: Int { max(1, limit / 64) }
  /// What all clients may have together.
  package var maximum: Int { limit + limit / 8 }

  package private(set) var used = 0
  private var amounts: [UInt64: Int] = [:]

  package init(limit: Int) { self.limit = limit }

  /// Number of clients with a part.
  package var userCount: Int { amounts.count }

  /// The client that a part is counted for.
  package static func client(_ user: TotalUser) -> UInt64 { user.principal == 0 ? user.address : user.principal }

  package func amount(of client: UInt64) -> Int { amounts[client] ?? 0 }

  /// Whether the client may have `amount` more. `client`: 0 if clients cannot be told apart.
  package func admits(_ amount: Int = 1, by client: UInt64) -> Bool {
    if amount <= limit - used { return true }
    // Clients that nobody can tell apart are one, and have the limit.
    guard client != 0 else { return false }
    return amount <= maximum - used && self.amount(of: client) + amount <= share
  }

  /// Counts a part, also one that is not admitted. `client`: 0 if it is not known whose it is.
  package mutating func add(_ amount: Int = 1, by client: UInt64) {
    used += amount
    if client != 0, amount != 0 { amounts[client, default: 0] += amount }
  }

  package mutating func remove(_ amount: Int = 1, by client: UInt64) {
    used -= amount
    guard client != 0, amount != 0 else { return }
    let left = (amounts[client] ?? 0) - amount
    precondition(left >= 0, "more was given back than was taken")
    amounts[client] = left == 0 ? nil : left
  }
}
