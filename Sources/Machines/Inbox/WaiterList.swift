/// Readers that wait for news, in the order of their coming. Adding and removing one costs the same among ten as among ten
/// thousand, and allocates nothing once the list has grown. Inlinable, so that its users get it made for their type of waiter.
@usableFromInline
package struct WaiterList<Waiter>: ~Copyable {
  /// A place in the list. Once its waiter has been removed or taken it means nothing, also when the place is used again.
  @usableFromInline
  package struct Handle: Hashable, Sendable {
    @usableFromInline let index: Int32
    @usableFromInline let generation: UInt32

    @usableFromInline init(index: Int32, generation: UInt32) {
      self.index = index
      self.generation = generation
    }
  }

  @usableFromInline
  struct Node {
    @usableFromInline var waiter: Waiter?
    @usableFromInline var generation: UInt32
    @usableFromInline var previous: Int32
    @usableFromInline var next: Int32

    @usableFromInline init(waiter: Waiter?, generation: UInt32, previous: Int32, next: Int32) {
      self.waiter = waiter
      self.generation = generation
      self.previous = previous
      self.next = next
    }
  }

  @usableFromInline static var none: Int32 { -1 }
  @usableFromInline var nodes: [Node] = []
  @usableFromInline var free: Int32 = Self.none
  @usableFromInline var head: Int32 = Self.none
  @usableFromInline var tail: Int32 = Self.none
  @usableFromInline package internal(set) var count = 0

  package init() {}

  @inlinable package var isEmpty: Bool { count == 0 }

  @inlinable package mutating func append(_ waiter: Waiter) -> Handle {
    let index: Int32
    if free != Self.none {
      index = free
      free = nodes[Int(index)].next
      nodes[Int(index)].waiter = waiter
      nodes[Int(index)].previous = tail
      nodes[Int(index)].next = Self.none
    } else {
      index = Int32(nodes.count)
      nodes.append(Node(waiter: waiter, generation: 0, previous: tail, next: Self.none))
    }
    if tail == Self.none { head = index } else { nodes[Int(tail)].next = index }
    tail = index
    count += 1
    return Handle(index: index, generation: nodes[Int(index)].generation)
  }

  @discardableResult
  @inlinable package mutating func remove(_ handle: Handle) -> Waiter? {
    let node = nodes[Int(handle.index)]
    guard let waiter = node.waiter, node.generation == handle.generation else { return nil }
    if node.previous == Self.none { head = node.next } else { nodes[Int(node.previous)].next = node.next }
    if node.next == Self.none { tail = node.previous } else { nodes[Int(node.next)].previous = node.previous }
    nodes[Int(handle.index)] = Node(
      waiter: nil, generation: node.generation &+ 1, previous: Self.none, next: free)
    free = handle.index
    count -= 1
    return waiter
  }

  /// The waiter that has waited longest.
  @inlinable package var first: Waiter? { head == Self.none ? nil : nodes[Int(head)].waiter }

  /// Takes the waiter that has waited longest.
  @inlinable package mutating func popFirst() -> Waiter? {
    head == Self.none ? nil : remove(Handle(index: head, generation: nodes[Int(head)].generation))
  }
}
