/// A total whose parts stay with their clients until the clients give the parts back, such as the consumers of a
/// session. It applies the rule of `Reserve`.
///
/// A client is a principal; without credentials it is an address.
package struct ReservedTotal: Sendable {
  package let reserve: Reserve
  package private(set) var used = 0
  private var amounts: [UInt64: Int] = [:]

  package init(limit: Int) { reserve = Reserve(limit: limit) }

  /// Number of clients with a part.
  package var userCount: Int { amounts.count }

  package func amount(of client: UInt64) -> Int { amounts[client] ?? 0 }

  /// Whether the client may have `amount` more. `client` is 0 if clients cannot be distinguished.
  package func admits(_ amount: Int = 1, by client: UInt64) -> Bool {
    reserve.admits(amount, used: used, own: client == 0 ? nil : self.amount(of: client))
  }

  /// Counts a part, even if it is not admitted. `client` is 0 if it is unknown.
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
