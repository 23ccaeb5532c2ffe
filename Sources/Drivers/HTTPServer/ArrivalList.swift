/// The position of an element of an `ArrivalList`. When the element is removed, its handle becomes invalid, and stays
/// so even if the slot is reused.
struct ArrivalHandle: Hashable, Sendable {
  let index: Int32
  let generation: UInt32
}

/// A doubly linked list in arrival order, stored in one array. Adding and removing take constant time and allocate
/// nothing once the array has grown.
struct ArrivalList<Element>: ~Copyable {
  typealias Handle = ArrivalHandle

  struct Node {
    var element: Element?
    var generation: UInt32
    var previous: Int32
    var next: Int32

    init(element: Element?, generation: UInt32, previous: Int32, next: Int32) {
      self.element = element
      self.generation = generation
      self.previous = previous
      self.next = next
    }
  }

  static var none: Int32 { -1 }
  var nodes: [Node] = []
  var free: Int32 = Self.none
  var head: Int32 = Self.none
  var tail: Int32 = Self.none
  private(set) var count = 0

  init() {}

  var isEmpty: Bool { count == 0 }

  mutating func append(_ element: Element) -> Handle {
    let index: Int32
    if free != Self.none {
      index = free
      free = nodes[Int(index)].next
      nodes[Int(index)].element = element
      nodes[Int(index)].previous = tail
      nodes[Int(index)].next = Self.none
    } else {
      index = Int32(nodes.count)
      // The capacity grows by a quarter. If it doubled, much memory could be unused, since each connection has a node.
      if nodes.count == nodes.capacity { nodes.reserveCapacity(nodes.count + max(16, nodes.count / 4)) }
      nodes.append(Node(element: element, generation: 0, previous: tail, next: Self.none))
    }
    if tail == Self.none { head = index } else { nodes[Int(tail)].next = index }
    tail = index
    count += 1
    return Handle(index: index, generation: nodes[Int(index)].generation)
  }

  /// Replaces an element, unless it was removed.
  mutating func replace(_ handle: Handle, with element: Element) {
    let node = nodes[Int(handle.index)]
    guard node.element != nil, node.generation == handle.generation else { return }
    nodes[Int(handle.index)].element = element
  }

  @discardableResult
  mutating func remove(_ handle: Handle) -> Element? {
    let node = nodes[Int(handle.index)]
    guard let element = node.element, node.generation == handle.generation else { return nil }
    if node.previous == Self.none { head = node.next } else { nodes[Int(node.previous)].next = node.next }
    if node.next == Self.none { tail = node.previous } else { nodes[Int(node.next)].previous = node.previous }
    nodes[Int(handle.index)] = Node(
      element: nil, generation: node.generation &+ 1, previous: Self.none, next: free)
    free = handle.index
    count -= 1
    return element
  }

  /// The oldest element.
  var first: Element? { head == Self.none ? nil : nodes[Int(head)].element }

  /// Applies `change` to the oldest element and moves it to the end. Its handle stays valid.
  mutating func moveFirstToEnd(_ change: (inout Element) -> Void) {
    guard head != Self.none, var element = nodes[Int(head)].element else { return }
    let index = head
    change(&element)
    nodes[Int(index)].element = element
    guard index != tail else { return }
    head = nodes[Int(index)].next
    nodes[Int(head)].previous = Self.none
    nodes[Int(index)].previous = tail
    nodes[Int(index)].next = Self.none
    nodes[Int(tail)].next = index
    tail = index
  }

  /// Removes the oldest element.
  mutating func popFirst() -> Element? {
    head == Self.none ? nil : remove(Handle(index: head, generation: nodes[Int(head)].generation))
  }
}
