/// The items of each client in one place, such as a queue: their number, and their bytes. The owner of the place has
/// the sums, and decides by `Reserve` whether a client may add an item.
///
/// A change costs a dictionary lookup, and allocates nothing while the number of clients stays the same or falls.
package struct ClientTotals: Sendable {
  package struct Amount: Equatable, Sendable {
    package var count = 0
    package var bytes = 0

    fileprivate mutating func add(_ more: Int) {
      count += 1
      bytes += more
    }
  }

  /// A table with at most this many clients keeps its memory.
  private static var clientsKept: Int { 64 }

  private var amounts: [UInt64: Amount] = [:]

  package init() {}

  /// Number of clients with items.
  package var clientCount: Int { amounts.count }

  package subscript(client: UInt64) -> Amount { amounts[client] ?? Amount() }

  /// Counts an item. `client` is 0 if the item's client is unknown. Such an item is not counted.
  package mutating func add(_ bytes: Int, by client: UInt64) {
    guard client != 0 else { return }
    amounts[client, default: Amount()].add(bytes)
  }

  /// Adds `more` bytes to an item of a client.
  package mutating func grow(_ more: Int, by client: UInt64) {
    if client != 0 { amounts[client]?.bytes += more }
  }

  package mutating func remove(_ bytes: Int, by client: UInt64) {
    guard client != 0 else { return }
    guard let index = amounts.index(forKey: client) else { preconditionFailure("nothing of this client is left") }
    amounts.values[index].count -= 1
    amounts.values[index].bytes -= bytes
    guard amounts.values[index].count == 0 else { return }
    amounts.remove(at: index)
    if amounts.isEmpty, amounts.capacity > 2 * Self.clientsKept { amounts = [:] }
  }
}
