/// A FIFO queue in a ring buffer whose capacity is a power of two. Elements can be read and modified at any index. The
/// ring grows by doubling and never shrinks.
///
/// An index is absolute: the first element ever appended has index 0, and an element keeps its index until it is
/// removed. A removed element is overwritten with `filler`, which releases the objects that the element referred to.
/// The type is inlinable, so that the compiler can specialise it in other modules.
@usableFromInline
package struct RingDeque<Element> {
  @usableFromInline let filler: Element
  @usableFromInline let minimumCapacity: Int
  @usableFromInline var storage: [Element] = []
  /// The index of the first element.
  @usableFromInline package internal(set) var front = 0
  /// The index after the last element.
  @usableFromInline package internal(set) var end = 0

  /// Creates an empty ring. The first `append` allocates room for `minimumCapacity` elements. `minimumCapacity` must be
  /// a power of two.
  ///
  /// - Parameter front: the index of the first element that will be appended.
  package init(filler: Element, minimumCapacity: Int = 16, front: Int = 0) {
    precondition(minimumCapacity > 0 && minimumCapacity & (minimumCapacity - 1) == 0, "a ring's size is a power of two")
    self.filler = filler
    self.minimumCapacity = minimumCapacity
    (self.front, end) = (front, front)
  }

  @inlinable package var isEmpty: Bool { front == end }
  @inlinable package var count: Int { end &- front }
  /// The number of elements that fit without growing.
  package var capacity: Int { storage.count }

  @inlinable package subscript(index: Int) -> Element {
    // A `get` would copy, and so retain, the whole element to read a part of it. The address stays valid, since
    // `storage` cannot change while the ring is borrowed.
    @inlinable @inline(__always) unsafeAddress {
      precondition(index >= front && index < end, "no element at this index")
      return unsafe storage.withUnsafeBufferPointer {
        unsafe $0.baseAddress.unsafelyUnwrapped + (index & (storage.count &- 1))
      }
    }
    @inline(__always) _modify {
      precondition(index >= front && index < end, "no element at this index")
      yield &storage[index & (storage.count &- 1)]
    }
  }

  @inlinable package mutating func append(_ element: consuming Element) {
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
    var larger = [Element](repeating: filler, count: max(minimumCapacity, storage.count * 2))
    for index in front..<end { larger[index & (larger.count &- 1)] = storage[index & (storage.count &- 1)] }
    storage = larger
  }
}

extension RingDeque: Sendable where Element: Sendable {}
