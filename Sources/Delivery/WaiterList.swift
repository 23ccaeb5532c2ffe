/// Readers that wait for news, in the order of their coming. Adding and removing one costs the same among ten as among ten
/// thousand, and allocates nothing once the list has grown.
package struct WaiterList<Waiter>: ~Copyable {
  /// A place in the list. Once its waiter has been removed or taken it means nothing, also when the place is used again.
  package struct Handle: Hashable, Sendable {
    fileprivate let index: Int32
    fileprivate let generation: UInt32
  }

  private struct Node {
    var waiter: Waiter?
    var generation: UInt32
    var previous: Int32
    var next: Int32
  }

  private static var none: Int32 { -1 }
  private var nodes: [Node] = []
  private var free: Int32 = Self.none
  private var head: Int32 = Self.none
  private var tail: Int32 = Self.none
  package private(set) var count = 0

  package init() {}

  package var isEmpty: Bool { count == 0 }

  package mutating func append(_ waiter: Waiter) -> Handle {
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
  package mutating func remove(_ handle: Handle) -> Waiter? {
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
  package var first: Waiter? { head == Self.none ? nil : nodes[Int(head)].waiter }

  /// Takes the waiter that has waited longest.
  package mutating func popFirst() -> Waiter? {
    head == Self.none ? nil : remove(Handle(index: head, generation: nodes[Int(head)].generation))
  }
}
