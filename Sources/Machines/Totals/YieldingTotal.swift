/// A total whose parts can be taken back, such as the memory for bodies that clients are sending.
///
/// One client may use the whole total while no other client needs a part. If the total exceeds its limit, one part
/// yields. Among the addresses of the principal that uses the most, the address that uses the most is chosen. Its
/// oldest part yields. Clients without credentials count as one principal, and their addresses decide. So a client that
/// uses less than others keeps its parts, however many parts others have.
package struct YieldingTotal<Part: Sendable>: Sendable {
  /// Identifies a part until it is removed or yields. Afterwards the handle never becomes valid again.
  package struct Handle: Equatable, Sendable {
    fileprivate let index: Int32
    fileprivate let generation: UInt32
  }

  private struct Node: Sendable {
    var part: Part?
    var generation: UInt32
    var user: TotalUser
    var amount: Int
    /// The neighbours among the parts of the same user. In a free node, `next` is the next free node.
    var previous: Int32
    var next: Int32
  }

  private struct Ends: Sendable {
    var oldest: Int32
    var newest: Int32
  }

  private static var none: Int32 { -1 }

  package let limit: Int
  private var nodes: [Node] = []
  private var free = Self.none
  private var users: [TotalUser: Ends] = [:]
  private var principals = WeightTable<UInt64>()
  /// The weights of each principal's addresses.
  private var addresses: [UInt64: WeightTable<UInt64>] = [:]
  /// Number of parts.
  package private(set) var count = 0

  package init(limit: Int) { self.limit = limit }

  /// The sum of all parts.
  package var used: Int { principals.sum }

  /// Number of clients with a part.
  package var userCount: Int { users.count }

  /// The sum of the parts of one client.
  package func amount(of user: TotalUser) -> Int { addresses[user.principal]?[user.address] ?? 0 }

  // MARK: Parts

  /// Adds a part. `yield` must follow until it returns nil.
  package mutating func add(_ part: Part, _ amount: Int, by user: TotalUser) -> Handle {
    let last = users[user]?.newest ?? Self.none
    let generation = free == Self.none ? 0 : nodes[Int(free)].generation
    let node = Node(
      part: part, generation: generation, user: user, amount: amount, previous: last, next: Self.none)
    let index: Int32
    if free == Self.none {
      index = Int32(nodes.count)
      // The capacity is not doubled, since the array is large: each connection has a node.
      if nodes.count == nodes.capacity { nodes.reserveCapacity(nodes.count + max(16, nodes.count / 4)) }
      nodes.append(node)
    } else {
      index = free
      free = nodes[Int(index)].next
      nodes[Int(index)] = node
    }
    if last == Self.none {
      users[user] = Ends(oldest: index, newest: index)
    } else {
      nodes[Int(last)].next = index
      users[user]?.newest = index
    }
    count += 1
    weigh(user, amount)
    return Handle(index: index, generation: generation)
  }

  /// Changes the size of a part. Returns false if it has yielded. `yield` must follow until it returns nil.
  package mutating func change(_ handle: Handle, to amount: Int) -> Bool {
    guard contains(handle) else { return false }
    let node = nodes[Int(handle.index)]
    nodes[Int(handle.index)].amount = amount
    weigh(node.user, amount - node.amount)
    return true
  }

  /// Returns false if the part has yielded.
  package mutating func remove(_ handle: Handle) -> Bool {
    guard contains(handle) else { return false }
    _ = take(handle.index)
    return true
  }

  /// Removes and returns the part that yields, or nil if the total is within its limit.
  ///
  /// - Parameter newest: the part that was just added or enlarged, if this part must yield whenever its client is among
  ///   the heaviest. In all other cases the oldest part of the heaviest client yields.
  package mutating func yield(for newest: Handle? = nil) -> Part? {
    guard used > limit, let principal = principals.heaviest else { return nil }
    if let newest, contains(newest), isAmongHeaviest(nodes[Int(newest.index)].user, principal) {
      return take(newest.index)
    }
    guard let address = addresses[principal.key]?.heaviest?.key,
      let ends = users[TotalUser(principal: principal.key, address: address)]
    else { return nil }
    return take(ends.oldest)
  }

  private func isAmongHeaviest(_ user: TotalUser, _ principal: (key: UInt64, weight: Int)) -> Bool {
    // The client that has just added or enlarged a part yields, even if it now only equals another client.
    guard user.principal == principal.key else { return principals[user.principal] >= principal.weight }
    return amount(of: user) >= addresses[user.principal]?.heaviest?.weight ?? 0
  }

  /// Whether the part has neither yielded nor been removed.
  package func contains(_ handle: Handle) -> Bool {
    let node = nodes[Int(handle.index)]
    return node.part != nil && node.generation == handle.generation
  }

  private mutating func weigh(_ user: TotalUser, _ change: Int) {
    principals.add(change, to: user.principal)
    addresses[user.principal, default: WeightTable()].add(change, to: user.address)
    // The table of clients without credentials stays, so that a new such client costs no allocation of a table.
    if user.principal != 0, addresses[user.principal]?.count == 0 { addresses[user.principal] = nil }
  }

  private mutating func take(_ index: Int32) -> Part? {
    let node = nodes[Int(index)]
    if node.previous != Self.none { nodes[Int(node.previous)].next = node.next }
    if node.next != Self.none { nodes[Int(node.next)].previous = node.previous }
    if node.previous == Self.none, node.next == Self.none {
      users[node.user] = nil
    } else if node.previous == Self.none {
      users[node.user]?.oldest = node.next
    } else if node.next == Self.none {
      users[node.user]?.newest = node.previous
    }
    nodes[Int(index)].part = nil
    nodes[Int(index)].generation &+= 1
    nodes[Int(index)].next = free
    free = index
    count -= 1
    weigh(node.user, -node.amount)
    return node.part
  }
}
