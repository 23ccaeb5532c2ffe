/// A total whose parts can be taken back, such as the memory for bodies that clients are sending.
///
/// One client may use the whole total while no other client needs a part. If the total exceeds its limit, one part
/// yields. Among the addresses of the principal that uses the most, the address that uses the most is chosen. Its
/// oldest part yields. Clients without credentials count as one principal, and their addresses decide. So a client that
/// uses less than others keeps its parts, however many parts others have.
///
/// Its code is inlinable, so that a target with its own type of parts gets a specialized copy. Without a specialized
/// copy, adding and removing a part would take 14,000 instructions, most of them for metadata of types.
@usableFromInline
package struct YieldingTotal<Part: Sendable>: Sendable {
  /// Identifies a part until it is removed or yields. Afterwards the handle never becomes valid again.
  @usableFromInline
  package struct Handle: Equatable, Sendable {
    @usableFromInline let index: Int32
    @usableFromInline let generation: UInt32

    @inlinable init(index: Int32, generation: UInt32) {
      self.index = index
      self.generation = generation
    }
  }

  @usableFromInline
  struct Node: Sendable {
    @usableFromInline var part: Part?
    @usableFromInline var generation: UInt32
    @usableFromInline var user: TotalUser
    @usableFromInline var amount: Int
    /// The neighbours among the parts of the same user. In a free node, `next` is the next free node.
    @usableFromInline var previous: Int32
    @usableFromInline var next: Int32

    @inlinable
    init(part: Part?, generation: UInt32, user: TotalUser, amount: Int, previous: Int32, next: Int32) {
      self.part = part
      self.generation = generation
      self.user = user
      self.amount = amount
      self.previous = previous
      self.next = next
    }
  }

  @inlinable static var none: Int32 { -1 }

  @usableFromInline package let limit: Int
  @usableFromInline var nodes: [Node] = []
  @usableFromInline var free: Int32 = -1
  @usableFromInline var users: [TotalUser: PartEnds] = [:]
  @usableFromInline var principals = WeightTable()
  /// The weights of each principal's addresses.
  @usableFromInline var addresses: [UInt64: WeightTable] = [:]
  /// Number of parts.
  @usableFromInline package internal(set) var count = 0

  package init(limit: Int) { self.limit = limit }

  /// The sum of all parts.
  @inlinable package var used: Int { principals.sum }

  /// Number of clients with a part.
  package var userCount: Int { users.count }

  /// The sum of the parts of one client.
  @inlinable package func amount(of user: TotalUser) -> Int { addresses[user.principal]?[user.address] ?? 0 }

  // MARK: Parts

  /// Adds a part. `yield` must follow until it returns nil.
  @inlinable
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
      users[user] = PartEnds(oldest: index, newest: index)
    } else {
      nodes[Int(last)].next = index
      users[user]?.newest = index
    }
    count += 1
    weigh(user, amount)
    return Handle(index: index, generation: generation)
  }

  /// Changes the size of a part. Returns false if it has yielded. `yield` must follow until it returns nil.
  @inlinable
  package mutating func change(_ handle: Handle, to amount: Int) -> Bool {
    guard contains(handle) else { return false }
    let node = nodes[Int(handle.index)]
    nodes[Int(handle.index)].amount = amount
    weigh(node.user, amount - node.amount)
    return true
  }

  /// Returns false if the part has yielded.
  @inlinable
  package mutating func remove(_ handle: Handle) -> Bool {
    guard contains(handle) else { return false }
    _ = take(handle.index)
    return true
  }

  /// Removes and returns the part that yields, or nil if the total is within its limit.
  ///
  /// - Parameter newest: the part that was just added or enlarged, if this part must yield whenever its client is among
  ///   the heaviest. In all other cases the oldest part of the heaviest client yields.
  @inlinable
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

  @inlinable
  func isAmongHeaviest(_ user: TotalUser, _ principal: (key: UInt64, weight: Int)) -> Bool {
    // The client that has just added or enlarged a part yields, even if it now only equals another client.
    guard user.principal == principal.key else { return principals[user.principal] >= principal.weight }
    return amount(of: user) >= addresses[user.principal]?.heaviest?.weight ?? 0
  }

  /// Whether the part has neither yielded nor been removed.
  @inlinable
  package func contains(_ handle: Handle) -> Bool {
    let node = nodes[Int(handle.index)]
    return node.part != nil && node.generation == handle.generation
  }

  @inlinable
  mutating func weigh(_ user: TotalUser, _ change: Int) {
    principals.add(change, to: user.principal)
    addresses[user.principal, default: WeightTable()].add(change, to: user.address)
    // The table of clients without credentials stays, so that a new such client costs no allocation of a table.
    if user.principal != 0, addresses[user.principal]?.count == 0 { addresses[user.principal] = nil }
  }

  @inlinable
  mutating func take(_ index: Int32) -> Part? {
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

/// The oldest and the newest part of one user of a `YieldingTotal`.
@usableFromInline
struct PartEnds: Sendable {
  @usableFromInline var oldest: Int32
  @usableFromInline var newest: Int32

  @inlinable
  init(oldest: Int32, newest: Int32) {
    self.oldest = oldest
    self.newest = newest
  }
}
