/// A FIFO queue in a ring buffer whose capacity is a power of two. Elements can be read and modified at any place. The ring grows by
/// doubling and never shrinks.
///
/// A place is an absolute index: the first element ever appended has place 0, and an element keeps its place until it is removed. A
/// removed element is overwritten with `filler`, which releases what it referred to. Inlinable, so that callers specialise it.
@usableFromInline
package struct RingDeque<Element> {
  @usableFromInline let filler: Element
  @usableFromInline let leastCapacity: Int
  @usableFromInline var storage: [Element] = []
  /// The place of the first element.
  @usableFromInline package internal(set) var front = 0
  /// The place after the last element.
  @usableFromInline package internal(set) var end = 0

  /// Allocates nothing before the first element, then room for `leastCapacity` elements. `leastCapacity` must be a power of two.
  package init(filler: Element, leastCapacity: Int = 16) {
    precondition(leastCapacity > 0 && leastCapacity & (leastCapacity - 1) == 0, "a ring's size is a power of two")
    self.filler = filler
    self.leastCapacity = leastCapacity
  }

  @inlinable package var isEmpty: Bool { front == end }
  @inlinable package var count: Int { end &- front }

  @inlinable package subscript(place: Int) -> Element {
    @inline(__always) get {
      precondition(place >= front && place < end, "no such place in the queue")
      return storage[place & (storage.count &- 1)]
    }
    @inline(__always) _modify {
      precondition(place >= front && place < end, "no such place in the queue")
      yield &storage[place & (storage.count &- 1)]
    }
  }

  @inlinable package mutating func append(_ element: Element) {
    if count == storage.count { grow() }
    storage[end & (storage.count &- 1)] = element
    end &+= 1
  }

  @inlinable package mutating func removeFirst() {
    precondition(front < end, "nothing is left to remove")
    storage[front & (storage.count &- 1)] = filler
    front &+= 1
  }

  @inlinable package mutating func removeLast() {
    precondition(front < end, "nothing is left to remove")
    end &-= 1
    storage[end & (storage.count &- 1)] = filler
  }

  @inlinable package mutating func removeAll() {
    while !isEmpty { removeFirst() }
  }

  @inlinable mutating func grow() {
    var larger = [Element](repeating: filler, count: max(leastCapacity, storage.count * 2))
    for place in front..<end { larger[place & (larger.count &- 1)] = storage[place & (storage.count &- 1)] }
    storage = larger
  }
}

extension RingDeque: Sendable where Element: Sendable {}
